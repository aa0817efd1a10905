import { afterEach, describe, expect, test } from "vitest";
import { conformance } from "./testing-cases.ts";
import { TestHost, type TestHostOptions } from "./testing-host.ts";

const hosts: TestHost[] = [];
afterEach(() => {
  for (const host of hosts.splice(0)) host.close();
});
async function program(code: string, options?: TestHostOptions): Promise<TestHost> {
  const host = await TestHost.program(code, options);
  hosts.push(host);
  return host;
}

describe("code from text", () => {
  conformance({
    "eval and every function constructor throw": [
      `const refused = []; const F = Function;
       for (const make of [
         () => eval("1"), () => (0, eval)("1"), () => globalThis.eval("1"), () => F("return 1")(), () => new F("return 1"), () => Reflect.construct(F, ["return 1"]),
         () => (() => {}).constructor("return 1"), () => (async () => {}).constructor("return 1"), () => (function* () {}).constructor("yield 1"),
         () => (async function* () {}).constructor("yield 1"), () => class {}.constructor("return 1"), () => Array.prototype.push.constructor("return 1"),
         () => F.prototype.constructor("return 1"), () => Object.getPrototypeOf(F).constructor("1"), () => console.log.constructor("1"), () => fetch.constructor("1"),
         () => F.bind(null, "return 1")(), () => Reflect.apply(F, null, ["1"]), () => new (class extends F {})("return 1"), () => Object.getPrototypeOf((async () => {}).constructor)("1"),
       ]) refused.push(await caught(make));
       return [...new Set(refused)];`,
      ["EvalError"],
    ],
    "functions are still functions": [
      `return [(() => {}) instanceof Function, Function.prototype === Object.getPrototypeOf(() => {}), (async () => {}) instanceof (async () => {}).constructor, Function.name];`,
      [true, true, true, "Function"],
    ],
    "import() reaches nothing": [`return (await caught(() => import("node:fs"))) !== "no error";`, true],
  });
});

describe("clocks and shared memory", () => {
  conformance({
    "no shared memory, no waiting": [
      `return [typeof SharedArrayBuffer, typeof Atomics.wait, typeof Atomics.waitAsync, typeof Atomics.notify];`,
      ["undefined", "undefined", "undefined", "undefined"],
    ],
    "every clock counts in whole milliseconds": [
      `const readings = []; for (let i = 0; i < 200; i++) { for (let j = 0; j < 1000; j++); readings.push(performance.now(), Date.now(), performance.timeOrigin, new Event("x").timeStamp, Number(Temporal.Now.instant().epochNanoseconds % 1000000n)); } return readings.every((x, i) => i % 5 === 4 ? x === 0 : Number.isInteger(x));`,
      true,
    ],
  });
});

describe("nothing of the host is reachable", () => {
  test("no object in sight holds a host callback", async () => {
    const host = await program(`() => new Response()`);
    const found = host.evaluate(`
      const seen = new Set(); const queue = [globalThis]; const odd = [];
      while (queue.length) {
        const value = queue.pop();
        if (value === null || (typeof value !== "object" && typeof value !== "function") || seen.has(value)) continue;
        seen.add(value);
        queue.push(Object.getPrototypeOf(value));
        for (const key of Reflect.ownKeys(value)) {
          if (/^(startTimer|stopTimer|settle|sync|forget|rejection|__host|__guest|__boot|__install|ivm)$/.test(String(key))) odd.push(String(key));
          const own = Object.getOwnPropertyDescriptor(value, key);
          for (const part of [own.value, own.get, own.set]) queue.push(part);
        }
      }
      return odd.join() + "|" + (seen.size > 1000);`);
    expect(found).toBe("|true");
  });

  test("stack frames give no function, no this and no path of the host", async () => {
    const host = await program(`async () => {
      Error.stackTraceLimit = Infinity;
      const taken = []; const texts = [];
      Error.prepareStackTrace = (error, sites) => { for (const site of sites) { taken.push(site.getThis(), site.getFunction()); texts.push(String(site.getFileName())); } return String(error); };
      void new Error("x").stack; void [1].map(() => new Error("y").stack); new Headers({ get a() { void new Error("z").stack; return "1"; } });
      try { await crypto.subtle.digest("MD5", new Uint8Array()); } catch (e) { texts.push(String(e.stack)); }
      try { new URL("x"); } catch (e) { texts.push(String(e.stack)); }
      return Response.json([taken.filter((x) => x !== undefined && x !== globalThis).length, texts]);
    }`);
    const [taken, texts] = JSON.parse((await host.request()).body.toString()) as [number, string[]];
    expect(taken).toBe(0);
    expect(texts.filter((text) => /\/|file:|node:/.test(text.replaceAll("kapstone:guest", "")))).toEqual([]);
  });

  test("caller and arguments of the kit's functions are out of reach", async () => {
    const host = await program(
      `() => { const seen = []; const probe = { get a() { try { seen.push(probe.caller ?? null, typeof arguments.callee); } catch (e) { seen.push(e.name); } return "1"; } }; new Headers(probe); return Response.json(seen); }`,
    );
    expect((await host.request()).body.toString()).toBe('["TypeError"]');
  });
});

