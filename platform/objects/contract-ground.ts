import { randomBytes } from "node:crypto";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { afterAll, beforeAll, beforeEach, describe, expect } from "vitest";
import { fileSystemObjects } from "./files.ts";
import { type S3Options, s3Objects } from "./s3.ts";
import type { ObjectStore } from "./store.ts";

interface Subject {
  objects: ObjectStore;
  /** A store of the same kind that cannot work. */
  broken: ObjectStore;
  /** What a child process needs to open the same store. */
  forChild: object;
  close(): Promise<void>;
}

async function fileSystem(): Promise<Subject> {
  const folder = await mkdtemp(join(tmpdir(), "objects-"));
  const root = join(folder, "root");
  const file = join(folder, "file");
  await writeFile(file, "");
  return {
    objects: fileSystemObjects(root),
    broken: fileSystemObjects(join(file, "root")),
    forChild: { root },
    close: async () => {
      // Whatever the keys were, nothing stands beside the root.
      expect((await readdir(folder)).sort()).toEqual(["file", "root"]);
      await rm(folder, { recursive: true });
    },
  };
}

async function s3(endpoint: string): Promise<Subject> {
  const options: S3Options = {
    endpoint,
    region: process.env.S3_REGION ?? "us-east-1",
    accessKeyId: process.env.S3_ACCESS_KEY_ID ?? "",
    secretAccessKey: process.env.S3_SECRET_ACCESS_KEY ?? "",
    forcePathStyle: true,
    bucketPrefix: `t${randomBytes(4).toString("hex")}-`,
  };
  const objects = s3Objects(options);
  const broken = s3Objects({ ...options, endpoint: "http://127.0.0.1:1" });
  return {
    objects,
    broken,
    forChild: { s3: options },
    close: async () => {
      objects.close();
      broken.close();
    },
  };
}

/** What a test of the contract stands on: a store, and a bucket of the test's own. */
export interface ContractGround {
  readonly subject: Subject;
  readonly objects: ObjectStore;
  readonly bucket: string;
  /** A further bucket, removed with the others. */
  further(): Promise<string>;
  /** The text of an object of the bucket, or null. */
  read(key: string, range?: { start: number; end: number }): Promise<string | null>;
  /** All keys of the bucket, page by page. */
  listAll(options?: { prefix?: string; after?: string; limit?: number }): Promise<string[]>;
  /** Puts an object under each key: the key's own text. */
  fill(keys: string[]): Promise<void>;
}

/** One contract for every adapter. The S3 half runs where `S3_ENDPOINT` (and S3_REGION, S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY) name a server. */
export function describeStores(contract: (ground: ContractGround) => void): void {
  describe("objects in a folder", () => contract(layGround(fileSystem)));
  const endpoint = process.env.S3_ENDPOINT;
  if (endpoint) describe("objects in S3", () => contract(layGround(() => s3(endpoint))));
  else console.info("S3_ENDPOINT is not set: the object store's contract is tested on the file system only.");
}

function layGround(open: () => Promise<Subject>): ContractGround {
  let subject: Subject;
  let objects: ObjectStore;
  let bucket: string;
  const buckets: string[] = [];
  const further = async (): Promise<string> => {
    const made = `kap-${randomBytes(8).toString("hex")}`;
    buckets.push(made);
    await objects.ensureBucket(made);
    return made;
  };

  beforeAll(async () => {
    subject = await open();
    objects = subject.objects;
  });
  beforeEach(async () => {
    bucket = await further();
  });
  afterAll(async () => {
    for (const used of buckets) await objects.deleteBucket(used);
    await subject.close();
  });

  return {
    get subject() {
      return subject;
    },
    get objects() {
      return objects;
    },
    get bucket() {
      return bucket;
    },
    further,
    async read(key, range) {
      const found = await objects.get(bucket, key, range ? { range } : {});
      return found && (await buffer(found.body)).toString();
    },
    async listAll(options = {}) {
      const keys: string[] = [];
      for (let after: string | null = options.after ?? ""; after !== null; ) {
        const page: Awaited<ReturnType<ObjectStore["list"]>> = await objects.list(bucket, { ...options, after });
        keys.push(...page.objects.map((object) => object.key));
        after = page.next;
      }
      return keys;
    },
    async fill(keys) {
      const queue = keys.values();
      const work = async () => {
        for (const key of queue) await objects.put(bucket, key, Buffer.from(key));
      };
      await Promise.all(Array.from({ length: 24 }, work));
    },
  };
}
