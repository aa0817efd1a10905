import semver from "semver";
import type { LockedPackage } from "../build-contract.ts";
import type { PackageStore, StoredPackage } from "./package-store.ts";
import { PackageUnavailable, type Registry } from "./registry.ts";

/** A package of the tree with the packages that its own imports mean, by the name it imports them as. */
export interface TreePackage extends StoredPackage {
  dependencies: ReadonlyMap<string, TreePackage>;
}

/** The packages of one kap, by `name@version`. */
export type PackageTree = ReadonlyMap<string, TreePackage>;

export interface ExactPackage {
  name: string;
  version: string;
}

export interface TreeLimits {
  maxPackages: number;
  /** Of all packages of the kap, unpacked. */
  maxBytes: number;
}

interface Requirement {
  name: string;
  range: string;
  /** Peers and dependencies must be there; an optional peer only matters when the kap pins it itself. */
  isOptional: boolean;
}

/**
 * Fetches `roots` and everything they depend on. A dependency's range is met by, in this order: a version that the kap itself pins (so
 * that there is one copy), the highest one in `locked`, the highest one the registry has. Since a recorded tree holds the highest of
 * each range, resolving again with it as `locked` gives the same tree. No install script runs; optional dependencies are left out.
 * Throws `PackageUnavailable`.
 */
export async function resolvePackageTree(
  roots: ExactPackage[],
  pins: ExactPackage[],
  locked: LockedPackage[],
  sources: { registry: Registry; store: PackageStore; limits: TreeLimits },
): Promise<PackageTree> {
  const { registry, store, limits } = sources;
  const tree = new Map<string, StoredPackage & { dependencies: Map<string, TreePackage> }>();
  const edges: { from: string; name: string; to: string }[] = [];
  const seen = new Set<string>();
  let bytes = 0;

  async function fetchOne({ name, version }: ExactPackage): Promise<ExactPackage[]> {
    const key = `${name}@${version}`;
    const integrity = locked.find((entry) => entry.name === name && entry.version === version)?.integrity;
    const found = await store.get(name, version, integrity, limits.maxBytes);
    bytes += found.bytes;
    if (bytes > limits.maxBytes) {
      throw new PackageUnavailable(
        `The kap's packages unpack to more than ${Math.floor(limits.maxBytes / 1_048_576)} MiB; ${key} no longer fits. Use fewer or smaller ones.`,
      );
    }
    tree.set(key, { ...found, dependencies: new Map() });
    const needed = await Promise.all(requirements(found.manifest).map((requirement) => choose(requirement, key)));
    return needed.filter((each) => each !== null);
  }

  async function choose(requirement: Requirement, dependent: string): Promise<ExactPackage | null> {
    const target = aliasTarget(requirement);
    const version = target && (await chooseVersion(target, requirement.isOptional, dependent));
    if (target === null || version === null) return null;
    edges.push({ from: dependent, name: requirement.name, to: `${target.name}@${version}` });
    return { name: target.name, version };
  }

  async function chooseVersion(
    { name, range }: { name: string; range: string },
    isOptional: boolean,
    dependent: string,
  ): Promise<string | null> {
    const isTag = semver.validRange(range) === null;
    const highest = (entries: ExactPackage[]) =>
      semver.maxSatisfying(
        entries.filter((entry) => entry.name === name).map((entry) => entry.version),
        isTag ? "*" : range,
        { includePrerelease: isTag },
      );
    const settled = highest(pins) ?? (isOptional ? null : highest(locked));
    if (settled !== null || isOptional) return settled;
    const { versions, tags } = await registry.versions(name);
    const chosen = isTag ? tags[range] : semver.maxSatisfying(versions, range);
    if (chosen) return chosen;
    throw new PackageUnavailable(
      `${dependent} depends on "${name}" ${range}, but npm has no such version. Use another version of ${dependent.slice(0, dependent.lastIndexOf("@"))}.`,
    );
  }

  for (let level = roots; level.length > 0; ) {
    const fresh = level.filter(({ name, version }) => seen.size < seen.add(`${name}@${version}`).size);
    if (seen.size > limits.maxPackages) {
      throw new PackageUnavailable(
        `The kap's packages bring in more than ${limits.maxPackages} packages. Use packages with fewer dependencies.`,
      );
    }
    level = (await Promise.all(fresh.map(fetchOne))).flat();
  }
  for (const { from, name, to } of edges) {
    const dependency = tree.get(to);
    if (dependency) tree.get(from)?.dependencies.set(name, dependency);
  }
  return tree;
}

/** What a package's own `package.json` says that it needs. */
function requirements(manifest: Record<string, unknown>): Requirement[] {
  const optional = record(manifest.optionalDependencies);
  const peersMeta = record(manifest.peerDependenciesMeta);
  const needed = new Map<string, Requirement>();
  for (const [name, range] of Object.entries(record(manifest.peerDependencies))) {
    const meta = peersMeta[name];
    const isOptional = meta !== null && typeof meta === "object" && "optional" in meta && meta.optional === true;
    if (typeof range === "string") needed.set(name, { name, range, isOptional });
  }
  for (const [name, range] of Object.entries(record(manifest.dependencies))) {
    if (typeof range === "string") needed.set(name, { name, range, isOptional: name in optional });
  }
  return [...needed.values()];
}

function record(value: unknown): Record<string, unknown> {
  return value !== null && typeof value === "object" && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}

/** `"a": "npm:b@^1"` means b. Addresses (git, files, URLs) are nothing the registry has: null, and only importing them is an error. */
function aliasTarget(requirement: Requirement): { name: string; range: string } | null {
  const [, name = requirement.name, range = requirement.range] = /^npm:(@?[^@]+)(?:@(.*))?$/.exec(requirement.range) ?? [];
  return range.length > 500 || /[:/]/.test(range) ? null : { name, range };
}
