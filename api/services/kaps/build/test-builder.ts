import { mkdtempSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import vm from "node:vm";
import type { BuildError, BuildInput, BuildResult } from "./build-contract.ts";
import { type Builder, type BuilderOptions, createBuilder } from "./builder.ts";

/** A builder with a package cache of its own, for one test file. `close` removes both. */
export function testBuilder(options: Partial<BuilderOptions> = {}): Builder & { cacheDir: string } {
  const cacheDir = options.cacheDir ?? mkdtempSync(join(tmpdir(), "kapstone-test-cache-"));
  const builder = createBuilder({ ...options, cacheDir });
  return {
    ...builder,
    cacheDir,
    async close() {
      await builder.close();
      if (options.cacheDir === undefined) await rm(cacheDir, { recursive: true, force: true });
    },
  };
}

/** Build input from a path → text table; the first file is the main file. */
export function program(files: Record<string, string>, rest: Partial<BuildInput> = {}): BuildInput {
  const list = Object.entries(files).map(([path, content]) => ({ path, content }));
  return { files: list, main_file: list[0]?.path ?? "main.ts", strict: false, locked: [], ...rest };
}

export type Built = BuildResult & { ok: true };

/** The successful result, or an error that shows the refusal. */
export function built(result: BuildResult): Built {
  if (!result.ok) throw new Error(`The build was refused: ${JSON.stringify(result.errors, null, 2)}`);
  return result;
}

/** The refusal's errors, or an error when the build went through. */
export function refused(result: BuildResult): BuildError[] {
  if (result.ok) throw new Error("The build was not refused.");
  return result.errors;
}

export type Entries = Record<string, () => Promise<{ default: unknown }>>;

/** Runs a bundle as the runtime does: a classic script in a realm whose only extra is `Symbol.for("kap")` (and the web globals named). */
export async function evaluate(result: Built, kap: object = {}, globals: Record<string, unknown> = {}): Promise<Entries> {
  const context = vm.createContext({ ...globals });
  vm.runInContext("globalThis", context)[Symbol.for("kap")] = { db: {}, store: {}, secrets: {}, ...kap };
  return (await new vm.Script(result.bundle, { filename: "kap.js" }).runInContext(context)) as Entries;
}

/** Calls the default export (a function) of an entry. */
export async function call(entries: Entries, path: string, ...args: unknown[]): Promise<unknown> {
  const namespace = await entries[path]?.();
  const handler = namespace?.default as (...values: unknown[]) => unknown;
  return await handler(...args);
}
