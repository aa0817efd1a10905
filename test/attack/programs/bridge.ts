import { expect } from "vitest";
import { type Attack, attempts, happened } from "../attack.ts";

/** Tries expressions and wants each to have thrown. */
function allThrow(name: string, expressions: string[]): Attack {
  return {
    name,
    program: attempts(expressions),
    outcome: "ok",
    expect({ answer }) {
      for (const [expression, what] of happened(answer)) expect(what, expression).toMatch(/^threw /);
    },
  };
}

/** Replaces parts of the language and still wants an ordinary answer, log and database row. */
function poisoned(name: string, poison: string, outcome: Attack["outcome"] = "ok", breaksItself = false): Attack {
  return {
    name,
    program: `async () => {
  await db.query("create table if not exists poisoned (a int)");
  ${poison}
  const { rows } = await db.query("select count(*)::int as n from poisoned");
  console.log("after the poison", { n: rows[0].n });
  return new KeptResponse("n=" + rows[0].n, { headers: { "x-after": "1" } });
}`,
    outcome,
    breaksItself,
    expect({ answer }) {
      if (answer?.status !== 200) return;
      expect([answer.text, answer.headers["x-after"]]).toEqual(["n=0", "1"]);
    },
  };
}

/** What crosses between program and host: traps on it, and a poisoned language under it. */
export const bridgeAttacks: Attack[] = [
  allThrow("traps that throw on what db.query gets", [
    "db.query({ toString() { throw new Error('trap'); } })",
    "db.query('select $1::text', new Proxy([], { get() { throw new Error('trap'); } }))",
    "db.query('select $1::text', [{ toJSON() { throw new Error('trap'); } }])",
    "db.query('select $1::text', [new Proxy({}, { ownKeys() { throw new Error('trap'); } })])",
    "db.query('select $1::text', [(() => { const c = {}; c.c = c; return c; })()])",
    "db.query(null)",
    "db.query('select 1', 'no array')",
    "db.query('select 1\\0')",
    "db.batch({ length: 1e9 })",
    "db.batch(new Array(1000).fill({ sql: 'select 1' }))",
  ]),
  allThrow("traps that throw on what store gets", [
    "store.put({ toString() { throw new Error('trap'); } }, 'v')",
    "store.put('k', 'v', { get contentType() { throw new Error('trap'); } })",
    "store.put('/k', 'v')",
    "store.put('../k', 'v')",
    "store.put('a/../../k', 'v')",
    "store.put('k\\0', 'v')",
    "store.put('k'.repeat(1025), 'v')",
    "store.put('', 'v')",
    "store.get(Symbol('k'))",
    "store.put('k', 'v', { contentType: 'text/plain\\r\\nx-evil: 1' })",
  ]),
  allThrow("traps that throw on what Response and Headers get", [
    "new Response('x', { status: 99 })",
    "new Response('x', { status: 1000 })",
    "new Response('x', { get headers() { throw new Error('trap'); } })",
    "new Response('x', { headers: new Proxy({}, { ownKeys() { throw new Error('trap'); } }) })",
    "new Response(new Proxy({}, { get() { throw new Error('trap'); } }))",
    "new Headers([['a']])",
    "new Headers({ 'a b': 'c' })",
    "new Headers({ a: 'x\\r\\ny' })",
    "new Headers({ a: '\\u{1F600}' })",
    "new Headers({ ['\\u0000']: 'c' })",
    "new Response('x', { status: 204 })",
    "new Response('x', { status: 200, statusText: 'a\\r\\nb' })",
    "Response.json((() => { const c = {}; c.c = c; return c; })())",
    "Response.json(1n)",
    "Response.redirect('http://a/', 200)",
    "structuredClone(() => 1)",
    "structuredClone(Symbol('s'))",
  ]),
  {
    name: "traps on what console gets",
    program: `() => {
  console.log(new Proxy({}, { get() { throw new Error("trap get"); }, ownKeys() { throw new Error("trap keys"); }, getPrototypeOf() { throw new Error("trap proto"); } }));
  console.log({ get boom() { throw new Error("trap getter"); } }, { toString() { throw new Error("trap"); }, [Symbol.toPrimitive]() { throw new Error("trap"); } });
  const cycle = { name: "cycle" }; cycle.self = cycle; console.log(cycle);
  let deep = {}; for (let i = 0; i < 100_000; i++) deep = { deep }; console.log(deep);
  console.log("%s %d %o", { toString() { throw new Error("trap"); } }, Symbol("s"), new Proxy([], {}));
  const error = new Error("odd"); Object.defineProperty(error, "stack", { get() { throw new Error("trap stack"); } }); console.error(error);
  console.log(Object.create(null), new (class { get [Symbol.toStringTag]() { throw new Error("trap tag"); } })());
  return new Response("logged");
}`,
    outcome: ["ok", "error"],
    expect({ answer }) {
      if (answer?.status === 200) expect(answer.text).toBe("logged");
    },
  },
  {
    name: "the status changes each time it is read",
    program: "() => { let n = 199; const r = new Response('x'); Object.defineProperty(r, 'status', { get: () => (n += 400) }); return r; }",
    outcome: ["ok", "error"],
    expect: ({ answer }) => expect([200, 500]).toContain(answer?.status),
  },
  {
    name: "a Response that is none",
    program: "() => ({ status: 200, headers: new Headers(), body: null, __proto__: Response.prototype })",
    outcome: "error",
  },
  {
    name: "a Proxy of a Response",
    program: "() => new Proxy(new Response('x'), { get(t, k) { if (k === 'status') return 7; return Reflect.get(t, k, t); } })",
    outcome: ["ok", "error"],
    expect: ({ answer }) => expect([200, 500]).toContain(answer?.status),
  },
  { name: "a thenable that resolves for ever", program: "() => { const t = { then(f) { f(t); } }; return t; }", outcome: "cpu-exceeded" },
  { name: "a thenable whose then throws", program: "() => ({ get then() { throw new Error('trap'); } })", outcome: "error" },
  {
    name: "a thrown Proxy",
    program:
      "() => { throw new Proxy({}, { get() { throw new Error('trap'); }, has() { throw new Error('trap'); }, getPrototypeOf() { throw new Error('trap'); } }); }",
    outcome: "error",
  },
  {
    name: "a thrown error whose parts throw",
    program:
      "() => { const e = new Error('x'); for (const k of ['stack', 'message', 'name', 'cause']) Object.defineProperty(e, k, { get() { throw new Error('trap'); } }); throw e; }",
    outcome: "error",
  },
  {
    name: "a thrown error with a message of 50 MB",
    program: "() => { throw new Error('x'.repeat(5e6)); }",
    outcome: "error",
    expect: ({ run }) => expect((run?.detail ?? "").length).toBeLessThan(100_000),
  },
  {
    name: "a thrown error with a chain of 100,000 causes",
    program: "() => { let e = new Error('x'); for (let i = 0; i < 100_000; i++) e = new Error('y', { cause: e }); throw e; }",
    outcome: ["error", "cpu-exceeded"],
  },
  {
    name: "lone surrogates everywhere",
    program:
      "async () => { const s = 'a\\ud800b'; console.log(s); await store.put('surrogate', s); const { rows } = await db.query('select $1::text as t', [s]); return Response.json({ t: rows[0].t, s }); }",
    outcome: ["ok", "error"],
  },
  {
    name: "detached and resized buffers as bodies",
    program: attempts([
      "(() => { const b = new ArrayBuffer(8); structuredClone(b, { transfer: [b] }); return new Response(b).arrayBuffer().then((x) => x.byteLength); })()",
      "(() => { const b = new Uint8Array(8); structuredClone(b.buffer, { transfer: [b.buffer] }); return store.put('detached', b); })()",
      "(() => { const b = new ArrayBuffer(8, { maxByteLength: 16 }); const v = new Uint8Array(b, 4); b.resize(2); return new Response(v).arrayBuffer().then((x) => x.byteLength); })()",
      "(() => { const b = new Uint8Array(8); const d = crypto.subtle.digest('SHA-256', b); structuredClone(b.buffer, { transfer: [b.buffer] }); return d.then((x) => x.byteLength); })()",
    ]),
    outcome: "ok",
  },
  {
    name: "a header of 1 MiB in the answer",
    program: "() => new Response('x', { headers: { 'x-large': 'x'.repeat(1_048_576) } })",
    outcome: "error",
  },
  {
    name: "100,000 headers in the answer",
    program:
      "() => { const h = new Headers(); for (let i = 0; i < 100_000; i++) h.append('x-' + i, 'v'); return new Response('x', { headers: h }); }",
    outcome: ["error", "cpu-exceeded"],
  },
  {
    name: "headers the connection owns in the answer",
    program:
      "() => new Response('framed', { headers: { connection: 'upgrade', 'transfer-encoding': 'gzip, chunked', 'content-length': '3', upgrade: 'h2c', te: 'trailers', 'keep-alive': 'timeout=9999', 'x-kap-run-id': 'forged', 'x-kapstone-outcome': 'timeout', 'x-request-id': 'forged' } })",
    outcome: "ok",
    expect({ answer, run }) {
      expect(answer?.text).toBe("framed");
      expect(answer?.headers["x-kap-run-id"]).toBe(run?.id);
      expect(answer?.headers["x-kapstone-outcome"]).toBeUndefined();
      expect(answer?.headers["x-request-id"]).not.toContain("forged");
    },
  },
  poisoned(
    "Object.prototype poisoned",
    "Object.prototype.get = () => 'evil'; Object.prototype.set = () => {}; Object.prototype.headers = { evil: '1' }; Object.prototype.then = undefined;",
  ),
  poisoned(
    "Object.prototype with setters for indexes",
    "for (let i = 0; i < 50; i++) Object.defineProperty(Object.prototype, i, { set() { throw new Error('trap'); }, get() { return 'evil'; }, configurable: true });",
    ["ok", "error"],
  ),
  {
    name: "toJSON on every prototype",
    program:
      "() => { Object.prototype.toJSON = Array.prototype.toJSON = String.prototype.toJSON = () => 'evil'; return new Response('x', { headers: { a: 'b' } }); }",
    breaksItself: true,
    outcome: ["ok", "error"],
  },
  poisoned(
    "Array.prototype poisoned",
    "Array.prototype.push = () => { throw new Error('trap'); }; Array.prototype.map = () => []; Array.prototype[Symbol.iterator] = function* () { yield 'evil'; }; Array.prototype.join = () => 'evil';",
    "ok",
    true,
  ),
  poisoned(
    "Promise poisoned",
    "Promise.prototype.then = function () { throw new Error('trap'); }; Promise.resolve = () => { throw new Error('trap'); }; Object.defineProperty(Promise, Symbol.species, { get() { throw new Error('trap'); } });",
    ["ok", "error"],
  ),
  poisoned("JSON poisoned", "JSON.parse = () => ({ evil: true }); JSON.stringify = () => 'evil';"),
  poisoned(
    "Map, Set and WeakMap poisoned",
    "for (const C of [Map, Set, WeakMap, WeakSet]) for (const k of ['get', 'set', 'has', 'add', 'delete']) C.prototype[k] = () => { throw new Error('trap'); };",
  ),
  poisoned(
    "String, Function and RegExp poisoned",
    "String.prototype.toLowerCase = () => 'evil'; String.prototype.split = () => ['evil']; Function.prototype.call = Function.prototype.apply = () => { throw new Error('trap'); }; RegExp.prototype.exec = () => { throw new Error('trap'); }; Reflect.apply = () => { throw new Error('trap'); };",
  ),
  poisoned(
    "every global replaced",
    "for (const k of ['URL', 'Headers', 'Request', 'Response', 'Promise', 'TextEncoder', 'TextDecoder', 'Uint8Array', 'ArrayBuffer', 'Error', 'JSON', 'Object', 'console2', 'setTimeout', 'queueMicrotask']) globalThis[k] = function () { throw new Error('trap ' + k); };",
  ),
  poisoned(
    "every intrinsic frozen",
    "for (const k of Object.getOwnPropertyNames(globalThis)) { try { const v = globalThis[k]; if (v && (typeof v === 'object' || typeof v === 'function')) { Object.freeze(v); if (v.prototype) Object.freeze(v.prototype); } } catch {} }",
  ),
  poisoned(
    "Error.prepareStackTrace and stackTraceLimit",
    "Error.prepareStackTrace = () => { throw new Error('trap'); }; Error.stackTraceLimit = Infinity;",
  ),
];
