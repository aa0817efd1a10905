import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { type Pack, pack } from "tar-stream";
import type { ListedObject, ObjectStore } from "#platform/objects/store.ts";

/** Every object of a bucket in key order, all pages followed. */
export async function* listAll(objects: ObjectStore, bucket: string, prefix?: string): AsyncGenerator<ListedObject> {
  let after: string | undefined;
  do {
    const page = await objects.list(bucket, { ...(prefix === undefined ? {} : { prefix }), ...(after === undefined ? {} : { after }) });
    yield* page.objects;
    after = page.next ?? undefined;
  } while (after !== undefined);
}

/**
 * Every object of a bucket as one tar, in key order, in constant memory: one object is open at a time and nothing is read ahead of the reader. A key that cannot be a
 * file beside another (`a` and `a/b`) is the reader's to resolve; the names are the keys. Long and odd names go into pax headers, which any tar reads.
 */
export function tarOf(objects: ObjectStore, bucket: string, signal: AbortSignal): Readable {
  const tar = pack();
  addObjects(tar, objects, bucket, "", signal)
    .then(() => tar.finalize())
    .catch((error: unknown) => tar.destroy(error instanceof Error ? error : new Error(String(error))));
  return Readable.from(tar, { objectMode: false });
}

/** Adds every object of a bucket to a tar under a folder. An object deleted since it was listed is left out. */
export async function addObjects(tar: Pack, objects: ObjectStore, bucket: string, folder: string, signal: AbortSignal): Promise<void> {
  for await (const listed of listAll(objects, bucket)) {
    const object = await objects.get(bucket, listed.key, { signal });
    if (!object) continue;
    try {
      const entry = tar.entry({
        name: `${folder}${listed.key}`,
        size: object.sizeBytes,
        mtime: object.lastModified,
        type: "file",
        mode: 0o644,
      });
      await pipeline(object.body, entry, { signal });
    } finally {
      object.body.destroy(); // a tar whose reader has left takes no entry, and the object's file must not stay open
    }
  }
}
