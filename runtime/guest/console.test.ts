import { format as nodeFormat } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TestHost } from "./testing-host.ts";

/** Arguments of one console.log; each is printed by the kit and, for comparison, by Node. */
const cases: string[] = [
  `"text", 1, -0, 5n, true, null, undefined, Symbol("s")`,
  `"%s is %d years and %i, %f, %j %% %o", "Ann", 42.5, 42.9, 1.5, { a: 1 }`,
  `"%s", 5n, "rest", { a: 1 }`,
  `"100%", 5`,
  `{ a: 1, "b-c": "x", [Symbol("k")]: 2 }`,
  `[1, "two", [3, [4]]]`,
  `{ a: { b: { c: {} } } }`,
  `[1, , 3]`,
  `[undefined, null]`,
  `new Map([["a", 1], [{ b: 2 }, new Set([1, 2])]])`,
  `new Set()`,
  `new Date(0)`,
  `/x/gi`,
  `() => {}`,
  `function named() {}`,
  `class A {}`,
  `class A { x = 1 }`,
  `new (class Point { x = 1; y = 2 })()`,
  `Object.create(null)`,
  `new Uint8Array([1, 2, 3])`,
  `new ArrayBuffer(2)`,
  `Object(5)`,
  `Object("s")`,
  `"it's", ["it's", 'say "hi"', "new\\nline"]`,
  `(() => { const o = { name: "o" }; o.self = o; return o; })()`,
  `(() => { const a = [1]; a.push(a); return a; })()`,
  `{ get a() { return 1; }, set b(x) {}, get c() { return 1; }, set c(x) {} }`,
  `{ f() {}, g: async () => {}, h: function* () {} }`,
  `new WeakMap()`,
  `Array.from({ length: 3 }, (_, i) => ({ id: i, name: "item " + i }))`,
  `{ aVeryLongPropertyName: "a very long value that does not fit", another: "another long value as well" }`,
  `["a"], {}, []`,
  `NaN, Infinity`,
];

describe("console prints what Node prints", () => {
  let host: TestHost;
  beforeAll(async () => {
    const table = cases.map((args) => `() => console.log(${args})`).join(",\n");
    host = await TestHost.program(
      `(() => { const cases = [${table}]; return (request) => { cases[Number(new URL(request.url).pathname.slice(1))](); return new Response(); }; })()`,
    );
  });
  afterAll(() => host.close());

  for (const [index, args] of cases.entries()) {
    test(args, async () => {
      const { logs } = await host.request({ url: `https://x.kaps.example/${index}` });
      const values = new Function(`return [${args}]`)() as [unknown, ...unknown[]];
      expect(logs[0]?.text).toBe(nodeFormat(...values));
    });
  }
});

describe("console", () => {
  const logsOf = async (code: string) => {
    const host = await TestHost.program(`async () => { ${code}; return new Response(); }`);
    const { logs, detail } = await host.request();
    host.close();
    expect(detail).toBe("");
    return logs;
  };

  test("levels", async () => {
    const logs = await logsOf(`console.log(1); console.info(2); console.debug(3); console.warn(4); console.error(5)`);
    expect(logs.map(({ level }) => level)).toEqual(["info", "info", "debug", "warn", "error"]);
  });

  test("assert, count, group, time, table, dir", async () => {
    const logs = await logsOf(`
      console.assert(true, "no"); console.assert(false, "yes", 1); console.count(); console.count(); console.countReset(); console.count("x");
      console.group("g"); console.log("in\\nside"); console.groupEnd(); console.log("out"); console.time("t"); console.timeEnd("t"); console.timeEnd("t");
      console.table([{ a: 1, b: "x" }, { a: 2 }]); console.dir({ a: 1 }); console.trace("here")`);
    const texts = logs.map(({ text }) => text);
    expect(texts.slice(0, 7)).toEqual(["Assertion failed: yes 1", "default: 1", "default: 2", "x: 1", "g", "  in\n  side", "out"]);
    expect(texts[7]).toMatch(/^t: \d+ms$/);
    expect(texts[8]).toBe("No such label 't' for console.timeEnd()");
    expect(texts[9]).toContain("│ 0       │ 1 │ 'x' │");
    expect(texts[10]).toBe("{ a: 1 }");
    expect(texts[11]).toMatch(/^Trace: here\n.*kap:program/s);
  });

  test("errors show stack, cause and what they carry", async () => {
    const [log] = await logsOf(`const e = new RangeError("outer", { cause: new TypeError("inner") }); e.code = "E1"; console.error(e)`);
    expect(log?.text).toMatch(/^RangeError: outer\n {4}at .*kap:program/);
    expect(log?.text).toContain("code: 'E1'");
    expect(log?.text).toContain("[cause]: TypeError: inner");
  });

  test("a late name of an error is shown", async () => {
    const [log] = await logsOf(`const e = new Error("m"); e.name = "Mine"; console.log(e)`);
    expect(log?.text).toMatch(/^Mine: m\n/);
  });

  test("the kit's own objects show their attributes", async () => {
    const logs = await logsOf(
      `console.log(new URL("https://e.com/a?b=c")); console.log(new Headers({ a: "1" })); console.log(new Blob(["x"], { type: "a/b" })); console.log(Response.json({}, { status: 201 })); console.log(new Response().body)`,
    );
    const texts = logs.map(({ text }) => text);
    expect(texts[0]).toContain("pathname: '/a'");
    expect(texts[1]).toBe("Headers { a: '1' }");
    expect(texts[2]).toBe("Blob { size: 1, type: 'a/b' }");
    expect(texts[3]).toContain("status: 201");
    expect(texts[4]).toBe("null");
  });

  test("hostile values are printed without harm", async () => {
    const logs = await logsOf(`
      console.log({ get a() { throw 1; } }, new Proxy({}, { ownKeys() { throw new Error("trap"); } }), new Proxy({}, { getPrototypeOf() { throw 1; }, get() { throw 2; } }));
      const e = new Error(); Object.defineProperty(e, "stack", { get() { throw new Error("stack"); } }); console.log(e);
      console.log("%s", { toString() { throw 1; } });
      let deep = {}; for (let i = 0; i < 1e5; i++) deep = { deep }; console.log(deep);
      console.log(new Array(1e6).fill(1), "x".repeat(1e6));
      class M extends Map { get size() { throw 1; } entries() { throw 2; } } console.log(new M([[1, 2]]));
      console.log(Object.assign([], { length: 1e9 }))`);
    expect(logs).toHaveLength(7);
    for (const { text } of logs) expect(text.length).toBeLessThanOrEqual(16_384);
    expect(logs[3]?.text).toContain("[Object]");
  });
});
