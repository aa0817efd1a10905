import { addAbortSignal, Readable } from "node:stream";
import {
  AbortMultipartUploadCommand,
  CreateBucketCommand,
  DeleteBucketCommand,
  DeleteObjectCommand,
  DeleteObjectsCommand,
  GetObjectCommand,
  HeadBucketCommand,
  HeadObjectCommand,
  ListBucketsCommand,
  ListMultipartUploadsCommand,
  type ListMultipartUploadsCommandOutput,
  ListObjectsV2Command,
  S3Client,
} from "@aws-sdk/client-s3";
import { ifMissing, missing, statusOf } from "./s3-errors.ts";
import { listS3Objects } from "./s3-listing.ts";
import { s3NameOf } from "./s3-name.ts";
import { putS3Object, unquoted } from "./s3-put.ts";
import {
  checkBucketName,
  defaultContentType,
  defaultListLimit,
  keyBytes,
  type ObjectInfo,
  type ObjectStore,
  RangeNotSatisfiable,
} from "./store.ts";

export interface S3Options {
  endpoint: string;
  region: string;
  accessKeyId: string;
  secretAccessKey: string;
  /** True for most servers that are not AWS: the bucket is in the path, not in the host name. */
  forcePathStyle: boolean;
  /** Put before every bucket name, so that deployments can share an account. */
  bucketPrefix: string;
}

const endOfTime = new Date(8.64e15);
/** Milliseconds; a request that has no answer by then fails, after three tries. */
const deadlines = { connectionTimeout: 5_000, requestTimeout: 60_000, throwOnRequestTimeout: true, socketTimeout: 60_000 };
/** Connections at a time. Each reader of an object holds one until its end, however slowly it reads: with the library's 50 a few would stop all others. */
const agent = { maxSockets: 2_000 };

/** The object store in S3 or a server that speaks it. Names there are not the keys: see `s3-name.ts`. `close` ends idle connections. */
export function s3Objects(options: S3Options): ObjectStore & { close(): void } {
  const client = new S3Client({
    endpoint: options.endpoint,
    region: options.region,
    credentials: { accessKeyId: options.accessKeyId, secretAccessKey: options.secretAccessKey },
    forcePathStyle: options.forcePathStyle,
    // Servers that are not AWS know few of the newer checksums; where S3 asks for one it is sent.
    requestChecksumCalculation: "WHEN_REQUIRED",
    responseChecksumValidation: "WHEN_REQUIRED",
    maxAttempts: 3,
    requestHandler: { ...deadlines, httpAgent: agent, httpsAgent: agent },
  });
  const bucketOf = (bucket: string): string => {
    checkBucketName(options.bucketPrefix + bucket);
    return options.bucketPrefix + bucket;
  };
  const placeOf = (bucket: string, key: string) => ({ Bucket: bucketOf(bucket), Key: s3NameOf(keyBytes(key)) });

  async function head(bucket: string, key: string): Promise<ObjectInfo | null> {
    const found = await client.send(new HeadObjectCommand(placeOf(bucket, key))).catch(ifMissing(null));
    return found && infoOf(key, found.ContentLength ?? 0, found);
  }

  return {
    async ensureBucket(bucket) {
      const Bucket = bucketOf(bucket);
      const isThere = () => client.send(new HeadBucketCommand({ Bucket })).then(() => true, ifMissing(false));
      if (await isThere()) return;
      await client.send(new CreateBucketCommand({ Bucket })).catch(async (error: unknown) => {
        if (statusOf(error) !== 409 || !(await isThere())) throw error;
      });
    },
    async deleteBucket(bucket) {
      const Bucket = bucketOf(bucket);
      await abortUploads(client, Bucket, endOfTime);
      // Refused with 409 when something was put in the meantime: then once more.
      for (let triesLeft = 10; triesLeft > 0; triesLeft -= 1) {
        await deleteAllObjects(client, Bucket);
        const refusal: unknown = await client.send(new DeleteBucketCommand({ Bucket })).then(
          () => null,
          (error: unknown) => error,
        );
        if (refusal === null || missing(refusal)) return;
        if (statusOf(refusal) !== 409 || triesLeft === 1) throw refusal;
      }
    },
    async put(bucket, key, body, put = {}) {
      return await putS3Object(client, bucketOf(bucket), key, body, put);
    },
    async get(bucket, key, { range, signal } = {}) {
      const whole = async () => (await head(bucket, key))?.sizeBytes;
      if (range && !(range.start >= 0 && range.start <= range.end)) {
        const sizeBytes = await whole();
        return sizeBytes === undefined ? null : Promise.reject(new RangeNotSatisfiable(sizeBytes));
      }
      const request = new GetObjectCommand({ ...placeOf(bucket, key), ...(range && { Range: `bytes=${range.start}-${range.end}` }) });
      const found = await client.send(request, { ...(signal && { abortSignal: signal }) }).catch(async (error: unknown) => {
        if (statusOf(error) === 416) throw new RangeNotSatisfiable((await whole()) ?? 0);
        return ifMissing(null)(error);
      });
      if (!(found?.Body instanceof Readable)) return null;
      const sizeBytes = Number(found.ContentRange?.split("/")[1] ?? found.ContentLength);
      const body: Readable = found.Body;
      return { ...infoOf(key, sizeBytes, found), body: signal ? addAbortSignal(signal, body) : body };
    },
    head,
    async delete(bucket, key) {
      const wasThere = (await head(bucket, key)) !== null;
      if (wasThere) await client.send(new DeleteObjectCommand(placeOf(bucket, key))).catch(ifMissing(null));
      return wasThere;
    },
    async list(bucket, { prefix = "", after = "", limit = defaultListLimit } = {}) {
      const found = await listS3Objects(client, bucketOf(bucket), Buffer.from(prefix), Buffer.from(after), limit + 1);
      const objects = found.slice(0, limit);
      return { objects, next: found.length > limit ? (objects.at(-1)?.key ?? null) : null };
    },
    async sweep(bucket, before) {
      return await abortUploads(client, bucketOf(bucket), before);
    },
    async check() {
      await client.send(new ListBucketsCommand({ MaxBuckets: 1, Prefix: options.bucketPrefix || undefined }));
    },
    close: () => client.destroy(),
  };
}

