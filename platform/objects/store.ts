import type { Readable } from "node:stream";

/** What is known of a stored object. `etag` is opaque and unquoted: it changes with every put that changes the content, and adapters form it differently. */
export interface ObjectInfo {
  key: string;
  sizeBytes: number;
  etag: string;
  contentType: string;
  lastModified: Date;
}

/** A line of a listing. S3 does not tell content types in listings, so the port does not promise them: `head` does. */
export type ListedObject = Omit<ObjectInfo, "contentType">;

export interface PutOptions {
  /** Kept and given back as it is; `application/octet-stream` when absent. */
  contentType?: string;
  /** Write once: `ObjectExists` when the key is taken. Of concurrent puts exactly one wins. */
  ifAbsent?: boolean;
  /** Most bytes the body may have; `ObjectTooLarge` as soon as it has more. */
  maxBytes?: number;
  signal?: AbortSignal;
}

/** Both ends inclusive, from 0. An `end` past the last byte means the last byte. */
export interface ByteRange {
  start: number;
  end: number;
}

export interface ListOptions {
  prefix?: string;
  /** Exclusive: the listing goes on with the first key after this one. */
  after?: string;
  /** Default 1,000. */
  limit?: number;
}

/**
 * The port to the object store. Keys are any well-formed text of 1 to 1,024 bytes of UTF-8, with no meaning in any character: `a`, `a/b`, `a//b` and `A`
 * are four objects. Buckets are names as S3 takes them. A read of a bucket that does not exist finds nothing; a put there throws `NoSuchBucket`.
 */
export interface ObjectStore {
  ensureBucket(bucket: string): Promise<void>;
  /** Removes the bucket with everything in it. An absent bucket is fine. */
  deleteBucket(bucket: string): Promise<void>;
  /**
   * Stores the whole body under the key, replacing what was there. Durable when the promise fulfils; until then, and for ever when it rejects, readers see what was
   * there before. The body is read with back-pressure in constant memory, and destroyed when the put fails. Throws `ObjectExists`, `ObjectTooLarge`, `NoSuchBucket`.
   */
  put(bucket: string, key: string, body: Readable | Buffer, options?: PutOptions): Promise<ObjectInfo>;
  /**
   * The object with its bytes, or null. `sizeBytes` is the object's size, whatever the range. The body is of one version of the object even while it is overwritten;
   * the caller reads it to its end or destroys it. Throws `RangeNotSatisfiable` when no byte lies in the range.
   */
  get(
    bucket: string,
    key: string,
    options?: { range?: ByteRange; signal?: AbortSignal },
  ): Promise<(ObjectInfo & { body: Readable }) | null>;
  head(bucket: string, key: string): Promise<ObjectInfo | null>;
  /** True when the object was there. */
  delete(bucket: string, key: string): Promise<boolean>;
  /** Objects in the order of their keys' UTF-8 bytes. `next` is the `after` of the following page, null at the end. */
  list(bucket: string, options?: ListOptions): Promise<{ objects: ListedObject[]; next: string | null }>;
  /** Removes what puts that died before their end have left behind, if begun before `before`. Answers how many there were. */
  sweep(bucket: string, before: Date): Promise<number>;
  /** Readiness: throws with the cause when the store cannot be used. */
  check(): Promise<void>;
}

export class ObjectExists extends Error {
  override name = "ObjectExists";
  constructor(key: string) {
    super(`The object ${JSON.stringify(key)} exists already and is written once; choose another key.`);
  }
}

export class ObjectTooLarge extends Error {
  override name = "ObjectTooLarge";
  readonly maxBytes: number;
  constructor(maxBytes: number) {
    super(`The object is larger than the ${maxBytes} bytes allowed; send a smaller one.`);
    this.maxBytes = maxBytes;
  }
}

export class RangeNotSatisfiable extends Error {
  override name = "RangeNotSatisfiable";
  /** Of the whole object: the number for `Content-Range: bytes * / size`. */
  readonly sizeBytes: number;
  constructor(sizeBytes: number) {
    super(`No byte of the object lies in the range; it has ${sizeBytes} bytes.`);
    this.sizeBytes = sizeBytes;
  }
}

export class NoSuchBucket extends Error {
  override name = "NoSuchBucket";
  constructor(bucket: string) {
    super(`The bucket ${bucket} does not exist; make it with ensureBucket first.`);
  }
}

export const defaultContentType = "application/octet-stream";
export const defaultListLimit = 1_000;
const maxKeyBytes = 1_024;

/** The key's UTF-8 bytes, which are its identity and its place in listings. Throws `TypeError` on a key outside 1 to 1,024 bytes or with a lone surrogate. */
export function keyBytes(key: string): Buffer {
  const bytes = Buffer.from(key);
  if (!key.isWellFormed() || bytes.length === 0 || bytes.length > maxKeyBytes) {
    throw new TypeError(`An object key is 1 to ${maxKeyBytes} bytes of well-formed UTF-8; this one has ${bytes.length}.`);
  }
  return bytes;
}

/** Throws `TypeError` unless the name is one that S3 takes: so no bucket name leaves the store's root. */
export function checkBucketName(bucket: string): void {
  if (!/^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$/.test(bucket)) {
    throw new TypeError(`A bucket name is 3 to 63 lowercase letters, digits and hyphens, not ${JSON.stringify(bucket)}.`);
  }
}

/** The range cut to the object's size. Throws `RangeNotSatisfiable` when nothing is left. */
export function satisfiableRange(range: ByteRange, sizeBytes: number): ByteRange {
  const end = Math.min(range.end, sizeBytes - 1);
  if (!Number.isSafeInteger(range.start) || range.start < 0 || range.start > end) throw new RangeNotSatisfiable(sizeBytes);
  return { start: range.start, end };
}
