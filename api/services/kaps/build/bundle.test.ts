import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { built, call, evaluate, program, refused, testBuilder } from "./test-builder.ts";

const builder = testBuilder();
beforeAll(() => builder.ready());
afterAll(() => builder.close());

describe("the bundle", () => {
  test("lists the program files with a default export and evaluates each on its first call only", async () => {
    const seen: string[] = [];
    const files = {
      "main.ts": 'import { db } from "kap"; import "./shared"; db.push("main"); export default () => 1',
      "jobs/nightly.mjs": 'import { db } from "kap"; import "../shared"; db.push("nightly"); export { default } from "../other.js"',
      "other.js": "export default () => 2",
      "shared.ts": 'import { db } from "kap"; db.push("shared")',
      "types.d.ts": "declare const x: number; export default x",
      "readme.md": "export default 1",
    };
    const result = built(await builder.build(program(files)));
    expect(result.entries).toEqual(["jobs/nightly.mjs", "main.ts", "other.js"]);
    const entries = await evaluate(result, { db: seen });
    expect(Object.keys(entries).sort()).toEqual(result.entries);
    expect(seen).toEqual([]);
    await entries["main.ts"]?.();
    await entries["main.ts"]?.();
    expect(seen).toEqual(["shared", "main"]);
    expect(await call(entries, "jobs/nightly.mjs")).toBe(2);
    expect(seen).toEqual(["shared", "main", "nightly"]);
  });

  test("an entry that throws while evaluating throws on every call and leaves the others alone", async () => {
    const result = built(
      await builder.build(program({ "main.ts": 'throw new Error("early"); export default 1', "b.ts": "export default () => 2" })),
    );
    const entries = await evaluate(result);
    await expect(entries["main.ts"]?.()).rejects.toThrow("early");
    await expect(entries["main.ts"]?.()).rejects.toThrow("early");
    expect(await call(entries, "b.ts")).toBe(2);
  });

  test("is strict code and keeps no import, export or import.meta", async () => {
    const result = built(
      await builder.build(program({ "main.ts": "export default function () { return [this, import.meta.url, import.meta.nothing] }" })),
    );
    expect(result.bundle).not.toMatch(/import\.meta|\bexport\b|\bimport\b/);
    expect(await call(await evaluate(result), "main.ts")).toEqual([undefined, "file:///kap/", undefined]);
  });

  test("a module name that is only known at run time rejects", async () => {
    const result = built(
      await builder.build(program({ "main.ts": "export default (name: string) => import(name).catch((error) => error.message)" })),
    );
    expect(await call(await evaluate(result), "main.ts", "node:fs")).toMatch(/not supported/);
  });

  test("is byte for byte the same in another builder, whatever the order of the files", async () => {
    const files = {
      "main.tsx": 'import { a } from "./lib/a"; import t from "./t.txt"; export default () => a + t',
      "lib/a.ts": "export const a: number = 1",
      "t.txt": "ü",
      "b.ts": "export default 1",
    };
    const first = built(await builder.build(program(files)));
    const other = testBuilder();
    const reversed = program(Object.fromEntries(Object.entries(files).reverse()), { main_file: "main.tsx" });
    const second = await other
      .build(reversed)
      .then(built)
      .finally(() => other.close());
    // A code cache is V8's own business: the same bundle may have another.
    expect({ ...second, code_cache: null }).toEqual({ ...first, code_cache: null });
    expect(first.bundle_sha256).toMatch(/^[0-9a-f]{64}$/);
  });

  test("its source map leads back to the kap's own lines", async () => {
    const result = built(
      await builder.build(
        program({
          "main.ts": 'import { fail } from "./lib/fail";\nexport default () => fail()',
          "lib/fail.ts": "type A = 1;\n\nexport function fail(): A {\n  throw new Error('here');\n}\n",
        }),
      ),
    );
    const { SourceMap } = await import("node:module");
    const entries = await evaluate(result);
    const error = (await call(entries, "main.ts").catch((thrown: unknown) => thrown)) as Error;
    const [, line, column] = /kap\.js:(\d+):(\d+)/.exec(error.stack ?? "") ?? [];
    const map = JSON.parse(result.bundle_map);
    const origin = new SourceMap(map).findEntry(Number(line) - 1, Number(column) - 1);
    expect(origin).toMatchObject({ originalSource: "lib/fail.ts", originalLine: 3 });
    expect(map.sourcesContent).toBeUndefined();
  });
});

