import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Builder } from "./builder.ts";
import { built, call, evaluate, program, refused, testBuilder } from "./test-builder.ts";
import { startTestRegistry, type TestRegistry } from "./test-registry.ts";

let registry: TestRegistry;
let builder: Builder & { cacheDir: string };
const secretFolder = mkdtempSync(join(tmpdir(), "kapstone-test-secret-"));
const secretFile = join(secretFolder, "secret.json");

beforeAll(async () => {
  writeFileSync(secretFile, '{"secret": "host-secret"}');
  registry = await startTestRegistry();
  builder = testBuilder({ environment: registry.environment, fetchTimeoutMs: 3_000, maxPackages: 12, maxPackageMib: 8, maxTarballMib: 4 });
  await builder.ready();
});
afterAll(async () => {
  await builder?.close();
  await registry?.close();
  rmSync(secretFolder, { recursive: true });
});
beforeEach(() => registry.down(false));

async function answer(files: Record<string, string>): Promise<unknown> {
  const result = built(await builder.build(program(files)));
  return call(await evaluate(result), "main.ts");
}

describe("dependencies", () => {
  test("ranges are resolved to the highest version, which the result records with its integrity", async () => {
    await registry.publish("leaf", "1.0.0", { "index.js": "exports.leaf = '1.0.0'" });
    await registry.publish("leaf", "1.2.0", { "index.js": "exports.leaf = '1.2.0'" });
    await registry.publish("leaf", "2.0.0", { "index.js": "exports.leaf = '2.0.0'" });
    await registry.publish("tree", "1.0.0", { "index.js": "exports.leaf = require('leaf').leaf" }, { dependencies: { leaf: "^1.0.0" } });
    const result = built(await builder.build(program({ "main.ts": 'import { leaf } from "npm:tree@1.0.0"; export default () => leaf' })));
    expect(await call(await evaluate(result), "main.ts")).toBe("1.2.0");
    expect(result.packages).toEqual([
      { name: "leaf", version: "1.2.0", integrity: expect.stringMatching(/^sha512-/), bytes: expect.any(Number) },
      { name: "tree", version: "1.0.0", integrity: expect.stringMatching(/^sha512-/), bytes: expect.any(Number) },
    ]);
  });

  test("with the recorded packages the same bytes come out although the registry has moved on, in a process that never saw them", async () => {
    await registry.publish("moving", "1.0.0", { "index.js": "exports.n = 1" });
    await registry.publish("holder", "1.0.0", { "index.js": "export { n } from 'moving'" }, { dependencies: { moving: "*" } });
    const files = { "main.ts": 'import { n } from "npm:holder@1.0.0"; export default () => n' };
    const before = built(await builder.build(program(files)));
    await registry.publish("moving", "1.1.0", { "index.js": "exports.n = 2" });
    const other = testBuilder({ environment: registry.environment });
    const again = built(await other.build(program(files, { locked: before.packages })));
    const fresh = built(await other.build(program(files)));
    await other.close();
    expect(again).toMatchObject({ bundle: before.bundle, bundle_map: before.bundle_map, packages: before.packages });
    expect(fresh.packages.find(({ name }) => name === "moving")?.version).toBe("1.1.0");
  });

  test("what the kap pins wins over what a range would choose, so peers share one copy", async () => {
    for (const version of ["3.0.0", "3.1.0"])
      await registry.publish("core", version, { "index.js": `export const version = '${version}'` }, { type: "module" });
    await registry.publish(
      "plugin",
      "1.0.0",
      { "index.js": "import { version } from 'core'; export const seen = version" },
      { type: "module", peerDependencies: { core: ">=3" } },
    );
    const files = {
      "main.ts": 'import { seen } from "plugin"; import { version } from "core"; export default () => [seen, version].join()',
      "package.json": '{"dependencies": {"core": "3.0.0", "plugin": "1.0.0"}}',
    };
    expect(await answer(files)).toBe("3.0.0,3.0.0");
  });

  test("circles, aliases, two versions at once, and builds made for workers", async () => {
    await registry.publish(
      "ping",
      "1.0.0",
      { "index.js": "exports.name = 'ping'; exports.pong = () => require('pong').name" },
      { dependencies: { pong: "1.x" } },
    );
    await registry.publish(
      "pong",
      "1.0.0",
      { "index.js": "exports.name = 'pong'; exports.ping = () => require('ping').name" },
      { dependencies: { ping: "1.x", "old-leaf": "npm:leaf@1.0.0", leaf: "2" } },
    );
    await registry.publish(
      "worker",
      "1.0.0",
      { "node.js": "require('fs')", "worker.mjs": "import { ok } from '#self'; export { ok }", "self.mjs": "export const ok = 'worker'" },
      { exports: { workerd: "./worker.mjs", default: "./node.js" }, imports: { "#self": "./self.mjs" } },
    );
    const files = {
      "main.ts":
        'import ping from "npm:ping@1.0.0"; import { ok } from "npm:worker@1.0.0"; import a from "npm:leaf@1.0.0"; import b from "npm:leaf@1.2.0"; export default () => [ping.pong(), ok, a.leaf, b.leaf].join()',
    };
    expect(await answer(files)).toBe("pong,worker,1.0.0,1.2.0");
  });

  test("an install script never runs", async () => {
    const trace = join(secretFolder, "installed");
    await registry.publish(
      "scripted",
      "1.0.0",
      { "index.js": "exports.ok = true" },
      { scripts: { preinstall: `touch ${trace}`, install: `touch ${trace}`, postinstall: `touch ${trace}`, prepare: `touch ${trace}` } },
    );
    expect(await answer({ "main.ts": 'import { ok } from "npm:scripted@1.0.0"; export default () => ok' })).toBe(true);
    expect(existsSync(trace)).toBe(false);
  });

  test("types that a package ships are used, and one without types is no error", async () => {
    await registry.publish(
      "typed",
      "1.0.0",
      { "index.js": "export const n = 1", "index.d.ts": "export declare const n: number;" },
      { type: "module" },
    );
    const result = built(
      await builder.build(
        program({
          "main.ts":
            'import { n } from "npm:typed@1.0.0"; import { leaf } from "npm:leaf@1.0.0"; import type { n as N } from "npm:typed@1.0.0"; export default (): string => n as typeof N ?? leaf',
        }),
      ),
    );
    expect(result.diagnostics.map(({ message }) => message)).toEqual(["Type 'number' is not assignable to type 'string'."]);
  });
});

