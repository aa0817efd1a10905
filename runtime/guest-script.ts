import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { BuildOptions } from "esbuild";
import { bundledGuest, guestSource } from "./entry-paths.ts";

/**
 * The web API inside the isolate as one classic script. Images carry it ready made; from sources esbuild makes it once and keeps it in the
 * temporary folder under the digest of its sources, so that a second start needs no esbuild.
 */
export async function guestScript(): Promise<string> {
  const ready = bundledGuest();
  if (ready !== null) return readFileSync(ready, "utf8");
  const entry = guestSource();
  const folder = join(tmpdir(), `kapstone-guest-${process.getuid?.() ?? 0}`);
  const cached = join(folder, `${sourceDigest(dirname(entry))}.js`);
  if (existsSync(cached) && statSync(folder).uid === (process.getuid?.() ?? 0)) return readFileSync(cached, "utf8");
  const script = await bundleGuest(entry);
  await (await import("esbuild")).stop(); // its process would stay as long as this one does
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const part = `${cached}.${process.pid}`;
  writeFileSync(part, script, { mode: 0o600 });
  renameSync(part, cached);
  return script;
}

/** Names of classes stay as they are: programs see them. Strict frames hide `this` and functions from Error.prepareStackTrace. */
const buildOptions = {
  bundle: true,
  write: false,
  format: "iife",
  platform: "neutral",
  mainFields: ["module", "main"],
  target: "esnext",
  minifySyntax: true,
  minifyWhitespace: true,
  banner: { js: '"use strict";' },
  legalComments: "none",
  logLevel: "silent",
} as const satisfies BuildOptions;

/** Bundles the kit (also used by the image build). */
export async function bundleGuest(entry: string = guestSource()): Promise<string> {
  const { build } = await import("esbuild");
  const result = await build({
    ...buildOptions,
    mainFields: [...buildOptions.mainFields],
    entryPoints: [entry],
    inject: [join(dirname(entry), "captured-globals.ts")],
  });
  const script = result.outputFiles[0]?.text;
  if (script === undefined) throw new Error(`esbuild made nothing of ${entry}`);
  return script;
}

/** Digest over the names, sizes and change times of the kit's sources, the lock of what it bundles, and how it is bundled. */
function sourceDigest(folder: string): string {
  const hash = createHash("sha256").update(JSON.stringify(buildOptions));
  for (const name of readdirSync(folder, { recursive: true }).map(String).sort()) {
    const { size, mtimeMs } = statSync(join(folder, name));
    hash.update(`${name}\0${size}\0${mtimeMs}\n`);
  }
  const lock = join(folder, "../../package-lock.json");
  if (existsSync(lock)) hash.update(String(statSync(lock).mtimeMs));
  return hash.digest("hex").slice(0, 32);
}
