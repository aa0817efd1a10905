import { randomUUID } from "node:crypto";
import { mkdir, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { createGunzip } from "node:zlib";
import tar from "tar-stream";
import { PackageUnavailable } from "./registry.ts";

/** File kinds that a bundle or the type checker can read; the rest (maps, documentation, pictures, native code) is not written to disk. */
const wanted = /\.(?:js|mjs|cjs|jsx|ts|mts|cts|tsx|json|css|txt|html|svg|sql|wasm)$/i;
/** Most entries in one tarball. */
const maxEntries = 20_000;

export interface Unpacked {
  /** Bytes of all files that were written. */
  bytes: number;
  manifest: Record<string, unknown>;
}

/**
 * Unpacks a package's tarball into `folder`, which appears complete or not at all. Only plain files are written, only under the
 * package's own folder: links, devices, absolute paths and `..` are left out, and inflating stops at `maxBytes`.
 * Throws `PackageUnavailable` for what is no package or too large.
 */
export async function unpack(tarball: Buffer, folder: string, label: string, maxBytes: number): Promise<Unpacked> {
  const files = await readTarball(tarball, label, maxBytes);
  const manifestText = files.get("package.json");
  if (manifestText === undefined) throw new PackageUnavailable(`The package ${label} holds no package.json, so it cannot be used.`);
  const manifest = parseManifest(manifestText.toString("utf8"), label);
  const staging = `${folder}.${randomUUID()}`;
  try {
    const folders = new Set([...files.keys()].map((path) => dirname(join(staging, path))));
    for (const each of folders) await mkdir(each, { recursive: true });
    await Promise.all([...files].map(([path, bytes]) => writeFile(join(staging, path), bytes)));
    await mkdir(dirname(folder), { recursive: true });
    await rename(staging, folder);
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
  return { bytes: [...files.values()].reduce((sum, bytes) => sum + bytes.length, 0), manifest };
}

async function readTarball(tarball: Buffer, label: string, maxBytes: number): Promise<Map<string, Buffer>> {
  const files = new Map<string, Buffer>();
  let inflated = 0;
  let entries = 0;
  const tooLarge = () =>
    new PackageUnavailable(
      `The package ${label} unpacks to more than ${Math.floor(maxBytes / 1_048_576)} MiB (together with the others of this kap). Use a smaller package.`,
    );
  const gunzip = createGunzip();
  gunzip.on("data", (chunk: Buffer) => {
    inflated += chunk.length;
    if (inflated > maxBytes) gunzip.destroy(tooLarge());
  });
  const extract = tar.extract();
  gunzip.on("error", (error) => extract.destroy(error));
  gunzip.pipe(extract);
  gunzip.end(tarball);
  try {
    for await (const entry of extract) {
      if (++entries > maxEntries) throw tooLarge();
      const path = entry.header.type === "file" || entry.header.type === "contiguous-file" ? innerPath(entry.header.name) : null;
      if (path === null || !wanted.test(path)) {
        entry.resume();
        continue;
      }
      const chunks: Buffer[] = [];
      for await (const chunk of entry) chunks.push(chunk as Buffer);
      files.set(path, Buffer.concat(chunks));
    }
  } catch (error) {
    if (error instanceof PackageUnavailable) throw error;
    throw new PackageUnavailable(`The package ${label} cannot be unpacked: ${(error as Error).message}`);
  } finally {
    gunzip.destroy();
  }
  return files;
}

/** The path inside the package (npm tarballs have one folder at the top), or null for one that must not be written. */
function innerPath(name: string): string | null {
  const segments = name.split("/").slice(1);
  const isUnsafe = name.includes("\0") || name.includes("\\") || name.startsWith("/") || name.length > 1_000;
  if (isUnsafe || segments.length === 0 || segments.some((segment) => segment === "" || segment === "." || segment === "..")) return null;
  return segments.includes("node_modules") ? null : segments.join("/");
}

function parseManifest(text: string, label: string): Record<string, unknown> {
  try {
    const manifest: unknown = JSON.parse(text.replace(/^\uFEFF/, ""));
    if (manifest !== null && typeof manifest === "object" && !Array.isArray(manifest)) return manifest as Record<string, unknown>;
  } catch (error) {
    throw new PackageUnavailable(`The package.json of ${label} cannot be read: ${(error as Error).message}`);
  }
  throw new PackageUnavailable(`The package.json of ${label} is not an object.`);
}
