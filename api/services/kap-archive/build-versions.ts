import { readFile, writeFile } from "node:fs/promises";
import { deserialize, serialize } from "node:v8";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../http/refusal.ts";
import { type BuiltProgram, buildProgram } from "../kaps/build-program.ts";
import type { SourceFile } from "../kaps/file-set.ts";
import { badArchive } from "./archive-refusal.ts";
import type { ManifestVersion } from "./manifest.ts";
import type { Staging } from "./staging.ts";

/** The files of a version from the staging folder, where they lie under their SHA-256. */
export async function readVersionFiles(staging: Staging, version: ManifestVersion): Promise<SourceFile[]> {
  return Promise.all(
    version.files.map(async ({ path, sha256 }) => {
      const bytes = await readFile(staging.path(sha256));
      try {
        return { path, content: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes) };
      } catch {
        throw badArchive(`versions/${version.sequence}/${path}`, "is not text in UTF-8");
      }
    }),
  );
}

/**
 * Builds every version again with the packages it was locked to. Programs go to the staging folder, one is in memory at a time; versions with the same files, as after a
 * restore, are built once. 422 `BUILD_FAILED` naming the version when one cannot be built here.
 */
export async function buildVersions(
  deps: Deps,
  versions: readonly ManifestVersion[],
  staging: Staging,
  owner: string,
  signal: AbortSignal,
): Promise<(version: ManifestVersion) => Promise<BuiltProgram>> {
  const paths = new Map<string, string>();
  for (const version of versions) {
    signal.throwIfAborted();
    const key = buildKey(version);
    if (paths.has(key)) continue;
    const files = await readVersionFiles(staging, version);
    const input = { files, mainFile: version.main_file, strict: false, locked: version.packages.map(lockedPackage), owner };
    const program = await buildProgram(deps, input, signal).catch((error: unknown) => {
      throw error instanceof Refusal && error.status === 422 ? ofVersion(error, version.sequence) : error;
    });
    const path = staging.path(`program-${version.sequence}`);
    await writeFile(path, serialize(program), { mode: 0o600 }); // it holds bytes, which JSON does not
    paths.set(key, path);
  }
  return async (version) => deserialize(await readFile(paths.get(buildKey(version)) ?? "")) as BuiltProgram;
}

function buildKey({ main_file, files, packages }: ManifestVersion): string {
  return JSON.stringify([main_file, files.map(({ path, sha256 }) => [path, sha256]), packages]);
}

function lockedPackage({ name, version, integrity, bytes }: ManifestVersion["packages"][number]) {
  return { name, version, integrity, ...(bytes === undefined ? {} : { bytes }) };
}

function ofVersion(refusal: Refusal, sequence: number): Refusal {
  return new Refusal(refusal.status, refusal.code, `version ${sequence}: ${refusal.message}`, refusal.options);
}
