import { createHash } from "node:crypto";
import pacote from "pacote";
import type { NpmSettings } from "./npm-settings.ts";

/** A package that cannot be had; the message is for the author of the kap and says what to do. */
export class PackageUnavailable extends Error {
  override name = "PackageUnavailable";
}

/** The tarball of one exact version, verified; `integrity` is `sha512-…` of its bytes, whatever the registry itself states. */
export interface Tarball {
  bytes: Buffer;
  integrity: string;
}

/** Versions that exist, and tags, of one package. */
export interface PackageVersions {
  versions: string[];
  tags: Record<string, string>;
}

export interface Registry {
  versions(name: string): Promise<PackageVersions>;
  /** `integrity` is what an earlier build recorded; a tarball that differs from it is refused. */
  tarball(name: string, version: string, integrity: string | undefined): Promise<Tarball>;
}

export interface RegistryOptions {
  settings: NpmSettings;
  /** Folder of the content cache: content-addressed by digest and verified on every read. */
  cacheDir: string;
  /** For one request, in milliseconds. */
  fetchTimeoutMs: number;
  maxTarballBytes: number;
}

/** How long a package's list of versions is trusted without asking again. */
const versionsMs = 5 * 60_000;
/** Lists of versions are large (megabytes for the oldest packages); so many are kept. */
const maxVersionLists = 40;

/**
 * The npm registry of this machine, through pacote. Nothing is executed: no install script ever runs, tarballs are only read. What was
 * fetched once is served from the cache, also while the registry is down.
 */
export function createRegistry(options: RegistryOptions): Registry {
  const packuments = new Map<string, unknown>();
  let listsSince = Date.now();
  const pacoteOptions = {
    ...options.settings,
    cache: options.cacheDir,
    packumentCache: packuments,
    ignoreScripts: true,
    timeout: options.fetchTimeoutMs,
    fetchRetries: 1,
    fetchRetryMintimeout: 200,
    fetchRetryMaxtimeout: 1_000,
  } as unknown as pacote.Options;

  /** Forgets the lists when they are too old or too many. */
  function forgetOldLists(): void {
    if (Date.now() - listsSince <= versionsMs && packuments.size <= maxVersionLists) return;
    packuments.clear();
    listsSince = Date.now();
  }

  async function fetchTarball(name: string, version: string, more: object): Promise<Tarball> {
    const label = `${name}@${version}`;
    const bytes = await pacote.tarball.stream(label, (stream) => collect(stream, options.maxTarballBytes, label), {
      ...pacoteOptions,
      ...more,
    });
    return { bytes, integrity: `sha512-${createHash("sha512").update(bytes).digest("base64")}` };
  }

  return {
    async versions(name) {
      forgetOldLists();
      try {
        const packument = await pacote.packument(name, pacoteOptions);
        return { versions: Object.keys(packument.versions), tags: { ...packument["dist-tags"] } };
      } catch (error) {
        throw explain(error, name, undefined);
      }
    },
    async tarball(name, version, integrity) {
      forgetOldLists();
      // `resolved` lets pacote look into the cache by integrity before it asks the registry for the address.
      const known = integrity === undefined ? {} : { integrity, resolved: `${name}@${version}` };
      try {
        return await fetchTarball(name, version, known).catch((error: { code?: unknown }) => {
          if (error.code !== "ETARGET") throw error;
          // The version may be younger than the list that is remembered.
          packuments.clear();
          return fetchTarball(name, version, { ...known, preferOnline: true });
        });
      } catch (error) {
        throw explain(error, name, version);
      }
    },
  };
}

async function collect(stream: AsyncIterable<Buffer>, maxBytes: number, label: string): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream) {
    size += chunk.length;
    if (size > maxBytes)
      throw new PackageUnavailable(
        `The package ${label} is larger than ${Math.floor(maxBytes / 1_048_576)} MiB packed. Use a smaller package or copy in the files you need.`,
      );
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** npm's errors as sentences for the author. */
function explain(error: unknown, name: string, version: string | undefined): Error {
  if (error instanceof PackageUnavailable) return error;
  const code = String((error as { code?: unknown }).code ?? "");
  const label = version === undefined ? name : `${name}@${version}`;
  if (code === "E404") return new PackageUnavailable(`npm has no package "${name}". Check the spelling.`);
  if (code === "ETARGET") return new PackageUnavailable(`npm has no version ${version ?? ""} of "${name}". Pin one that exists.`);
  if (code === "EINTEGRITY") {
    return new PackageUnavailable(
      `The bytes of ${label} are not those that were recorded (integrity check failed), so nothing was built. Ask who runs the registry, or save with another version.`,
    );
  }
  if (code === "E401" || code === "E403")
    return new PackageUnavailable(
      `The npm registry refuses to give out "${name}" (${code.slice(1)}). Whoever runs this deployment can set a registry credential.`,
    );
  const cause = code || (error as Error).message;
  return new PackageUnavailable(
    `The npm registry did not answer for "${label}" (${cause}). Nothing was changed. Save again when the registry is reachable; packages that were built here before come from the cache.`,
  );
}
