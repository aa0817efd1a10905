import { randomUUID } from "node:crypto";
import { type FileHandle, link, mkdir, open, readdir, rename, rm, stat, unlink } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { fileNameOf, keyOfFileName } from "./file-name.ts";
import { MeteredStream, sourceOf } from "./metered.ts";
import { encodeFooter, type Footer, readFooter } from "./object-file.ts";
import {
  checkBucketName,
  defaultContentType,
  defaultListLimit,
  keyBytes,
  type ListedObject,
  type ListOptions,
  NoSuchBucket,
  ObjectExists,
  type ObjectInfo,
  type ObjectStore,
  type PutOptions,
  satisfiableRange,
} from "./store.ts";

/** Object files read at the same time for one page of a listing. */
const listReads = 32;

/**
 * The object store in a folder: `{root}/{bucket}/objects/{file name}`, one file per object (`file-name.ts`, `object-file.ts`), and
 * `{root}/{bucket}/uploads/` for those under way. Several processes may use one root. It needs a file system with hard links.
 */
export function fileSystemObjects(root: string): ObjectStore {
  const objectsOf = (bucket: string): string => join(bucketPath(root, bucket), "objects");
  const uploadsOf = (bucket: string): string => join(bucketPath(root, bucket), "uploads");
  const pathOf = (bucket: string, key: string): string => join(objectsOf(bucket), fileNameOf(keyBytes(key)));

  async function put(bucket: string, key: string, body: Readable | Buffer, options: PutOptions = {}): Promise<ObjectInfo> {
    const source = sourceOf(body);
    try {
      options.signal?.throwIfAborted();
      const path = pathOf(bucket, key);
      const upload = join(uploadsOf(bucket), randomUUID());
      const file = await open(upload, "wx").catch(absent(() => null));
      if (file === null) throw new NoSuchBucket(bucket);
      try {
        const footer = await writeObject(file, source, key, options).finally(() => file.close());
        options.signal?.throwIfAborted();
        await publish(upload, path, options.ifAbsent ? key : undefined);
        await syncFolder(objectsOf(bucket));
        return infoOf(footer);
      } finally {
        await rm(upload, { force: true });
      }
    } finally {
      source.destroy();
    }
  }

  async function list(bucket: string, options: ListOptions = {}): Promise<{ objects: ListedObject[]; next: string | null }> {
    const folder = objectsOf(bucket);
    const limit = options.limit ?? defaultListLimit;
    const names = await readdir(folder).catch(absent(() => []));
    const keys = await listedKeys(folder, names, Buffer.from(options.prefix ?? ""), Buffer.from(options.after ?? ""));
    const page = keys.slice(0, limit);
    const objects = await mapBounded(page, async (key) => {
      const footer = await footerAt(join(folder, fileNameOf(key)));
      return footer === null ? [] : [listed(footer)];
    });
    return { objects: objects.flat(), next: keys.length > limit ? (page.at(-1)?.toString() ?? null) : null };
  }

  return {
    async ensureBucket(bucket) {
      await mkdir(uploadsOf(bucket), { recursive: true });
      await mkdir(objectsOf(bucket), { recursive: true });
      await syncFolder(bucketPath(root, bucket));
      await syncFolder(root);
    },
    async deleteBucket(bucket) {
      // Renamed first: from one moment on nothing of it is there, however long the removal takes.
      const grave = join(root, `${bucket}.deleted-${randomUUID()}`);
      if (
        await rename(bucketPath(root, bucket), grave).then(
          () => true,
          absent(() => false),
        )
      )
        await syncFolder(root);
      const graves = (await readdir(root).catch(absent(() => []))).filter((name) => name.startsWith(`${bucket}.deleted-`));
      for (const name of graves) await rm(join(root, name), { recursive: true, force: true });
    },
    put,
    async get(bucket, key, options = {}) {
      options.signal?.throwIfAborted();
      const path = pathOf(bucket, key);
      const file = await open(path).catch(absent(() => null));
      if (file === null) return null;
      try {
        const info = infoOf(await readFooter(file, path));
        const whole = { start: 0, end: info.sizeBytes - 1 };
        const range = options.range ? satisfiableRange(options.range, info.sizeBytes) : whole;
        if (info.sizeBytes > 0)
          return { ...info, body: file.createReadStream({ ...range, ...(options.signal && { signal: options.signal }) }) };
        await file.close();
        return { ...info, body: Readable.from([]) };
      } catch (error) {
        await file.close();
        throw error;
      }
    },
    async head(bucket, key) {
      const footer = await footerAt(pathOf(bucket, key));
      return footer && infoOf(footer);
    },
    async delete(bucket, key) {
      const removed = await unlink(pathOf(bucket, key)).then(
        () => true,
        absent(() => false),
      );
      if (removed) await syncFolder(objectsOf(bucket)).catch(absent(() => undefined));
      return removed;
    },
    list,
    async sweep(bucket, before) {
      const folder = uploadsOf(bucket);
      let swept = 0;
      for (const name of await readdir(folder).catch(absent(() => []))) {
        const found = await stat(join(folder, name)).catch(absent(() => null));
        if (found === null || found.mtime >= before) continue;
        await rm(join(folder, name), { force: true });
        swept += 1;
      }
      return swept;
    },
    async check() {
      const probe = join(root, `probe-${randomUUID()}`);
      await mkdir(root, { recursive: true });
      await (await open(probe, "wx")).close();
      await unlink(probe);
    },
  };
}