describe("types", () => {
  test("errors come back as diagnostics with their place, and refuse a strict save", async () => {
    const files = { "main.ts": 'import { db } from "kap";\nconst n: number = "a";\nexport default () => db.qeury(n);\n' };
    const lenient = built(await builder.build(program(files)));
    expect(lenient.diagnostics).toEqual([
      { file: "main.ts", line: 2, column: 7, severity: "error", message: "Type 'string' is not assignable to type 'number'." },
      { file: "main.ts", line: 3, column: 25, severity: "error", message: expect.stringContaining("qeury") },
    ]);
    const strict = await builder.build(program(files, { strict: true }));
    expect(refused(strict).map(({ line }) => line)).toEqual([2, 3]);
  });

  test("a correct program has none, strict or not", async () => {
    const files = {
      "main.ts":
        'import { db, secrets } from "kap";\nimport sql from "./q.sql";\nimport raw from "./b.json" with { type: "text" };\nimport config from "./a.json";\nimport { twice } from "./lib";\nexport default {\n  async fetch(request: Request, ctx: KapContext): Promise<Response> {\n    ctx.waitUntil(db.query(sql, [new URL(request.url).pathname]));\n    console.log(raw.length, secrets.get("A"));\n    return Response.json({ a: twice(config.a) });\n  },\n};\n',
      "lib/index.ts": "export const twice = (n: number): number => n * 2;\n",
      "q.sql": "select $1",
      "a.json": '{"a": 1}',
      "b.json": "[]",
    };
    const result = await builder.build(program(files, { strict: true }));
    expect(result).toMatchObject({ ok: true, diagnostics: [] });
  });

  test("a handler may leave its parameters without types", async () => {
    const main =
      'import { db } from "kap";\nexport default {\n  async fetch(request, ctx) {\n    const { rows } = await db.query("select 1 as n");\n    await new Promise((resolve) => setTimeout(resolve, 1));\n    return Response.json({ n: rows[0].n, url: request.url });\n  },\n  async email(message: { from; to; subject }, ctx: KapContext) {},\n};\n';
    const result = await builder.build(program({ "main.ts": main }, { strict: true }));
    expect(result).toMatchObject({ ok: true, diagnostics: [] });
  });

  test("nothing of the browser's page or of Node is known, and nothing of the last build", async () => {
    await builder.build(program({ "main.ts": "export default 1", "global.d.ts": "declare const leaked: number;" }));
    const result = built(await builder.build(program({ "main.ts": "export default () => [document, process, Buffer, leaked]" })));
    expect(result.diagnostics.map(({ message }) => /'(\w+)'/.exec(message)?.[1])).toEqual(["document", "process", "Buffer", "leaked"]);
  });

  test("a main file without a default export is built, with a remark", async () => {
    const result = built(await builder.build(program({ "main.ts": "export const a = 1" })));
    expect(result.entries).toEqual([]);
    expect(result.diagnostics).toEqual([
      { file: "main.ts", line: 1, column: 1, severity: "warning", message: expect.stringContaining("no default export") },
    ]);
  });
});

test("a warm save is quick (printed, not judged)", async () => {
  const lines = Array.from(
    { length: 200 },
    (_, n) => `export const f${n} = (a: number) => ({ n: a + ${n}, at: new Date().toISOString() });`,
  ).join("\n");
  const times: number[] = [];
  for (let round = 0; round < 15; round++) {
    const started = performance.now();
    built(
      await builder.build(
        program({
          "main.ts": `import { f1 } from "./lib";\nexport default { fetch: () => Response.json(f1(${round})) };\n`,
          "lib.ts": lines,
        }),
      ),
    );
    times.push(performance.now() - started);
  }
  times.sort((a, b) => a - b);
  console.log(`warm build with type check: median ${times[7]?.toFixed(0)} ms, worst ${times[14]?.toFixed(0)} ms`);
  expect(times).toHaveLength(15);
});
