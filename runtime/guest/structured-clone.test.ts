import { describe } from "vitest";
import { conformance } from "./testing-cases.ts";

describe("structuredClone", () => {
  conformance({
    primitives: `return [structuredClone(1), structuredClone("x"), structuredClone(null), structuredClone(undefined) === undefined, structuredClone(5n) === 5n];`,
    "objects, arrays, holes": `const a = [1, , 3]; a.extra = "e"; const c = structuredClone(a); return [c, 1 in c, c.extra, structuredClone({ a: { b: [] } })];`,
    "cycles and shared references": `const o = { a: {} }; o.self = o; o.b = o.a; const c = structuredClone(o); return [c.self === c, c.a === c.b, c !== o];`,
    "Map, Set, Date, RegExp": `const c = structuredClone({ m: new Map([[{ k: 1 }, new Set([2])]]), d: new Date(5), r: /a/gi }); return [[...c.m.keys()][0].k, [...c.m.values()][0].has(2), c.d.getTime(), String(c.r), c.r.lastIndex];`,
    wrappers: `const c = structuredClone([Object(1), Object("s"), Object(true), Object(2n)]); return c.map((x) => typeof x + typeof x.valueOf());`,
    "buffers and views share": `const b = new ArrayBuffer(8); const c = structuredClone({ b, u: new Uint8Array(b, 2, 3), f: new Float64Array(b), d: new DataView(b, 1) }); return [c.u.buffer === c.b, c.u.length, c.u.byteOffset, c.f.length, c.d.byteLength, c.b === b];`,
    "resizable buffers": `const c = structuredClone(new ArrayBuffer(2, { maxByteLength: 8 })); return [c.resizable, c.maxByteLength, c.byteLength];`,
    errors: `const e = new RangeError("m", { cause: { x: 1 } }); const c = structuredClone(e); return [c.name, c.message, c instanceof RangeError, c.cause, c.stack === e.stack];`,
    "errors of unknown names": `const e = new Error("m"); e.name = "Mine"; e.extra = 1; const c = structuredClone(e); return [c.name, c.extra === undefined, c instanceof Error];`,
    "getters are read, prototypes dropped": `class A { x = 1; get y() { return 2; } } const c = structuredClone(new A()); const d = structuredClone({ get z() { return 3; } }); return [c.constructor.name, c.x, c.y === undefined, d];`,
    "functions, symbols, promises and weak things throw": `return [await caught(() => structuredClone(() => {})), await caught(() => structuredClone(Symbol())), await caught(() => structuredClone({ f() {} })), await caught(() => structuredClone(new WeakMap())), await caught(() => structuredClone(Promise.resolve()))];`,
    "the exception is a DataCloneError": `try { structuredClone(Symbol()); } catch (e) { return [e instanceof DOMException, e.code]; }`,
    "blobs and files": `const c = structuredClone({ b: new Blob(["x"], { type: "a/b" }), f: new File(["yy"], "n", { lastModified: 3 }) }); return [c.b.type, await c.b.text(), c.f.name, c.f.lastModified, c.f instanceof File];`,
    DOMException: `const c = structuredClone(new DOMException("m", "DataError")); return [c.name, c.message, c instanceof DOMException];`,
    "transfer detaches": `const b = new Uint8Array([1, 2]).buffer; const c = structuredClone({ b }, { transfer: [b] }); return [b.byteLength, b.detached, c.b.byteLength];`,
    "a failed transfer changes nothing": `const b = new ArrayBuffer(4); const e = await caught(() => structuredClone({ b, f() {} }, { transfer: [b] })); return [e, b.byteLength];`,
    "untransferable and twice": `const b = new ArrayBuffer(1); return [await caught(() => structuredClone(1, { transfer: [{}] })), await caught(() => structuredClone(1, { transfer: [b, b] }))];`,
    keys: `const k = await crypto.subtle.generateKey({ name: "HMAC", hash: "SHA-256" }, true, ["sign"]); const c = structuredClone(k); return [c.type, c !== k, (await crypto.subtle.sign("HMAC", c, new Uint8Array(1))).byteLength];`,
    "own __proto__ keys stay data": `const o = JSON.parse('{"__proto__": 1}'); return Object.hasOwn(structuredClone(o), "__proto__");`,
    "platform objects without a copy throw": [
      `return [await caught(() => structuredClone(new Response())), await caught(() => structuredClone(new Headers())), await caught(() => structuredClone(new ReadableStream()))];`,
      ["DataCloneError", "DataCloneError", "DataCloneError"],
    ],
  });
});
