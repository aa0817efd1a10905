import { type Readable, Transform } from "node:stream";
import { buffer } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { extract, type Header } from "tar-stream";
import { defaultContentType } from "#platform/objects/store.ts";
import type { Deps } from "../../deps.ts";
import { storeObjectBytes } from "../../gateway/limits.ts";
import { Refusal, refuse } from "../../http/refusal.ts";
import { checkObjectKey } from "../kap-data/object-key.ts";
import { badArchive } from "./archive-refusal.ts";
import { type ImportedManifest, importedManifest } from "./manifest.ts";
import { measuring, type Staging, spool } from "./staging.ts";
import { checksumsName, contentTypeRecord } from "./write-archive.ts";

/** A file of the tar as it arrives. */
type Entry = Readable & { header: Header };

const mebibyte = 1024 * 1024;
const manifestBytes = 32 * mebibyte;
const checksumsBytes = 64 * mebibyte;
/** Text of SQL takes more room than what it makes. */
const sqlBytesPerStoredByte = 4;
const maxContentType = 255;

/** What an archive holds, once all of it has been read and found whole. Contents of versions lie in the staging folder under their SHA-256. */
export interface ReadArchive {
  manifest: ImportedManifest;
  sqlPath: string;
}

/** Takes the archive's files as they come. */
export type PutFile = (key: string, body: Readable, contentType: string) => Promise<void>;

/**
 * Reads an archive as it arrives, in constant memory. Every entry must be one that the manifest, which comes first, speaks of, at most once, with the size and
 * SHA-256 told; anything else refuses the whole with 422 naming the entry. Names are looked up, never used as paths.
 */
export async function readArchive(
  deps: Deps,
  body: Readable,
  staging: Staging,
  putFile: PutFile,
  signal: AbortSignal,
): Promise<ReadArchive> {
  const tar = extract();
  const limit = archiveBytes(deps);
  let total = 0;
  const meter = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      total += chunk.length;
      done(
        total > limit ? refuse("PAYLOAD_TOO_LARGE", `an archive is at most ${limit} bytes`, { headers: { connection: "close" } }) : null,
        chunk,
      );
    },
  });
  const reader = new ArchiveReader(deps, staging, putFile, signal);
  const fed = pipeline(body, meter, tar as unknown as NodeJS.WritableStream, { signal });
  // Who reads the entries hears of the failure too; this only keeps it from being nobody's.
  fed.catch(() => undefined);
  try {
    for await (const entry of tar) await reader.take(entry as unknown as Entry);
    await fed;
  } catch (error) {
    tar.destroy();
    body.resume();
    throw await asRefusal(error, fed, signal);
  }
  return reader.finish();
}

/** The largest archive a kap within its quotas can have, and some. */
function archiveBytes(deps: Deps): number {
  return (deps.config.storeQuotaMb + deps.config.databaseQuotaMb * sqlBytesPerStoredByte + 4_096) * mebibyte;
}

async function asRefusal(error: unknown, fed: Promise<unknown>, signal: AbortSignal): Promise<unknown> {
  if (signal.aborted) return signal.reason;
  if (error instanceof Refusal) return error;
  const cause = await fed.then(
    () => error,
    (reason: unknown) => reason,
  );
  if (cause instanceof Refusal) return cause;
  const message = cause instanceof Error ? cause.message : String(cause);
  if (/header|tar|Unexpected end|premature|Writable stream closed/i.test(message))
    return badArchive("archive", `is not a whole tar: ${message}`);
  return cause;
}

class ArchiveReader {
  readonly #deps: Deps;
  readonly #staging: Staging;
  readonly #putFile: PutFile;
  readonly #signal: AbortSignal;
  readonly #seen = new Set<string>();
  readonly #files = new Map<string, string>();
  /** Entries of versions still to come, by name. */
  readonly #expected = new Map<string, { size: number; sha256: string }>();
  #storedBytes = 0;
  #manifest: ImportedManifest | null = null;
  #checksums: Record<string, string> | null = null;

  constructor(deps: Deps, staging: Staging, putFile: PutFile, signal: AbortSignal) {
    this.#deps = deps;
    this.#staging = staging;
    this.#putFile = putFile;
    this.#signal = signal;
  }