describe("hostile packages", () => {
  test("paths that lead out of the package are never written", async () => {
    const escaped = join(tmpdir(), "kapstone-escaped.js");
    await registry.publishTarball("escaping", "1.0.0", [
      { name: "package/package.json", content: '{"name":"escaping","version":"1.0.0","main":"index.js"}' },
      { name: "package/index.js", content: "module.exports = 'inside'" },
      { name: "package/../../../../../../../../tmp/kapstone-escaped.js", content: "1" },
      { name: escaped, content: "1" },
      { name: "package/link.json", type: "symlink", linkname: secretFile },
      { name: "package/hard.json", type: "link", linkname: secretFile },
      { name: "package/folder", type: "symlink", linkname: secretFolder },
      { name: "package/folder/index.js", content: "module.exports = 'written through a link'" },
    ]);
    expect(
      await answer({
        "main.ts":
          'import text from "npm:escaping@1.0.0"; import folder from "npm:escaping@1.0.0/folder/index.js"; export default () => [text, folder].join()',
      }),
    ).toBe("inside,written through a link");
    expect(existsSync(escaped)).toBe(false);
    expect(readdirSync(secretFolder)).not.toContain("index.js");
    for (const path of ["link.json", "hard.json"])
      expect(
        refused(await builder.build(program({ "main.ts": `import a from "npm:escaping@1.0.0/${path}"; export default () => a` })))[0]
          ?.message,
      ).toMatch(/nothing to import/);
  });

  const outside = /outside its own folder|which is not in it|nothing to import/;
  const up = "../../../../../../../../../..";
  const reads: [how: string, manifest: object, index: string, outcome: RegExp | "builds"][] = [
    ["its main field", { main: `${up}${secretFile}` }, "", outside],
    ["its browser field", { browser: { "./index.js": `${up}${secretFile}` } }, "module.exports = 1", outside],
    ["its exports", { exports: `./${up}${secretFile}` }, "", outside],
    ["a relative import", {}, `module.exports = require("${up}${secretFile}")`, outside],
    ["an absolute import", {}, `module.exports = require("${secretFile}")`, outside],
    ["an absolute import as an ES module", { type: "module" }, `import data from "${secretFile}"; export default data;`, outside],
    ["a file address", { type: "module" }, `import data from "file://${secretFile}"; export default data;`, outside],
    [
      "an imports map",
      { type: "module", imports: { "#a": `./${up}${secretFile}` } },
      'import data from "#a"; export default data;',
      outside,
    ],
    ["a source map comment", {}, `module.exports = 1\n//# sourceMappingURL=${up}${secretFile}`, "builds"],
    ["a tsconfig that it brings along", {}, `module.exports = 1`, "builds"],
  ];
  test.for(reads.map((each, n) => [...each, n] as const))(
    "a file of the machine cannot be read by %s",
    async ([, manifest, index, outcome, n]) => {
      const version = `1.0.${n}`;
      await registry.publish("reader", version, { "index.js": index, "tsconfig.json": JSON.stringify({ extends: secretFile }) }, manifest);
      const result = await builder.build(program({ "main.ts": `import data from "npm:reader@${version}"; export default () => data` }));
      expect(JSON.stringify(result)).not.toContain("host-secret");
      if (outcome === "builds") expect(result.ok).toBe(true);
      else expect(refused(result)[0]?.message).toMatch(outcome);
    },
  );

  test("a tarball that inflates beyond the limit, one that is too large, and one that is none are refused", async () => {
    await registry.publish("bomb", "1.0.0", { "index.js": "", "zeros.txt": Buffer.alloc(64 * 1_048_576) });
    await registry.publishTarball("empty", "1.0.0", [{ name: "package/index.js", content: "" }]);
    await registry.publish("stray", "1.0.0", { "index.js": "" }, { dependencies: { bomb: "1.0.0" } });
    for (const [name, message] of [
      ["bomb", /bomb@1\.0\.0 unpacks to more than 8 MiB/],
      ["stray", /bomb@1\.0\.0 unpacks to more than 8 MiB/],
      ["empty", /holds no package\.json/],
    ] as const) {
      const [error] = refused(await builder.build(program({ "main.ts": `import "npm:${name}@1.0.0"; export default 1` })));
      expect(error).toMatchObject({ file: "main.ts", line: 1, message: expect.stringMatching(message) });
    }
  });

  test("a chain of dependencies that never ends is refused at the limit of packages", async () => {
    for (let n = 0; n < 20; n++)
      await registry.publish(`chain-${n}`, "1.0.0", { "index.js": "" }, { dependencies: { [`chain-${n + 1}`]: "1" } });
    expect(refused(await builder.build(program({ "main.ts": 'import "npm:chain-0@1.0.0"; export default 1' })))[0]?.message).toMatch(
      /more than 12 packages/,
    );
  });

  test("a package that needs Node is refused with its name and the module's, unless the need is optional", async () => {
    await registry.publish("needy", "1.0.0", { "index.js": "module.exports = require('fs')" });
    await registry.publish(
      "needy-esm",
      "1.0.0",
      { "index.js": "import { spawn } from 'node:child_process'; export default spawn" },
      { type: "module" },
    );
    await registry.publish("over", "1.0.0", { "index.js": "module.exports = require('needy')" }, { dependencies: { needy: "1" } });
    await registry.publish("careful", "1.0.0", { "index.js": "let fs = 'none'; try { fs = require('fs') } catch {} module.exports = fs" });
    await registry.publish(
      "replaced",
      "1.0.0",
      {
        "index.js": "module.exports = [typeof require('fs').readFile, require('./node.js')].join()",
        "node.js": "module.exports = require('os')",
        "web.js": "module.exports = 'web'",
      },
      { browser: { fs: false, "./node.js": "./web.js" } },
    );
    const message = async (name: string) =>
      refused(await builder.build(program({ "main.ts": `import a from "npm:${name}@1.0.0"; export default () => a` })))[0]?.message;
    expect(await message("needy")).toMatch(/^The package needy@1\.0\.0 needs "fs" of Node/);
    expect(await message("needy-esm")).toMatch(/^The package needy-esm@1\.0\.0 needs "node:child_process" of Node/);
    expect(await message("over")).toMatch(/^The package needy@1\.0\.0 needs "fs" of Node/);
    expect(await answer({ "main.ts": 'import a from "npm:careful@1.0.0"; export default () => a' })).toBe("none");
    expect(await answer({ "main.ts": 'import a from "npm:replaced@1.0.0"; export default () => a' })).toBe("undefined,web");
  });

  test("a package sees its own dependencies only, never what lies on this machine", async () => {
    await registry.publish("phantom", "1.0.0", { "index.js": "module.exports = require('esbuild')" });
    expect(
      refused(await builder.build(program({ "main.ts": 'import a from "npm:phantom@1.0.0"; export default () => a' })))[0]?.message,
    ).toMatch(/phantom@1\.0\.0 imports "esbuild", which it does not list/);
  });
});

