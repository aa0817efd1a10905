import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { BuildOptions, Metafile } from "esbuild";

/** What cannot be put into a bundle: native code, WebAssembly, and programs that find their own files beside them. */
export const unbundled = ["isolated-vm", "libpg-query", "esbuild", "typescript"];
/** Optional parts of libraries, none of which is installed. */
const absent = ["pg-native", "better-sqlite3", "mariadb", "mysql", "mysql2", "oracledb", "sqlite3", "tedious"];

/** What CommonJS packages take for granted. */
const commonJs = [
  'import { createRequire as createBundleRequire } from "node:module";',
  "const require = createBundleRequire(import.meta.url), __filename = import.meta.filename, __dirname = import.meta.dirname;",
].join("\n");

const options = {
  bundle: true,
  splitting: true,
  chunkNames: "chunks/[hash]",
  format: "esm",
  platform: "node",
  target: "node26",
  minifySyntax: true,
  external: [...unbundled, ...absent],
  banner: { js: commonJs },
  legalComments: "none",
  logLevel: "silent",
  metafile: true,
} satisfies BuildOptions;

/**
 * Bundles entries (their places in the sources, without extension) into a folder that mirrors the sources: `api/main.ts` becomes `api/main.js`. Code they
 * share is in `chunks`. A process that strips types itself, and loads hundreds of files, takes about 16 MB more and starts later.
 */
export async function bundle(root: string, entries: readonly string[], outdir: string): Promise<Metafile> {
  const { build } = await import("esbuild");
  const { metafile } = await build({
    ...options,
    absWorkingDir: root,
    entryPoints: entries.map((entry) => ({ in: `${entry}.ts`, out: entry })),
    outdir,
  });
  // By it the program finds its own files (platform/program-files.ts).
  await writeFile(join(outdir, "package.json"), '{"type":"module"}\n');
  return metafile;
}
