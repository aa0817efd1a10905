import { createReadStream } from "node:fs";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { type Pack, pack } from "tar-stream";
import type { Deps } from "../../deps.ts";
import { listAll } from "../kap-data/file-tar.ts";
import { openKapClient } from "../kap-data/kap-connection.ts";
import { dumpSchema } from "../kap-data/sql-dump.ts";
import { readContents } from "../kaps/file-set.ts";
import type { KapRow } from "../kaps/kap.ts";
import { describeKap, readVersions } from "./manifest.ts";
import { type Measure, measuring, openStaging, spool } from "./staging.ts";

/** The pax record of an entry under `files/` that keeps the object's content type. */
export const contentTypeRecord = "KAPSTONE.content_type";
export const checksumsName = "checksums.json";

/**
 * A kap as one tar: `manifest.json`, `versions/{sequence}/…`, `store.sql`, `files/…`, and last `checksums.json`, the SHA-256 of each file as it was sent, so that an
 * archive that was cut off is known. The dump is made first, into a temporary file, because a tar tells sizes beforehand; the rest streams, one object open at a
 * time. Database and files are each as of their reading: stop the kap first where they must agree.
 */
export async function writeArchive(deps: Deps, kap: KapRow, signal: AbortSignal): Promise<Readable> {
  const staging = await openStaging();
  const tar = pack();
  const end = (): void =>
    void staging.remove().catch((error: unknown) => deps.log.warn({ err: error }, "a temporary folder was not removed"));
  try {
    const store_sql = await dump(deps, kap, staging.path("store.sql"), signal);
    const manifest = { ...(await describeKap(deps, kap)), archive: { store_sql } };
    addAll(tar, deps, kap, { manifest, sqlPath: staging.path("store.sql"), sqlBytes: store_sql.size, signal })
      .then(() => tar.finalize())
      .catch((error: unknown) => tar.destroy(error instanceof Error ? error : new Error(String(error))))
      .finally(end);
  } catch (error) {
    end();
    throw error;
  }
  return Readable.from(tar, { objectMode: false });
}

async function dump(deps: Deps, kap: KapRow, path: string, signal: AbortSignal): Promise<Measure> {
  const client = await openKapClient(deps, kap);
  try {
    return await spool(dumpSchema(client, kap.schema_name), path, signal);
  } finally {
    await client.end();
  }
}

async function addAll(
  tar: Pack,
  deps: Deps,
  kap: KapRow,
  parts: { manifest: object; sqlPath: string; sqlBytes: number; signal: AbortSignal },
): Promise<void> {
  const { signal } = parts;
  await addText(tar, "manifest.json", `${JSON.stringify(parts.manifest, null, 2)}\n`);
  for (const version of await readVersions(deps, kap.id)) {
    for (const file of await readContents(deps.db, kap.id, version.files)) {
      signal.throwIfAborted();
      await addText(tar, `versions/${version.sequence}/${file.path}`, file.content);
    }
  }
  await pipeline(createReadStream(parts.sqlPath), tar.entry({ name: "store.sql", size: parts.sqlBytes, mode: 0o644 }), { signal });
  const checksums = await addFiles(tar, deps, kap.bucket, signal);
  await addText(tar, checksumsName, `${JSON.stringify(checksums)}\n`);
}

function addText(tar: Pack, name: string, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    tar.entry({ name, mode: 0o644 }, text, (error) => (error ? reject(error) : resolve()));
  });
}

/** Adds every object with its content type; answers the SHA-256 of each by its key. An object deleted since it was listed is left out. */
async function addFiles(tar: Pack, deps: Deps, bucket: string, signal: AbortSignal): Promise<Record<string, string>> {
  const checksums: [string, string][] = [];
  for await (const listed of listAll(deps.objects, bucket)) {
    const object = await deps.objects.get(bucket, listed.key, { signal });
    if (!object) continue;
    const header = {
      name: `files/${listed.key}`,
      size: object.sizeBytes,
      mtime: object.lastModified,
      type: "file" as const,
      mode: 0o644,
      pax: { [contentTypeRecord]: object.contentType },
    };
    const measure = measuring();
    try {
      await pipeline(object.body, measure.through, tar.entry(header), { signal });
    } finally {
      object.body.destroy(); // a tar whose reader has left takes no entry, and the object's file must not stay open
    }
    checksums.push([listed.key, measure.result().sha256]);
  }
  return Object.fromEntries(checksums);
}