describe("a program that spoils the builtins", () => {
  const pollution = `
    const boom = function () { throw new Error("spoiled"); };
    JSON.parse = JSON.stringify = boom; Promise.resolve = boom; Promise.prototype.then = boom; Promise.prototype.catch = boom;
    Array.prototype.push = Array.prototype.map = Array.prototype.join = Array.prototype[Symbol.iterator] = boom;
    Map.prototype.get = Map.prototype.set = Map.prototype.delete = Map.prototype.forEach = boom; String.prototype.slice = String.prototype.charCodeAt = boom;
    String.prototype.startsWith = String.prototype.toLowerCase = RegExp.prototype.exec = RegExp.prototype.test = boom;
    Function.prototype.call = Function.prototype.apply = Function.prototype.bind = boom; Reflect.apply = Reflect.ownKeys = boom; Object.defineProperty = Object.keys = boom;
    Uint8Array.prototype.set = Uint8Array.prototype.subarray = Uint8Array.prototype.slice = ArrayBuffer.prototype.slice = boom;
    Object.defineProperty === boom;
  `;

  test("still answers its requests, and other runs go on", async () => {
    const host = await program(`async (request) => {
      if (request.url.endsWith("spoil")) { ${pollution} return new Response("spoiled", { status: 201 }); }
      return new Response("héllo " + request.method + " " + (await request.text()), { headers: { "x-a": "1" } });
    }`);
    const first = await host.request({ url: "https://a.kaps.example/spoil" });
    expect([first.status, first.body.toString(), first.outcome]).toEqual([201, "spoiled", "done"]);
    const second = await host.request({ body: "body" });
    expect([second.body.toString(), second.headers, second.detail]).toEqual([
      "héllo POST body",
      [
        ["x-a", "1"],
        ["content-type", "text/plain;charset=UTF-8"],
      ],
      "",
    ]);
  });

  test("still fails cleanly", async () => {
    const host = await program(`async () => { ${pollution} throw new RangeError("why"); }`);
    const result = await host.request();
    expect(result.outcome).toBe("error");
    expect(result.detail).not.toBe("");
  });

  test("still has its timers and host calls", async () => {
    const host = await program(
      `async () => { ${pollution} await new Promise((resolve) => setTimeout(resolve, 1)); const { rows } = await db.query("select 1"); return new Response(String(rows.length)); }`,
      { query: () => ({ rows: [1, 2], row_count: 2 }) },
    );
    const result = await host.request();
    expect([result.body.toString(), result.detail]).toEqual(["2", ""]);
  });

  test("setters and getters on Object.prototype see nothing of the bridge", async () => {
    const host = await program(`async (request, ctx) => {
      if (!globalThis.leaks) {
        globalThis.leaks = [];
        for (const key of ["ok", "text", "bytes", "resolve", "runKey", "callback", "then", "host", "respond", "op", "user", "source", "stream", "status", "headers", "body"]) {
          Object.defineProperty(Object.prototype, key, { configurable: true, get() { return undefined; }, set(value) { globalThis.leaks.push(key); Object.defineProperty(this, key, { value, writable: true, configurable: true, enumerable: true }); } });
        }
        for (const key of [0, 1, 2]) Object.defineProperty(Array.prototype, key, { configurable: true, get() { return undefined; }, set(value) { globalThis.leaks.push(typeof value === "function" ? value : key); Object.defineProperty(this, key, { value, writable: true, configurable: true, enumerable: true }); } });
      }
      await new Promise((resolve) => setTimeout(resolve, 1));
      await db.query("select 1");
      return new Response(String(globalThis.leaks.filter((x) => typeof x === "function").length));
    }`);
    const result = await host.request();
    expect([result.outcome, result.body.toString()]).toEqual(["done", "0"]);
  });

  test("toJSON on the prototypes changes no header on the wire", async () => {
    const host = await program(
      `() => { String.prototype.toJSON = Array.prototype.toJSON = Object.prototype.toJSON = () => "forged"; return new Response("x", { headers: { a: "b" } }); }`,
    );
    expect((await host.request()).headers).toEqual([
      ["a", "b"],
      ["content-type", "text/plain;charset=UTF-8"],
    ]);
  });

  test("a spoiled RegExp lets no bad header through", async () => {
    const host = await program(
      `() => { RegExp.prototype.test = RegExp.prototype.exec = () => true; const out = []; for (const [n, v] of [["a\\nb", "x"], ["a", "x\\r\\ny"]]) { try { new Headers([[n, v]]); out.push("passed"); } catch (e) { out.push(e.name); } } return Response.json(out); }`,
    );
    expect((await host.request()).body.toString()).toBe('["TypeError","TypeError"]');
  });

  test("a Response with spoiled getters is sent as it was made", async () => {
    const host = await program(
      `() => { const r = new Response("real", { status: 202 }); Object.defineProperty(r, "status", { get() { throw 1; } }); Object.defineProperty(r, "headers", { value: 5 }); Object.setPrototypeOf(r, null); return r; }`,
    );
    const result = await host.request();
    expect([result.status, result.body.toString(), result.outcome]).toEqual([202, "real", "done"]);
  });

  test("hostile thenables and proxies fail their own run only", async () => {
    const cases = [
      `() => ({ get then() { throw new Error("then"); } })`,
      `() => ({ then(resolve, reject) { resolve(5); reject(6); } })`,
      `() => new Proxy({}, { get() { throw new Error("trap"); } })`,
      `() => new Proxy(new Response("x"), {})`,
      `() => { throw new Proxy({}, { get() { throw 1; }, getPrototypeOf() { throw 2; } }); }`,
      `() => { throw { get stack() { throw 1; }, toString() { throw 2; } }; }`,
      `() => { const e = new Error("x"); Object.defineProperty(e, "stack", { value: { toString() { throw 1; } } }); Object.defineProperty(e, "message", { get() { throw 2; } }); throw e; }`,
      `() => { throw Object.assign(new Error("x".repeat(1e6)), { big: "y".repeat(1e6) }); }`,
      `() => { throw null; }`,
      `() => { throw undefined; }`,
      `() => { throw Symbol("s"); }`,
    ];
    for (const code of cases) {
      const result = await (await program(code)).request();
      expect([code, result.outcome]).toEqual([code, "error"]);
      expect(result.detail.length).toBeGreaterThan(0);
      expect(result.detail.length).toBeLessThanOrEqual(16_384);
    }
  });

  test("deep recursion is an error of the run, and the next run works", async () => {
    const host = await program(
      `(request) => { const deep = () => deep(); if (request.url.endsWith("deep")) deep(); return new Response("fine"); }`,
    );
    expect((await host.request({ url: "https://a.kaps.example/deep" })).detail).toMatch(/^RangeError/);
    expect((await host.request()).body.toString()).toBe("fine");
  });
});
