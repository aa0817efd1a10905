import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { buildEnvironment } from "./build-process.ts";
import { BuildQueueFull } from "./builder.ts";
import { built, program, refused, testBuilder } from "./test-builder.ts";

/** Programs written to hurt the build. Each must end with a typed outcome, and the next build must work. */
const builder = testBuilder();
beforeAll(() => builder.ready());
afterAll(() => builder.close());

const ok = "export default () => 1;\n";
const times = (count: number, text: (n: number) => string) => Array.from({ length: count }, (_, n) => text(n)).join("\n");
const nested = (open: string, close: string, depth = 900_000) => `${ok}const a = ${open.repeat(depth)}1${close.repeat(depth)}`;

/** Each alias stays below what the checker itself gives up at; together they take minutes. */
const endlessTypes = `${ok}type D = 0|1|2|3|4|5|6|7|8|9;\n${times(60, (n) => `type P${n}<A> = A extends [infer H extends string, ...infer R] ? \`\${H}${n}\${P${n}<R>}\` : "";\ntype B${n} = {[K in \`\${D}\${D}\${D}\${D}x${n}\`]: P${n}<[K, "a", "b", "c"]>};\nconst b${n}: B${n}[keyof B${n}] = 1;`)}`;

const ended = /The build was ended because .* (needed more than \d+ MiB|took longer than \d+ s)|the compiler came down/;
const unchecked = /The type check did not finish/;

describe("hostile programs", () => {
  const hostile: [title: string, files: Record<string, string>, outcome: RegExp][] = [
    ["parentheses nested a million deep", { "main.ts": nested("(", ")") }, ended],
    ["arrays nested a million deep", { "main.ts": nested("[", "]") }, ended],
    ["blocks nested a million deep", { "main.ts": `${ok}${"{".repeat(1_000_000)}${"}".repeat(1_000_000)}` }, ended],
    ["operators a million in a row", { "main.ts": nested("!", "") }, ended],
    ["functions nested deep", { "main.ts": nested("()=>", "", 400_000) }, ended],
    [
      "JSON nested a million deep",
      { "main.ts": 'import a from "./a.json"; export default () => a', "a.json": "[".repeat(1_000_000) },
      ended,
    ],
    [
      "package.json nested a million deep",
      { "main.ts": ok, "package.json": `{"dependencies":${"[".repeat(1_000_000)}` },
      /package\.json is not valid JSON/,
    ],
    [
      "constants that fold to terabytes",
      { "main.ts": `${ok}enum E { a0 = "xxxxxxxxxxxxxxxx", ${times(40, (n) => `a${n + 1} = a${n} + a${n},`)} }; console.log(E.a40)` },
      ended,
    ],
    [
      "two hundred files that re-export each other",
      Object.fromEntries(
        Array.from({ length: 199 }, (_, i) => [
          `f${i}.ts`,
          `${i === 0 ? ok : ""}${times(198, (j) => `export * from "./f${(i + j + 1) % 199}";`)}`,
        ]),
      ),
      ended,
    ],
    [
      "types that take minutes",
      {
        "main.ts": endlessTypes,
      },
      unchecked,
    ],
    ["types nested a million deep", { "main.ts": `${ok}type A = ${"[".repeat(900_000)}1${"]".repeat(900_000)}` }, unchecked],
    ["an expression that the type checker needs gigabytes for", { "main.ts": `${ok}const a = 1${"+1".repeat(900_000)}` }, unchecked],
    [
      "a comment as long as a file may be",
      { "main.tsx": `${ok}/** @jsxImportSource ${"a".repeat(1_000_000)}\n@jsx ${" ".repeat(900_000)}*/` },
      /^built$/,
    ],
    [
      "a source map in the source",
      {
        "main.ts": `${ok}//# sourceMappingURL=data:application/json;base64,${Buffer.from('{"version":3,"sources":["/etc/passwd"],"mappings":"AAAA"}').toString("base64")}`,
      },
      /^built$/,
    ],
  ];
  test.for(hostile)("%s", { timeout: 60_000 }, async ([, files, outcome]) => {
    const result = await builder.build(program(files));
    const said = result.ok ? (result.diagnostics[0]?.message ?? "built") : result.errors[0]?.message;
    expect(said).toMatch(outcome);
    const next = built(await builder.build(program({ "main.ts": 'const n: number = "a"; export default n' })));
    expect(next.diagnostics).toHaveLength(1);
  });

  test("a strict save is refused when its types cannot be checked to the end", { timeout: 60_000 }, async () => {
    const errors = refused(
      await builder.build(program({ "main.ts": `${ok}type A = ${"[".repeat(900_000)}1${"]".repeat(900_000)}` }, { strict: true })),
    );
    expect(errors[0]?.message).toMatch(unchecked);
  });
});

