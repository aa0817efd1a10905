import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { built, call, evaluate, program, refused, testBuilder } from "./test-builder.ts";

const builder = testBuilder();
beforeAll(() => builder.ready());
afterAll(() => builder.close());

describe("what a program may import", () => {
  const programs: [title: string, files: Record<string, string>, answer: unknown][] = [
    [
      "a relative file by its full name",
      { "main.ts": 'import { a } from "./a.ts"; export default () => a', "a.ts": "export const a = 1" },
      1,
    ],
    [
      "a relative file without extension",
      { "main.ts": 'import { a } from "./a"; export default () => a', "a.tsx": "export const a = 2" },
      2,
    ],
    [
      "a TypeScript file by the .js name it would be emitted as",
      { "main.ts": 'import { a } from "./a.js"; export default () => a', "a.ts": "export const a = 3" },
      3,
    ],
    [
      "a folder by its index file",
      {
        "main.ts": 'import { a } from "./lib"; export default () => a',
        "lib/index.ts": 'export * from "./deep/a"',
        "lib/deep/a.ts": "export const a = 4",
      },
      4,
    ],
    ["its own folder from below", { "lib/main.ts": 'import { a } from ".."; export default () => a', "index.js": "export const a = 5" }, 5],
    ["JSON", { "main.ts": 'import config from "./config.json"; export default () => config.a.b', "config.json": '{"a":{"b":6}}' }, 6],
    [
      "JSON behind an attribute, whatever its extension",
      { "main.ts": 'import data from "./data.conf" with { type: "json" }; export default () => data.a', "data.conf": '{"a":7}' },
      7,
    ],
    ["SQL as text", { "main.ts": 'import sql from "./q.sql"; export default () => sql', "q.sql": "select 'ü'" }, "select 'ü'"],
    [
      "HTML, Markdown, CSS and CSV as text",
      {
        "main.ts":
          'import a from "./a.html"; import b from "./b.md"; import c from "./c.css"; import d from "./d.csv"; export default () => [a, b, c, d].join()',
        "a.html": "<p>",
        "b.md": "# b",
        "c.css": "p{}",
        "d.csv": "1;2",
      },
      "<p>,# b,p{},1;2",
    ],
    [
      "a program as text behind an attribute",
      { "main.ts": 'import source from "./a.js" with { type: "text" }; export default () => source', "a.js": "not a program (" },
      "not a program (",
    ],
    [
      "one file both as JSON and as text",
      {
        "main.ts": 'import a from "./a.json"; import b from "./a.json" with { type: "text" }; export default () => [a.x, b].join()',
        "a.json": '{"x":1}',
      },
      '1,{"x":1}',
    ],
    ["a file at run time", { "main.ts": 'export default async () => (await import("./a")).a', "a.ts": "export const a = 8" }, 8],
    ["CommonJS files", { "main.js": 'const a = require("./a.cjs"); export default () => a.a', "a.cjs": "exports.a = 9" }, 9],
    [
      "a file whose name starts with two dots",
      { "main.ts": 'import { a } from "./..a"; export default () => a', "..a.ts": "export const a = 10" },
      10,
    ],
    [
      "the platform",
      {
        "main.ts":
          'import { db, secrets } from "kap"; import * as kap from "kap"; export default () => [db.name, secrets.name, kap.store.name].join()',
      },
      "db,secrets,store",
    ],
    ["its own address", { "lib/main.ts": "export default () => new URL('./a', import.meta.url).protocol" }, "file:"],
    [
      "what it awaits at the top level",
      { "main.ts": 'import { a } from "./a"; export default () => a', "a.ts": "export const a = await Promise.resolve(11)" },
      11,
    ],
    [
      "types only, which leave no trace",
      {
        "main.ts": 'import type { A } from "./missing-at-run-time.d.ts"; export default (): A => 12',
        "missing-at-run-time.d.ts": "export type A = number",
      },
      12,
    ],
    [
      "enums, decorators and other syntax that Node alone would not run",
      {
        "main.ts":
          "enum E { A = 13 } const twice = (f: any, _: unknown) => function (this: unknown) { return f.call(this) * 1 }; class C { @twice a() { return E.A } } export default () => new C().a()",
      },
      13,
    ],
    [
      "circles",
      {
        "main.ts": 'import { b } from "./b"; export const a = 14; export default () => b()',
        "b.ts": 'import { a } from "./main"; export const b = () => a',
      },
      14,
    ],
  ];
  const kap = { db: { name: "db" }, store: { name: "store" }, secrets: { name: "secrets" } };
  test.for(programs)("%s", async ([, files, answer]) => {
    const result = built(await builder.build(program(files)));
    expect(await call(await evaluate(result, kap, { URL }), Object.keys(files)[0] ?? "")).toEqual(answer);
  });
});

