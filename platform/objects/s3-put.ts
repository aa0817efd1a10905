import { randomUUID } from "node:crypto";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { HeadObjectCommand, type S3Client } from "@aws-sdk/client-s3";
import { Upload } from "@aws-sdk/lib-storage";
import { MeteredStream, sourceOf } from "./metered.ts";
import { missing, statusOf } from "./s3-errors.ts";
import { keyOfS3Name, s3NameOf } from "./s3-name.ts";
import { defaultContentType, keyBytes, NoSuchBucket, ObjectExists, type ObjectInfo, type PutOptions } from "./store.ts";

/** S3 takes no smaller part but the last. A put holds at most two parts and the one being filled. */
const partBytes = 5 * 1024 * 1024;
const partsAtOnce = 2;
/** Metadata: the key, where the name could not hold it; and which put made the object. */
export const keyField = "kapstone-key";
const putField = "kapstone-put";

/** `ObjectStore.put` into the S3 bucket `bucket`. One request for a small body, else a multipart upload, which is aborted when the body or the signal fails it. */
export async function putS3Object(
  client: S3Client,
  bucket: string,
  key: string,
  body: Readable | Buffer,
  options: PutOptions,
): Promise<ObjectInfo> {
  const source = sourceOf(body);
  try {
    options.signal?.throwIfAborted();
    const bytes = keyBytes(key);
    const name = s3NameOf(bytes);
    const isKeyInName = "key" in (keyOfS3Name(name) ?? {});
    const id = randomUUID();
    const contentType = options.contentType ?? defaultContentType;
    const metered = new MeteredStream(options.maxBytes);
    const upload = new Upload({
      client,
      partSize: partBytes,
      queueSize: partsAtOnce,
      params: {
        Bucket: bucket,
        Key: name,
        Body: metered,
        ContentType: contentType,
        Metadata: { [putField]: id, ...(!isKeyInName && { [keyField]: bytes.toString("base64url") }) },
        ...(options.ifAbsent && { IfNoneMatch: "*" }),
      },
    });
    const [fed, sent] = await Promise.allSettled([
      pipeline(source, metered, { ...(options.signal && { signal: options.signal }) }),
      upload.done().catch((error: Error) => {
        metered.destroy(error);
        throw error;
      }),
    ]);
    const info = { key, sizeBytes: metered.sizeBytes, contentType, lastModified: new Date() };
    if (sent.status === "fulfilled") return { ...info, etag: unquoted(sent.value.ETag) };
    // A body that failed has failed the upload too, and says why.
    const cause: unknown = fed.status === "rejected" ? fed.reason : sent.reason;
    if (missing(cause)) throw new NoSuchBucket(bucket);
    if (!options.ifAbsent || ![409, 412].includes(statusOf(cause) ?? 0)) throw cause;
    // "Exists" may be the answer to a second try of a put whose first try worked.
    const found = await client.send(new HeadObjectCommand({ Bucket: bucket, Key: name })).catch((error: unknown) => {
      if (!missing(error)) throw error;
    });
    if (found === undefined) throw cause;
    if (found.Metadata?.[putField] !== id) throw new ObjectExists(key);
    return { ...info, etag: unquoted(found.ETag) };
  } finally {
    source.destroy();
  }
}

/** S3 quotes its tags; the port does not. */
export function unquoted(etag: string | undefined): string {
  return (etag ?? "").replaceAll('"', "");
}