describe("the registry", () => {
  test("down: a new package is refused with the reason, a known one still builds, in a new process too", async () => {
    await registry.publish("known", "1.0.0", { "index.js": "exports.n = 1" });
    const files = { "main.ts": 'import { n } from "npm:known@1.0.0"; export default () => n' };
    const first = built(await builder.build(program(files)));
    registry.down(true);
    const [error] = refused(await builder.build(program({ "main.ts": '\nimport "npm:unknown@1.0.0"; export default 1' })));
    expect(error).toMatchObject({
      file: "main.ts",
      line: 2,
      column: 8,
      message: expect.stringMatching(/registry did not answer for "unknown@1\.0\.0" \(\w+\).*Save again/),
    });
    expect(built(await builder.build(program(files))).bundle_sha256).toBe(first.bundle_sha256);
    const other = testBuilder({ environment: registry.environment, cacheDir: builder.cacheDir });
    const result = built(await other.build(program(files, { locked: first.packages })));
    await other.close();
    expect(result.bundle).toBe(first.bundle);
  });

  test("other bytes than the recorded ones are refused, from the registry and from a damaged cache", async () => {
    await registry.publish("exact", "1.0.0", { "index.js": "exports.n = 1" });
    const files = { "main.ts": 'import { n } from "npm:exact@1.0.0"; export default () => n' };
    const first = built(await builder.build(program(files)));
    await registry.tamper("exact", "1.0.0", { "index.js": "exports.n = 'tampered'" });
    const fresh = testBuilder({ environment: registry.environment });
    expect(refused(await fresh.build(program(files, { locked: first.packages })))[0]?.message).toMatch(/integrity check failed/);
    expect(refused(await fresh.build(program(files)))[0]?.message).toMatch(/integrity check failed/);
    await fresh.close();
    damage(builder.cacheDir, first.packages[0]!.integrity);
    const damaged = testBuilder({ environment: registry.environment, cacheDir: builder.cacheDir });
    expect(refused(await damaged.build(program(files, { locked: first.packages })))[0]?.message).toMatch(/integrity check failed/);
    await damaged.close();
  });

  test("missing packages and versions are named", async () => {
    const message = async (name: string) =>
      refused(await builder.build(program({ "main.ts": `import "npm:${name}"; export default 1` })))[0]?.message;
    expect(await message("nothing-like-it@1.0.0")).toMatch(/npm has no package "nothing-like-it"/);
    expect(await message("leaf@9.0.0")).toMatch(/npm has no version 9\.0\.0 of "leaf"/);
  });
});

/** Changes the cached content behind an integrity. */
function damage(cacheDir: string, integrity: string): void {
  const hex = Buffer.from(integrity.slice("sha512-".length), "base64").toString("hex");
  const path = join(cacheDir, "npm", "content-v2", "sha512", hex.slice(0, 2), hex.slice(2, 4), hex.slice(4));
  const bytes = readFileSync(path);
  bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] ?? 0) ^ 0xff;
  writeFileSync(path, bytes);
}