describe("what is refused, and where", () => {
  const ok = "export default () => 1\n";
  const refusals: [title: string, files: Record<string, string>, place: [file: string, line: number, column: number], message: RegExp][] = [
    ["a syntax error", { "main.ts": "export default () => {\n  const ü = 'é', = 1\n}" }, ["main.ts", 2, 18], /Expected identifier/],
    ["a syntax error in a file that nothing imports", { "main.ts": ok, "b.tsx": "\nconst a: = 1" }, ["b.tsx", 2, 10], /Unexpected "="/],
    [
      "broken JSON",
      { "main.ts": 'import a from "./a.json"; export default () => a', "a.json": '{\n  "a": }' },
      ["a.json", 2, 8],
      /Unexpected "}"/,
    ],
    [
      "broken JSON that only an unused module imports",
      { "main.ts": ok, "b.ts": 'import a from "./a.json"; export const b = a', "a.json": "{" },
      ["a.json", 1, 2],
      /Expected/,
    ],
    [
      "a missing file",
      { "main.ts": `${ok}import { a } from "./missing"\nconsole.log(a)` },
      ["main.ts", 2, 19],
      /"\.\/missing" is not among the files/,
    ],
    [
      "a missing export",
      { "main.ts": 'import { b } from "./a"; export default () => b', "a.ts": "export const a = 1" },
      ["main.ts", 1, 10],
      /No matching export in "a.ts" for import "b"/,
    ],
    [
      "a missing export of the platform",
      { "main.ts": 'import { database } from "kap"; export default () => database' },
      ["main.ts", 1, 10],
      /No matching export .* "database"/,
    ],
    ["a path out of the kap", { "main.ts": 'import a from "../a"; export default () => a' }, ["main.ts", 1, 15], /outside of the kap/],
    [
      "an absolute path",
      { "main.ts": 'import a from "/etc/passwd" with { type: "text" }; export default () => a' },
      ["main.ts", 1, 15],
      /absolute path/,
    ],
    [
      "a Node module",
      { "main.ts": 'import fs from "node:fs"; export default () => fs' },
      ["main.ts", 1, 16],
      /"node:fs" is a module of Node/,
    ],
    [
      "a Node module without its prefix",
      { "main.ts": 'export default () => import("fs/promises")' },
      ["main.ts", 1, 29],
      /"fs\/promises" is a module of Node/,
    ],
    [
      "a Node module in a file that nothing imports",
      { "main.ts": ok, "lib/b.ts": 'import { spawn } from "child_process"; export const b = spawn' },
      ["lib/b.ts", 1, 23],
      /module of Node/,
    ],
    [
      "a package without a version",
      { "main.ts": 'import { z } from "zod"; export default () => z' },
      ["main.ts", 1, 19],
      /"zod" has no pinned version.*"npm:zod@1\.2\.3"/,
    ],
    [
      "npm: without a version",
      { "main.ts": 'import { z } from "npm:zod"; export default () => z' },
      ["main.ts", 1, 19],
      /has no version.*"npm:zod@1\.2\.3"/,
    ],
    [
      "npm: with a range",
      { "main.ts": 'import { z } from "npm:zod@^4.1.0/mini"; export default () => z' },
      ["main.ts", 1, 19],
      /"npm:zod@4\.1\.0\/mini"/,
    ],
    [
      "npm: with a tag",
      { "main.ts": 'import { z } from "npm:zod@latest"; export default () => z' },
      ["main.ts", 1, 19],
      /"latest", which can change/,
    ],
    [
      "npm: with a strange name",
      { "main.ts": 'import { z } from "npm:..@1.0.0/../x"; export default () => z' },
      ["main.ts", 1, 19],
      /not of the form|Pin|not known|npm has no/,
    ],
    [
      "a range in package.json",
      { "main.ts": ok, "package.json": '{\n  "dependencies": {\n    "zod": "^4.1.0"\n  }\n}' },
      ["package.json", 3, 5],
      /"zod" at "\^4\.1\.0".*for example "4\.1\.0"/,
    ],
    [
      "a git address in package.json",
      { "main.ts": ok, "package.json": '{"dependencies":{"zod":"github:a/b"}}' },
      ["package.json", 1, 18],
      /not one exact version/,
    ],
    ["unreadable package.json", { "main.ts": ok, "package.json": "{" }, ["package.json", 1, 1], /not valid JSON/],
    ["an address", { "main.ts": 'import a from "https://example.com/a.js"; export default () => a' }, ["main.ts", 1, 15], /is an address/],
    [
      "an unknown import attribute",
      { "main.ts": 'import a from "./a.json" with { type: "css" }; export default () => a', "a.json": "1" },
      ["main.ts", 1, 15],
      /import attribute/,
    ],
    ["JSX without its package", { "main.tsx": "export default () => <p>a</p>" }, ["main.tsx", 1, 22], /JSX needs a package.*pin "preact"/],
  ];
  test.for(refusals)("%s", async ([, files, [file, line, column], message]) => {
    const [error] = refused(await builder.build(program(files)));
    expect(error).toEqual({ file, line, column, message: expect.stringMatching(message) });
  });

  test("all problems of all files come at once, in file order", async () => {
    const errors = refused(
      await builder.build(program({ "main.ts": 'import "./x"; import "node:fs"; export default 1', "a.ts": 'import "zod"' })),
    );
    expect(errors.map(({ file, column }) => `${file}:${column}`)).toEqual(["a.ts:8", "main.ts:8", "main.ts:22"]);
  });
});

