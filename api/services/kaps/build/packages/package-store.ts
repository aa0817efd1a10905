import { createHash } from "node:crypto";
import { join } from "node:path";
import { PackageUnavailable, type Registry } from "./registry.ts";
import { unpack } from "./unpack.ts";

/** One unpacked package. Its files are in `{root}/node_modules/{name}`, so that resolvers that know npm's layout find it from `root`. */
export interface StoredPackage {
  name: string;
  version: string;
  integrity: string;
  root: string;
  bytes: number;
  manifest: Record<string, unknown>;
}

export interface PackageStore {
  get(name: string, version: string, integrity: string | undefined, maxBytes: number): Promise<StoredPackage>;
  /** Bytes unpacked so far. */
  bytes(): number;
}

/**
 * Packages unpacked under `folder`, each in a folder named by its integrity (so two machines name them alike). The folder lives as
 * long as this process, so its bytes always come from a tarball that this process has verified.
 */
export function createPackageStore(registry: Registry, folder: string): PackageStore {
  const stored = new Map<string, Promise<StoredPackage>>();
  /** Versions are immutable, so the integrity seen once holds. */
  const integrities = new Map<string, string>();

  let unpackedBytes = 0;

  async function load(name: string, version: string, integrity: string | undefined, maxBytes: number): Promise<StoredPackage> {
    const tarball = await registry.tarball(name, version, integrity);
    const root = join(folder, createHash("sha256").update(`${name}@${version} ${tarball.integrity}`).digest("hex").slice(0, 16));
    const { bytes, manifest } = await unpack(tarball.bytes, join(root, "node_modules", name), `${name}@${version}`, maxBytes);
    unpackedBytes += bytes;
    return { name, version, integrity: tarball.integrity, root, bytes, manifest };
  }

  return {
    bytes: () => unpackedBytes,
    async get(name, version, integrity, maxBytes) {
      const label = `${name}@${version}`;
      const expected = integrity ?? integrities.get(label);
      const key = `${label} ${expected ?? ""}`;
      let pending = stored.get(key);
      if (pending === undefined) {
        pending = load(name, version, expected, maxBytes);
        stored.set(key, pending);
        pending.catch(() => stored.delete(key));
      }
      const found = await pending;
      integrities.set(label, found.integrity);
      stored.set(`${label} ${found.integrity}`, pending);
      if (found.bytes > maxBytes)
        throw new PackageUnavailable(
          `The packages of this kap unpack to more than their limit; ${label} no longer fits. Use fewer or smaller ones.`,
        );
      return found;
    },
  };
}
