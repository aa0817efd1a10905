import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { built, call, evaluate, program, refused, testBuilder } from "./test-builder.ts";

/** Real packages from the npm registry that this machine is set up for. Each is bundled, type-checked and then made to work. */
const builder = testBuilder();
beforeAll(() => builder.ready());
afterAll(() => builder.close());

const web = {
  URL,
  URLSearchParams,
  Request,
  Response,
  Headers,
  TextEncoder,
  TextDecoder,
  crypto,
  CryptoKey,
  ReadableStream,
  atob,
  btoa,
  setTimeout,
  structuredClone,
  Uint8Array,
  queueMicrotask,
};

interface Work {
  files: Record<string, string>;
  answer: unknown;
}

const packages: Record<string, Work> = {
  zod: {
    files: {
      "main.ts":
        'import { z } from "npm:zod@4.1.0";\nconst Hit = z.object({ n: z.coerce.number().int() });\nexport default (input: unknown): number => Hit.parse(input).n;\n',
    },
    answer: 7,
  },
  "date-fns": {
    files: {
      "main.ts":
        'import { addDays, formatISO } from "npm:date-fns@4.1.0";\nexport default () => formatISO(addDays(new Date(2024, 1, 28), 2), { representation: "date" });\n',
    },
    answer: "2024-03-01",
  },
  "lodash-es": {
    files: {
      "main.ts":
        'import { chunk, groupBy } from "lodash-es";\nimport sortBy from "lodash-es/sortBy.js";\nexport default () => JSON.stringify([chunk([1, 2, 3], 2), groupBy([1, 2, 3], (n: number) => n % 2), sortBy([3, 1])]);\n',
      "package.json": '{"dependencies": {"lodash-es": "4.17.21", "@types/lodash-es": "4.17.12"}}',
    },
    answer: '[[[1,2],[3]],{"0":[2],"1":[1,3]},[1,3]]',
  },
  hono: {
    files: {
      "main.tsx":
        '/** @jsxImportSource hono/jsx */\nimport { Hono } from "hono";\nimport { validator } from "hono/validator";\nconst app = new Hono();\napp.get("/hi/:name", validator("query", (value) => value), (c) => c.html(<p title="a&b">{c.req.param("name")}</p>));\nexport default async () => (await app.request("/hi/ada")).text();\n',
      "package.json": '{"dependencies": {"hono": "4.6.14"}}',
    },
    answer: '<p title="a&amp;b">ada</p>',
  },
  "preact-render-to-string": {
    files: {
      "main.tsx":
        'import { render } from "preact-render-to-string";\nimport { useState } from "preact/hooks";\nfunction Counter({ from }: { from: number }) {\n  const [n] = useState(from);\n  return <b class="n">{n}</b>;\n}\nexport default () => render(<Counter from={3} />);\n',
      "package.json": '{"dependencies": {"preact": "10.25.0", "preact-render-to-string": "6.5.11"}}',
    },
    answer: '<b class="n">3</b>',
  },
  marked: {
    files: {
      "main.ts":
        'import { marked } from "npm:marked@15.0.4";\nimport text from "./page.md";\nexport default () => marked.parse(text, { async: false });\n',
      "page.md": "# Hi\n",
    },
    answer: "<h1>Hi</h1>\n",
  },
  nanoid: {
    files: { "main.ts": 'import { nanoid } from "npm:nanoid@5.0.9";\nexport default () => nanoid(30).length;\n' },
    answer: 30,
  },
  jose: {
    files: {
      "main.ts":
        'import { SignJWT, jwtVerify } from "npm:jose@5.9.6";\nconst key = new TextEncoder().encode("0123456789abcdef0123456789abcdef");\nexport default async () => {\n  const token = await new SignJWT({ n: 1 }).setProtectedHeader({ alg: "HS256" }).sign(key);\n  return (await jwtVerify(token, key)).payload["n"];\n};\n',
    },
    answer: 1,
  },
  papaparse: {
    files: {
      "main.ts":
        'import Papa from "papaparse";\nimport table from "./t.csv";\nexport default () => JSON.stringify(Papa.parse(table, { header: true, dynamicTyping: true }).data);\n',
      "t.csv": 'a,b\n1,"x,y"',
      "package.json": '{"dependencies": {"papaparse": "5.4.1"}}',
    },
    answer: '[{"a":1,"b":"x,y"}]',
  },
  handlebars: {
    files: {
      "main.ts":
        'import Handlebars from "npm:handlebars@4.7.8";\nimport page from "./page.hbs";\nexport default () => Handlebars.compile(page)({ names: ["a", "<b>"] });\n',
      "page.hbs": "{{#each names}}{{this}};{{/each}}",
    },
    answer: "a;&lt;b&gt;;",
  },
};

describe("popular packages do real work in a bundle", () => {
  test.for(Object.entries(packages))("%s", { timeout: 120_000 }, async ([, { files, answer }]) => {
    const started = performance.now();
    const first = built(await builder.build(program(files)));
    const cold = performance.now() - started;
    const again = performance.now();
    const result = built(await builder.build(program(files)));
    console.log(
      `first ${cold.toFixed(0)} ms, again ${(performance.now() - again).toFixed(0)} ms, ${(result.bundle.length / 1024).toFixed(0)} KiB, ${result.packages.map(({ name, version }) => `${name}@${version}`).join(" ")}`,
    );
    expect(result.bundle_sha256).toBe(first.bundle_sha256);
    expect(result.diagnostics.filter(({ severity }) => severity === "error")).toEqual([]);
    expect(await call(await evaluate(result, {}, web), result.entries[0]!, { n: "7" })).toEqual(answer);
    for (const { integrity } of result.packages) expect(integrity).toMatch(/^sha512-/);
  });
});

describe("packages that cannot be used", () => {
  const refusals: [title: string, source: string, message: RegExp][] = [
    [
      "one that needs Node",
      'import express from "npm:express@4.21.2"; export default () => express()',
      /The package .+@.+ needs "\w+" of Node/,
    ],
    [
      "a version that does not exist",
      'import { z } from "npm:zod@4.999.0"; export default () => z',
      /npm has no version 4\.999\.0 of "zod"/,
    ],
    [
      "a path that the package does not export",
      'import { z } from "npm:zod@4.1.0/nothing"; export default () => z',
      /zod@4\.1\.0 has nothing to import as "zod\/nothing"/,
    ],
  ];
  test.for(refusals)("%s", { timeout: 120_000 }, async ([, source, message]) => {
    const [error] = refused(await builder.build(program({ "main.ts": source })));
    expect(error?.message).toMatch(message);
  });
});
