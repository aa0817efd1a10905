import { afterAll, beforeAll, expect, test } from "vitest";
import { TestRuntime } from "../../../../runtime/fixture/test-runtime.ts";
import type { Builder } from "./builder.ts";
import { makeCodeCache } from "./code-cache.ts";
import { type Built, built, program, testBuilder } from "./test-builder.ts";

let builder: Builder;
let runtime: TestRuntime;
// One after the other: together they would take each other's processor while a runtime's start is waited for.
beforeAll(async () => {
  runtime = await TestRuntime.start();
  builder = testBuilder();
  await builder.ready();
}, 120_000);
afterAll(() => Promise.all([builder.close(), runtime.close()]));

const build = (content: string): Promise<Built> => builder.build(program({ "main.ts": content })).then(built);

/** Serves a build with a cache of our choice; answers what became of the cache. */
async function serve({ bundle, bundle_map }: Built, code_cache: Uint8Array | null): Promise<string> {
  await runtime.claim("", { bundle, bundle_map, ...(code_cache ? { code_cache: Buffer.from(code_cache) } : {}) });
  return (await runtime.state()).code_cache;
}

test("a runtime uses the cache made at the save, and stacks lead to the author's lines all the same", async () => {
  const failing = await build(`const deep = (): never => {\n  throw new Error("deep");\n};\nexport default () => deep();`);
  expect(failing.code_cache?.length).toBeGreaterThan(500);
  expect(await serve(failing, failing.code_cache)).toBe("used");
  const reply = await runtime.call("/");
  expect(reply.status).toBe(500);
  expect((await runtime.ended(reply.runId)).detail).toContain("main.ts:2:9");
});

test("a cache that V8 refuses, and none at all, leave the program as it is", async () => {
  const first = await build(`export default () => new Response("one")`);
  const otherVersion = new Uint8Array(first.code_cache ?? []);
  otherVersion.fill(0x5a, 4, 8); // where V8 keeps the digest of its version
  expect(await serve(first, otherVersion)).toBe("refused");
  expect((await runtime.call("/")).text).toBe("one");
  const second = await build(`export default () => new Response("two")`);
  expect(await serve(second, null)).toBe("none");
  expect((await runtime.call("/")).text).toBe("two");
});

test("a cache of other code does not pass for the bundle's: the signature covers it", async () => {
  const [honest, other] = [await build(`export default () => new Response("aa")`), await build(`export default () => new Response("bb")`)];
  const assignment = runtime.assignment("", { bundle: honest.bundle, code_cache: Buffer.from(honest.code_cache ?? []) });
  const signed = runtime.sign(assignment);
  const swapped = Buffer.concat([
    signed.subarray(0, signed.length - (honest.code_cache?.length ?? 0)),
    Buffer.from(other.code_cache ?? []),
  ]);
  const refused = await runtime.control("POST", "/claim", swapped);
  expect([refused.status, refused.text]).toEqual([401, expect.stringContaining("not the one that was signed")]);
});

test("nothing is compiled ahead for a bundle over 2 MB, or one that is no JavaScript", () => {
  expect(makeCodeCache(`"${"x".repeat(2 * 1024 * 1024)}"`)).toBeNull();
  expect(makeCodeCache("this is not JavaScript")).toBeNull();
  expect(makeCodeCache("1")).not.toBeNull();
});