describe("paths", () => {
  const bad = [
    "/main.ts",
    "../main.ts",
    "a/../main.ts",
    "a/./main.ts",
    "a//main.ts",
    "a/",
    "a\0.ts",
    "a\\b.ts",
    "",
    "a\n.ts",
    `${"a".repeat(600)}.ts`,
    "a\ud800.ts",
  ];
  test.for(bad)("%j is refused", async (path) => {
    const errors = refused(await builder.build(program({ "main.ts": "export default 1", [path]: "" })));
    expect(errors).toEqual([{ file: path, line: 1, column: 1, message: expect.stringContaining("cannot be a file path") }]);
  });

  test("the same path twice, a missing main file and a main file that is no program are refused", async () => {
    const file = { path: "main.ts", content: "export default 1" };
    expect(refused(await builder.build({ ...program({}), files: [file, file] }))[0]?.message).toMatch(/there twice/);
    expect(refused(await builder.build({ ...program({}), files: [file], main_file: "other.ts" }))[0]?.message).toMatch(
      /not among the files/,
    );
    expect(refused(await builder.build(program({ "readme.md": "" })))[0]?.message).toMatch(/must be a program/);
  });

  test("200 files build, 201 do not", async () => {
    const files = Object.fromEntries(Array.from({ length: 201 }, (_, n) => [`f${n}.ts`, `export default () => ${n}`]));
    expect(refused(await builder.build(program(files)))[0]?.message).toMatch(/at most 200 files; this one has 201/);
    delete files["f200.ts"];
    expect(built(await builder.build(program(files))).entries).toHaveLength(200);
  });

  test("names that mean something to JavaScript or to the bundler are names like others", async () => {
    const names = [
      "__proto__.ts",
      "constructor.ts",
      "a b.ts",
      "ü.ts",
      "kap-table.ts",
      "[id].ts",
      "a?b.ts",
      "a#b.ts",
      "node_modules/x/index.ts",
      "a*b.ts",
    ];
    const result = built(await builder.build(program(Object.fromEntries(names.map((name, n) => [name, `export default () => ${n}`])))));
    const entries = await evaluate(result);
    for (const [n, name] of names.entries()) expect(await call(entries, name)).toBe(n);
  });
});