describe("the queue", () => {
  test("many builds at once are all answered, and owners take turns", { timeout: 60_000 }, async () => {
    const order: string[] = [];
    const build = (owner: string, n: number) =>
      builder
        .build(program({ "main.ts": `export default () => ${n}` }, { owner }))
        .then((result) => order.push(built(result) && `${owner}${n}`));
    await Promise.all([...Array.from({ length: 10 }, (_, n) => build("a", n)), build("b", 0)]);
    expect(order).toHaveLength(11);
    expect(order.indexOf("b0")).toBeLessThanOrEqual(2);
  });

  test("past its bound a build is refused at once, and an aborted one leaves its place", { timeout: 60_000 }, async () => {
    const small = testBuilder({ maxQueued: 1 });
    await small.ready();
    const running = small.build(program({ "main.ts": ok }));
    const stop = new AbortController();
    const waiting = small.build(program({ "main.ts": ok }), stop.signal);
    await expect(small.build(program({ "main.ts": ok }))).rejects.toThrow(BuildQueueFull);
    stop.abort(new Error("the client is gone"));
    await expect(waiting).rejects.toThrow("the client is gone");
    const third = small.build(program({ "main.ts": ok }));
    expect((await running).ok && (await third).ok).toBe(true);
    await small.close();
    await expect(small.build(program({ "main.ts": ok }))).rejects.toThrow("closed");
  });
});

describe("the build process", () => {
  test("gets paths, proxies, certificates and npm's settings of the environment, and nothing else", () => {
    const given = {
      PATH: "/bin",
      HOME: "/h",
      https_proxy: "p",
      NODE_EXTRA_CA_CERTS: "c",
      npm_config_registry: "r",
      DATABASE_URL: "postgres://secret",
      KAPSTONE_KEY: "k",
      AWS_SECRET_ACCESS_KEY: "s",
      NODE_OPTIONS: "--inspect",
    };
    expect(buildEnvironment(given)).toEqual({
      PATH: "/bin",
      HOME: "/h",
      https_proxy: "p",
      NODE_EXTRA_CA_CERTS: "c",
      npm_config_registry: "r",
      NODE_ENV: "production",
    });
  });

  test("does not start: builds fail with the cause instead of waiting", { timeout: 60_000 }, async () => {
    const broken = testBuilder({ kapTypes: new URL("file:///nowhere/kap.d.ts") });
    await expect(broken.build(program({ "main.ts": ok }))).rejects.toThrow(/ended while starting[\s\S]*nowhere\/kap\.d\.ts/);
    await broken.close();
  });

  test.runIf(process.platform === "linux")("ends with its parent, even while it is busy", { timeout: 60_000 }, async () => {
    const marker = `kapstone-orphan-${process.pid}`;
    const source = `import { createBuilder } from ${JSON.stringify(new URL("./builder.ts", import.meta.url).href)};
      const builder = createBuilder({ cacheDir: ${JSON.stringify(join(builder.cacheDir, marker))} });
      await builder.ready();
      void builder.build(${JSON.stringify(program({ "main.ts": endlessTypes }))});
      process.send("busy");`;
    const parent = spawn(process.execPath, ["--input-type=module", "--eval", source], { stdio: ["ignore", "inherit", "inherit", "ipc"] });
    await once(parent, "message");
    const withMarker = () => readdirSync("/proc").filter((pid) => /^\d+$/.test(pid) && commandLine(pid).includes(marker));
    expect(withMarker().length).toBeGreaterThan(0);
    parent.kill("SIGKILL");
    await expect.poll(withMarker, { timeout: 20_000 }).toEqual([]);
  });
});

function commandLine(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}
