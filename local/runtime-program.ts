import { createHash } from "node:crypto";
import { existsSync, readdirSync, statSync } from "node:fs";
import { mkdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Logger } from "#platform/log.ts";
import { bundleGuest } from "../runtime/guest-script.ts";
import { bundle } from "./bundle.ts";

/** What is started as a runtime: its entry, and the module that ends it with its parent. */
export interface RuntimeProgram {
  entry: string;
  endWithParent: string;
}

/**
 * The supervisor holds little and waits most of the time: a small nursery keeps it small, and its only WebAssembly, the SQL parser, is not optimised: that saves
 * 5 µs a statement, for 20 to 40 MB and a quarter second.
 */
export const runtimeNodeFlags = ["--no-node-snapshot", "--max-semi-space-size=1", "--no-wasm-tier-up", "--no-wasm-dynamic-tiering"];

const root = fileURLToPath(new URL("../", import.meta.url));
/** Below node_modules, so that what stays outside of the bundles (native code, WebAssembly) is found from there. */
const cache = join(root, "node_modules/.cache/kapstone");
const keptMs = 7 * 24 * 3_600_000;
const entries = ["runtime/main", "runtime/child", "local/end-with-parent"];

/**
 * The runtime as plain JavaScript in few files, made once per state of its sources: a process that strips types itself, and loads hundreds of files,
 * takes about 16 MB more and starts later. From the sources where nothing can be written.
 */
export async function runtimeProgram(log: Logger): Promise<RuntimeProgram> {
  const folder = join(cache, sourcesDigest());
  try {
    if (!existsSync(folder)) await bundleInto(folder);
    return programIn(folder, "js");
  } catch (error) {
    log.warn({ err: error }, "the runtime could not be bundled and runs from its sources");
    return programIn(root, "ts");
  }
}

const programIn = (folder: string, extension: "js" | "ts"): RuntimeProgram => ({
  entry: join(folder, `runtime/main.${extension}`),
  endWithParent: join(folder, `local/end-with-parent.${extension}`),
});

/** Bundles into a folder that appears whole or not at all. */
async function bundleInto(folder: string): Promise<void> {
  const part = `${folder}.${process.pid}`;
  await mkdir(part, { recursive: true });
  await bundle(root, entries, part);
  await writeFile(join(part, "runtime/guest.js"), await bundleGuest());
  await (await import("esbuild")).stop(); // its process would stay as long as this one does
  await removeOld();
  await rename(part, folder).catch(async (error: NodeJS.ErrnoException) => {
    await rm(part, { recursive: true, force: true });
    // Another process was faster: its bundle is the same.
    if (!existsSync(folder)) throw error;
  });
}

/** Removes bundles of earlier states that no running runtime can still load a piece of. */
async function removeOld(): Promise<void> {
  for (const name of readdirSync(cache)) {
    const folder = join(cache, name);
    if (Date.now() - statSync(folder).mtimeMs > keptMs) await rm(folder, { recursive: true, force: true });
  }
}

/** Digest over names, sizes and change times of everything that goes into the bundles. */
function sourcesDigest(): string {
  const hash = createHash("sha256").update(process.version);
  const add = (name: string): void => {
    const { size, mtimeMs } = statSync(join(root, name));
    hash.update(`${name}\0${size}\0${mtimeMs}\n`);
  };
  for (const folder of ["runtime", "platform"])
    for (const name of readdirSync(join(root, folder), { recursive: true }).map(String).sort()) add(join(folder, name));
  for (const name of ["local/end-with-parent.ts", "local/runtime-program.ts", "local/bundle.ts", "package-lock.json"]) add(name);
  return hash.digest("hex").slice(0, 32);
}
