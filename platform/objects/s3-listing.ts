import { HeadObjectCommand, ListObjectsV2Command, type S3Client } from "@aws-sdk/client-s3";
import { ifMissing } from "./s3-errors.ts";
import { keyOfS3Name, s3PrefixOf, s3StartAfter } from "./s3-name.ts";
import { keyField, unquoted } from "./s3-put.ts";
import type { ListedObject } from "./store.ts";

type Found = { key: Buffer; object: ListedObject };
type Entry = { name: string; sizeBytes: number; etag: string; lastModified: Date };

const pageSize = 1_000;
/** Keys of long names asked for at the same time. */
const headsAtOnce = 16;

/** At most `limit` objects of a bucket after the key `after`, in the order of their keys. An absent bucket is empty. */
export async function listS3Objects(
  client: S3Client,
  bucket: string,
  prefix: Buffer,
  after: Buffer,
  limit: number,
): Promise<ListedObject[]> {
  const objects: ListedObject[] = [];
  if (limit < 1) return objects;
  for await (const { key, object } of inKeyOrder(client, bucket, namesAfter(client, bucket, prefix, after, limit))) {
    if (!key.subarray(0, prefix.length).equals(prefix) || Buffer.compare(key, after) <= 0) continue;
    objects.push(object);
    if (objects.length === limit) break;
  }
  return objects;
}

/** Entries as S3 lists them: by name, which is nearly the order of keys. The first page asks for no more than `limit`. */
async function* namesAfter(client: S3Client, bucket: string, prefix: Buffer, after: Buffer, limit: number): AsyncGenerator<Entry> {
  let token: string | undefined;
  let wanted = limit;
  do {
    const page = await client
      .send(
        new ListObjectsV2Command({
          Bucket: bucket,
          Prefix: s3PrefixOf(prefix),
          MaxKeys: Math.max(1, Math.min(pageSize, wanted)),
          ...(token !== undefined ? { ContinuationToken: token } : after.length > 0 && { StartAfter: s3StartAfter(after) }),
        }),
      )
      .catch(ifMissing(undefined));
    for (const { Key, Size, ETag, LastModified } of page?.Contents ?? []) {
      if (Key !== undefined) yield { name: Key, sizeBytes: Size ?? 0, etag: unquoted(ETag), lastModified: LastModified ?? new Date(0) };
    }
    wanted -= page?.Contents?.length ?? 0;
    // What the first page left unfilled may be many entries of one group: then ask for whole pages.
    if (wanted < 1) wanted = pageSize;
    token = page?.NextContinuationToken;
  } while (token !== undefined);
}

/** Names that hold their key are in order already; each group of digests is collected, its keys fetched and sorted. */
async function* inKeyOrder(client: S3Client, bucket: string, entries: AsyncIterable<Entry>): AsyncGenerator<Found> {
  let group: string | undefined;
  let held: Entry[] = [];
  for await (const entry of entries) {
    const parsed = keyOfS3Name(entry.name);
    const isHeld = parsed !== null && "group" in parsed;
    if (held.length > 0 && !(isHeld && parsed.group === group)) {
      yield* await sortedGroup(client, bucket, held);
      held = [];
    }
    if (isHeld) {
      group = parsed.group;
      held.push(entry);
    } else if (parsed !== null) {
      yield found(parsed.key, entry);
    }
  }
  yield* await sortedGroup(client, bucket, held);
}

async function sortedGroup(client: S3Client, bucket: string, entries: Entry[]): Promise<Found[]> {
  const group: Found[] = [];
  for (let at = 0; at < entries.length; at += headsAtOnce) {
    const heads = entries.slice(at, at + headsAtOnce).map(async (entry) => {
      const head = await client.send(new HeadObjectCommand({ Bucket: bucket, Key: entry.name })).catch(ifMissing(undefined));
      const key = head?.Metadata?.[keyField];
      return key === undefined ? [] : [found(Buffer.from(key, "base64url"), entry)];
    });
    group.push(...(await Promise.all(heads)).flat());
  }
  return group.sort((a, b) => Buffer.compare(a.key, b.key));
}

function found(key: Buffer, { sizeBytes, etag, lastModified }: Entry): Found {
  return { key, object: { key: key.toString(), sizeBytes, etag, lastModified } };
}