function bucketPath(root: string, bucket: string): string {
  checkBucketName(bucket);
  return join(root, bucket);
}

/** Writes content and footer as they come and syncs the file. */
async function writeObject(file: FileHandle, source: Readable, key: string, options: PutOptions): Promise<Footer> {
  const metered = new MeteredStream(options.maxBytes);
  const write = async (content: AsyncIterable<Buffer>): Promise<void> => {
    // On a handle, writeFile goes on where the last write ended, and writes all of the chunk.
    for await (const chunk of content) await file.writeFile(chunk);
  };
  await pipeline(source, metered, write, { ...(options.signal && { signal: options.signal }) });
  const footer: Footer = {
    key,
    size_bytes: metered.sizeBytes,
    etag: metered.digest(),
    content_type: options.contentType ?? defaultContentType,
    modified_at: Date.now(),
  };
  await file.writeFile(encodeFooter(footer));
  await file.sync();
  return footer;
}

/** Makes the upload the object. `onceKey`: only when there is none yet, since a hard link, unlike a rename, does not replace. */
async function publish(upload: string, path: string, onceKey: string | undefined): Promise<void> {
  if (onceKey === undefined) return await rename(upload, path);
  await link(upload, path).catch((error: unknown) => {
    throw codeOf(error) === "EEXIST" ? new ObjectExists(onceKey) : error;
  });
}

/** Keys after `after` that begin with `prefix`, sorted by their bytes. Only names too long for a file name cost a read. */
async function listedKeys(folder: string, names: string[], prefix: Buffer, after: Buffer): Promise<Buffer[]> {
  const keys: Buffer[] = [];
  const unread: string[] = [];
  const isListed = (key: Buffer): boolean => key.subarray(0, prefix.length).equals(prefix) && Buffer.compare(key, after) > 0;
  for (const name of names) {
    const parsed = keyOfFileName(name);
    if (parsed === null) continue;
    if ("startsWith" in parsed) {
      const shared = Math.min(parsed.startsWith.length, prefix.length);
      if (parsed.startsWith.subarray(0, shared).equals(prefix.subarray(0, shared))) unread.push(name);
    } else if (isListed(parsed.key)) keys.push(parsed.key);
  }
  const read = await mapBounded(unread, async (name) => await footerAt(join(folder, name)));
  for (const footer of read) {
    const key = footer && Buffer.from(footer.key);
    if (key && isListed(key)) keys.push(key);
  }
  return keys.sort(Buffer.compare);
}

async function footerAt(path: string): Promise<Footer | null> {
  const file = await open(path).catch(absent(() => null));
  if (file === null) return null;
  return await readFooter(file, path).finally(() => file.close());
}

function infoOf(footer: Footer): ObjectInfo {
  return { ...listed(footer), contentType: footer.content_type };
}

function listed(footer: Footer): ListedObject {
  return { key: footer.key, sizeBytes: footer.size_bytes, etag: footer.etag, lastModified: new Date(footer.modified_at) };
}

/** Results in the order of the items, at most `listReads` at a time. */
async function mapBounded<T, R>(items: T[], each: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  const queue = items.entries();
  const work = async (): Promise<void> => {
    for (const [at, item] of queue) results[at] = await each(item);
  };
  await Promise.all(Array.from({ length: listReads }, work));
  return results;
}

/** A rename or link is durable only when its folder has been synced. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(path);
  await folder.sync().finally(() => folder.close());
}

function codeOf(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException).code;
}

/** Answers "no such file" with what `otherwise` makes; any other error goes on. */
function absent<T>(otherwise: () => T) {
  return (error: unknown): T => {
    if (codeOf(error) !== "ENOENT") throw error;
    return otherwise();
  };
}