  async take(entry: Entry): Promise<void> {
    const { type } = entry.header;
    const name = entry.header.name.replace(/^\.\//, "");
    if (type === "directory") {
      entry.resume();
      return;
    }
    if (type !== "file" && type !== "contiguous-file")
      throw badArchive(shown(name), `is a ${type ?? "thing"}: an archive holds plain files only`);
    if (this.#seen.has(name)) throw badArchive(shown(name), "is there twice");
    this.#seen.add(name);
    if (name === "manifest.json") return this.#takeManifest(entry);
    if (this.#manifest === null) throw badArchive("manifest.json", `must be the archive's first file, which is ${shown(name)}`);
    if (name === "store.sql") return this.#takeSql(entry, this.#manifest);
    if (name === checksumsName) return this.#takeChecksums(entry);
    if (name.startsWith("files/")) return this.#takeFile(entry, name.slice("files/".length));
    await this.#takeVersionFile(entry, name);
  }

  async #takeManifest(entry: Entry): Promise<void> {
    const manifest = readJson("manifest.json", await whole(entry, "manifest.json", manifestBytes));
    const format = (manifest as { format?: unknown } | null)?.format;
    const parsed = importedManifest.safeParse(manifest);
    if (!parsed.success) {
      const issue = parsed.error.issues[0];
      const path = ["manifest.json", ...(issue?.path.map(String) ?? [])].join(".");
      if (issue?.path[0] === "format")
        throw badArchive(
          "manifest.json.format",
          `${JSON.stringify(format) ?? "nothing"} is not a format this platform knows: it knows kap-export/1`,
        );
      throw badArchive(path, issue?.message ?? "is not valid");
    }
    this.#manifest = parsed.data;
    for (const version of parsed.data.versions) {
      for (const { path, size, sha256 } of version.files) this.#expected.set(`versions/${version.sequence}/${path}`, { size, sha256 });
    }
  }

  async #takeVersionFile(entry: Entry, name: string): Promise<void> {
    const expected = this.#expected.get(name);
    if (!expected) throw badArchive(shown(name), "is not in the manifest");
    this.#expected.delete(name);
    if (entry.header.size !== expected.size)
      throw badArchive(shown(name), `has ${entry.header.size} bytes, and the manifest says ${expected.size}`);
    const measured = await spool(entry, this.#staging.path(expected.sha256), this.#signal);
    if (measured.sha256 !== expected.sha256) throw badArchive(shown(name), "has not the SHA-256 that the manifest says");
  }

  async #takeSql(entry: Entry, manifest: ImportedManifest): Promise<void> {
    const expected = manifest.archive.store_sql;
    const limit = this.#deps.config.databaseQuotaMb * sqlBytesPerStoredByte * mebibyte;
    if ((entry.header.size ?? 0) > limit) throw badArchive("store.sql", `has more than the ${limit} bytes it may have`);
    if (entry.header.size !== expected.size)
      throw badArchive("store.sql", `has ${entry.header.size} bytes, and the manifest says ${expected.size}`);
    const measured = await spool(entry, this.#staging.path("store.sql"), this.#signal);
    if (measured.sha256 !== expected.sha256) throw badArchive("store.sql", "has not the SHA-256 that the manifest says");
  }

  async #takeChecksums(entry: Entry): Promise<void> {
    const value = readJson(checksumsName, await whole(entry, checksumsName, checksumsBytes));
    if (typeof value !== "object" || value === null || Array.isArray(value))
      throw badArchive(checksumsName, "must be an object: SHA-256 by key");
    this.#checksums = value as Record<string, string>;
  }

  async #takeFile(entry: Entry, key: string): Promise<void> {
    checkObjectKey(key, shown(`files/${key}`));
    const size = entry.header.size ?? 0;
    if (size > storeObjectBytes) throw badArchive(shown(`files/${key}`), `has more than the ${storeObjectBytes} bytes a file may have`);
    this.#storedBytes += size;
    const limit = this.#deps.config.storeQuotaMb * mebibyte;
    if (this.#storedBytes > limit) throw badArchive("files", `have more than the ${limit} bytes a kap's file store may have`);
    const told = (entry.header.pax as Record<string, string> | null | undefined)?.[contentTypeRecord];
    const isUsable = told !== undefined && told.length <= maxContentType && /^[\x20-\x7e]+$/.test(told);
    const { through, result } = measuring();
    const fed = pipeline(entry, through, { signal: this.#signal });
    fed.catch(() => undefined);
    await this.#putFile(key, through, isUsable ? told : defaultContentType);
    await fed;
    this.#files.set(key, result().sha256);
  }

  /** What can only be said at the end: that nothing is missing, and that the files are what was sent. */
  finish(): ReadArchive {
    const manifest = this.#manifest;
    if (!manifest) throw badArchive("manifest.json", "is missing: this is no archive of a kap");
    const [missing] = this.#expected.keys();
    if (missing !== undefined) throw badArchive(shown(missing), "is in the manifest and missing in the archive");
    if (!this.#seen.has("store.sql")) throw badArchive("store.sql", "is missing");
    if (!this.#checksums) throw badArchive(checksumsName, "is missing: the archive was cut off");
    const sums = new Map(Object.entries(this.#checksums));
    for (const [key, sha256] of this.#files) {
      if (sums.get(key) !== sha256) throw badArchive(shown(`files/${key}`), `has not the SHA-256 that ${checksumsName} says`);
      sums.delete(key);
    }
    const [lost] = sums.keys();
    if (lost !== undefined) throw badArchive(shown(`files/${lost}`), `is in ${checksumsName} and missing in the archive`);
    return { manifest, sqlPath: this.#staging.path("store.sql") };
  }
}

/** A name as a refusal tells it: not longer than a line, and without what a terminal would obey. */
function shown(name: string): string {
  const text = JSON.stringify(name.slice(0, 200));
  return text.slice(1, -1);
}

async function whole(entry: Entry, name: string, limit: number): Promise<Buffer> {
  if ((entry.header.size ?? 0) > limit) throw badArchive(name, `has more than the ${limit} bytes it may have`);
  return buffer(entry);
}

function readJson(name: string, bytes: Buffer): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)) as unknown;
  } catch (error) {
    throw badArchive(name, `is not valid JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
}