interface Described {
  ETag?: string | undefined;
  ContentType?: string | undefined;
  LastModified?: Date | undefined;
}

function infoOf(key: string, sizeBytes: number, { ETag, ContentType, LastModified }: Described): ObjectInfo {
  return {
    key,
    sizeBytes,
    etag: unquoted(ETag),
    contentType: ContentType ?? defaultContentType,
    lastModified: LastModified ?? new Date(0),
  };
}

async function deleteAllObjects(client: S3Client, bucket: string): Promise<void> {
  for (;;) {
    const page = await client.send(new ListObjectsV2Command({ Bucket: bucket })).catch(ifMissing(undefined));
    const names = (page?.Contents ?? []).map(({ Key }) => ({ Key }));
    if (names.length === 0) return;
    const { Errors } = await client.send(new DeleteObjectsCommand({ Bucket: bucket, Delete: { Objects: names, Quiet: true } }));
    if (Errors?.[0])
      throw new Error(`The bucket ${bucket} could not be emptied: ${Errors[0].Code} ${Errors[0].Message} on ${Errors[0].Key}`);
  }
}

/** Ends multipart uploads begun before a time; their parts take room until then, though nobody sees them. */
async function abortUploads(client: S3Client, bucket: string, before: Date): Promise<number> {
  let aborted = 0;
  let from: { KeyMarker?: string | undefined; UploadIdMarker?: string | undefined } | undefined = {};
  while (from !== undefined) {
    const page: ListMultipartUploadsCommandOutput | undefined = await client
      .send(new ListMultipartUploadsCommand({ Bucket: bucket, ...from }))
      .catch(ifMissing(undefined));
    for (const { Key, UploadId, Initiated } of page?.Uploads ?? []) {
      if (Initiated !== undefined && Initiated >= before) continue;
      await client.send(new AbortMultipartUploadCommand({ Bucket: bucket, Key, UploadId })).catch(ifMissing(undefined));
      aborted += 1;
    }
    from = page?.IsTruncated ? { KeyMarker: page.NextKeyMarker, UploadIdMarker: page.NextUploadIdMarker } : undefined;
  }
  return aborted;
}
