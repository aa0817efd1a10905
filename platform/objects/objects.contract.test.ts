import { type ChildProcess, spawn } from "node:child_process";
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { buffer, text } from "node:stream/consumers";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { fileSystemObjects } from "./files.ts";
import { type S3Options, s3Objects } from "./s3.ts";
import { NoSuchBucket, ObjectExists, type ObjectStore, ObjectTooLarge, RangeNotSatisfiable } from "./store.ts";

const mebibyte = 1024 * 1024;

/** One contract for every adapter. The S3 half runs where `S3_ENDPOINT` (and S3_REGION, S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY) name a server. */
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

describe("objects in a folder", () => contract(fileSystem));
const endpoint = process.env.S3_ENDPOINT;
if (endpoint) describe("objects in S3", () => contract(() => s3(endpoint)));
else console.info("S3_ENDPOINT is not set: the object store's contract is tested on the file system only.");

function contract(open: () => Promise<Subject>): void {
  let subject: Subject;
  let objects: ObjectStore;
  let bucket: string;
  const buckets: string[] = [];

  beforeAll(async () => {
    subject = await open();
    objects = subject.objects;
  });
  beforeEach(async () => {
    bucket = `kap-${randomBytes(8).toString("hex")}`;
    buckets.push(bucket);
    await objects.ensureBucket(bucket);
  });
  afterAll(async () => {
    for (const used of buckets) await objects.deleteBucket(used);
    await subject.close();
  });

  async function read(key: string, range?: { start: number; end: number }): Promise<string | null> {
    const found = await objects.get(bucket, key, range ? { range } : {});
    return found && (await buffer(found.body)).toString();
  }
  async function listAll(options: { prefix?: string; after?: string; limit?: number } = {}): Promise<string[]> {
    const keys: string[] = [];
    for (let after: string | null = options.after ?? ""; after !== null; ) {
      const page: Awaited<ReturnType<ObjectStore["list"]>> = await objects.list(bucket, { ...options, after });
      keys.push(...page.objects.map((object) => object.key));
      after = page.next;
    }
    return keys;
  }
  async function fill(keys: string[]): Promise<void> {
    const queue = keys.values();
    const work = async () => {
      for (const key of queue) await objects.put(bucket, key, Buffer.from(key));
    };
    await Promise.all(Array.from({ length: 24 }, work));
  }

  test("what was put is read back with its size, content type, tag and time", async () => {
    const content = randomBytes(100_000);
    const began = Date.now();
    const stored = await objects.put(bucket, "a.bin", content, { contentType: "text/plain; charset=utf-8" });
    const found = (await objects.get(bucket, "a.bin"))!;
    expect((await buffer(found.body)).equals(content)).toBe(true);
    expect(found).toMatchObject({ key: "a.bin", sizeBytes: 100_000, contentType: "text/plain; charset=utf-8", etag: stored.etag });
    expect(Math.abs(found.lastModified.getTime() - began)).toBeLessThan(60_000);
    expect(await objects.head(bucket, "a.bin")).toMatchObject({
      sizeBytes: 100_000,
      contentType: "text/plain; charset=utf-8",
      etag: stored.etag,
    });
    expect(stored.etag).toMatch(/^[^"]+$/);
  });

  test("an object without bytes and without a type is an object", async () => {
    await objects.put(bucket, "empty", Readable.from([]));
    expect(await objects.head(bucket, "empty")).toMatchObject({ sizeBytes: 0, contentType: "application/octet-stream" });
    expect(await read("empty")).toBe("");
  });

  test("what is not there is null, not an error; delete tells whether it was there", async () => {
    expect(await objects.get(bucket, "a")).toBeNull();
    expect(await objects.head(bucket, "a")).toBeNull();
    expect(await objects.delete(bucket, "a")).toBe(false);
    await objects.put(bucket, "a", Buffer.from("1"));
    expect(await objects.delete(bucket, "a")).toBe(true);
    expect(await objects.get(bucket, "a")).toBeNull();
    expect(await objects.delete(bucket, "a")).toBe(false);
  });

  test("a second put replaces content, type and tag together", async () => {
    const first = await objects.put(bucket, "a", Buffer.from("one"), { contentType: "text/plain" });
    const second = await objects.put(bucket, "a", Buffer.from("three"), { contentType: "text/html" });
    expect(second.etag).not.toBe(first.etag);
    expect(await read("a")).toBe("three");
    expect(await objects.head(bucket, "a")).toMatchObject({ sizeBytes: 5, contentType: "text/html", etag: second.etag });
  });

  test.each([
    ["small", 16, 1_000],
    ["in several parts", 4, 6 * mebibyte],
  ])("of concurrent write-once puts (%s) exactly one wins and the others are refused", async (_, writers, sizeBytes) => {
    const bodies = Array.from({ length: writers }, (_, n) => Buffer.alloc(sizeBytes, 65 + n));
    const results = await Promise.allSettled(bodies.map((body) => objects.put(bucket, "once", Readable.from([body]), { ifAbsent: true })));
    const winners = results.flatMap((result, n) => (result.status === "fulfilled" ? [n] : []));
    expect(winners).toHaveLength(1);
    for (const result of results) if (result.status === "rejected") expect(result.reason).toBeInstanceOf(ObjectExists);
    const found = (await objects.get(bucket, "once"))!;
    expect((await buffer(found.body)).equals(bodies[winners[0]!]!)).toBe(true);
    await expect(objects.put(bucket, "once", Buffer.from("late"), { ifAbsent: true })).rejects.toBeInstanceOf(ObjectExists);
  });

  test("ranges are inclusive, cut at the end, and refused with the size when no byte lies in them", async () => {
    await objects.put(bucket, "digits", Buffer.from("0123456789"));
    expect(await read("digits", { start: 0, end: 0 })).toBe("0");
    expect(await read("digits", { start: 3, end: 5 })).toBe("345");
    expect(await read("digits", { start: 9, end: 9 })).toBe("9");
    expect(await read("digits", { start: 0, end: 9 })).toBe("0123456789");
    expect(await read("digits", { start: 8, end: 10_000_000_000 })).toBe("89");
    const part = (await objects.get(bucket, "digits", { range: { start: 2, end: 3 } }))!;
    expect([part.sizeBytes, await text(part.body)]).toEqual([10, "23"]);
    for (const range of [
      { start: 10, end: 12 },
      { start: 5, end: 4 },
    ]) {
      const refused = await objects.get(bucket, "digits", { range }).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(RangeNotSatisfiable);
      expect((refused as RangeNotSatisfiable).sizeBytes).toBe(10);
    }
    await objects.put(bucket, "empty", Buffer.alloc(0));
    await expect(objects.get(bucket, "empty", { range: { start: 0, end: 0 } })).rejects.toBeInstanceOf(RangeNotSatisfiable);
    expect(await objects.get(bucket, "nothing", { range: { start: 0, end: 0 } })).toBeNull();
  });

  const oddKeys = [
    ..."aAbBäß€z~!'\".-_+%#?&=;:,*<>|\\^`{}[]()@$ \u0001\u007f\u{1f600}",
    ..."a/ a/b a//b a/b/ a/b/c a// // a.b a-b a0 A/b a%2Fb a%2fb %2F %252F a+b a%20b ä/ö ... .a a. .hidden a/./b a/../b".split(" "),
    ..."con CON con.txt nul aux.js COM1 lpt9 desktop.ini .sgwtmp .DS_Store __proto__ constructor".split(" "),
    ..."e\u0301 \u00e9 \u0000 a\u0000b /a /etc/passwd . .. ../../x ../objects/a=  uploads objects \ufeff \uffff \u2028"
      .split(" ")
      .filter((key) => key !== ""),
    "with space",
    " lead",
    "trail ",
    "tab\tline\r\nend",
    "x".repeat(255),
    "x".repeat(256),
    "x".repeat(1_024),
    "/".repeat(1_024),
    `${"x".repeat(1_023)}X`,
    "é".repeat(512),
    "😀".repeat(256),
    "s".repeat(199),
    "s".repeat(200),
    "s".repeat(201),
    `${"x/".repeat(511)}xy`,
  ];
  const byBytes = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b));

  test("any key is one object: none is another's folder, case, escape or normal form; listed in byte order", async () => {
    const keys = [...new Set(oddKeys)];
    await fill(keys);
    expect(await listAll()).toEqual(keys.toSorted(byBytes));
    for (const key of keys) expect(await read(key), JSON.stringify(key)).toBe(key);
    for (const prefix of ["a", "a/", "a//", "x", "xx", "é", "/", "x".repeat(256), "x".repeat(900), "%2", "/".repeat(900)]) {
      expect(await listAll({ prefix }), prefix).toEqual(keys.filter((key) => key.startsWith(prefix)).sort(byBytes));
    }
    for (const key of keys) {
      expect(await objects.delete(bucket, key), JSON.stringify(key)).toBe(true);
      expect(await objects.head(bucket, key)).toBeNull();
    }
    expect(await listAll()).toEqual([]);
  });

  test("what is no key or no bucket is refused by a TypeError", async () => {
    for (const key of ["", "x".repeat(1_025), "é".repeat(513), "\ud800", "a\udc00b"]) {
      await expect(objects.put(bucket, key, Buffer.from("x"))).rejects.toThrow(TypeError);
    }
    for (const name of ["", "..", "../x", "a/b", "A-b", ".abc", "a\u0000b", "x".repeat(64)]) {
      await expect(objects.put(name, "a", Buffer.from("x"))).rejects.toThrow(TypeError);
      await expect(objects.ensureBucket(name)).rejects.toThrow(TypeError);
      await expect(objects.deleteBucket(name)).rejects.toThrow(TypeError);
    }
  });

  test("a listing of more than 1,000 goes on page by page, by prefix and after any key", async () => {
    const keys = Array.from({ length: 2_100 }, (_, n) => `${n % 3 === 0 ? "odd/é" : "even/"}${String(n).padStart(5, "0")}`).sort(byBytes);
    await fill(keys);
    expect(await listAll()).toEqual(keys);
    expect((await objects.list(bucket)).objects).toHaveLength(1_000);
    expect(await listAll({ limit: 700 })).toEqual(keys);
    expect(await listAll({ prefix: "odd/", limit: 100 })).toEqual(keys.filter((key) => key.startsWith("odd/")));
    expect(await listAll({ after: "even/01000" })).toEqual(keys.filter((key) => byBytes(key, "even/01000") > 0));
    expect(await listAll({ after: "even/01000+" })).toEqual(keys.filter((key) => byBytes(key, "even/01000+") > 0));
    expect(await objects.list(bucket, { after: keys.at(-1)! })).toEqual({ objects: [], next: null });
    expect((await objects.list(bucket, { limit: keys.length })).next).toBeNull();
    expect((await objects.list(bucket, { limit: 1 })).objects[0]).toMatchObject({ key: keys[0], sizeBytes: Buffer.byteLength(keys[0]!) });
  });

  test("keys that differ only near their 1,024th byte are listed in order, page by page", async () => {
    const long = "l".repeat(1_000);
    const keys = [
      long.slice(0, 880),
      long.slice(0, 881),
      long,
      ...Array.from({ length: 40 }, (_, n) => `${long}${n}`),
      `${long.slice(0, 880)}m`,
    ].sort(byBytes);
    await fill([...keys, "k", "m"]);
    expect(await listAll({ limit: 7 })).toEqual(["k", ...keys, "m"]);
    expect(await listAll({ limit: 3, after: `${long}20` })).toEqual([...keys.filter((key) => byBytes(key, `${long}20`) > 0), "m"]);
    expect(await listAll({ prefix: `${long}3` })).toEqual(keys.filter((key) => key.startsWith(`${long}3`)));
  });

  test("96 MiB stream in and out in constant memory", async () => {
    setFlagsFromString("--expose-gc");
    const gc = runInNewContext("gc") as () => void;
    const chunk = randomBytes(mebibyte);
    let peakBytes = 0;
    const sample = () => {
      gc();
      peakBytes = Math.max(peakBytes, process.memoryUsage().arrayBuffers);
    };
    sample();
    const before = peakBytes;
    async function* body() {
      for (let n = 0; n < 96; n += 1) {
        if (n % 8 === 0) sample();
        yield chunk;
      }
    }
    const stored = await objects.put(bucket, "large", Readable.from(body()));
    expect(stored.sizeBytes).toBe(96 * mebibyte);
    const found = (await objects.get(bucket, "large"))!;
    const expected = createHash("sha256");
    for (let n = 0; n < 96; n += 1) expected.update(chunk);
    const actual = createHash("sha256");
    let sinceSample = 0;
    for await (const piece of found.body as AsyncIterable<Buffer>) {
      actual.update(piece);
      sinceSample += piece.length;
      if (sinceSample > 8 * mebibyte) {
        sample();
        sinceSample = 0;
      }
    }
    expect(actual.digest("hex")).toBe(expected.digest("hex"));
    expect((peakBytes - before) / mebibyte).toBeLessThan(40);
  });

  test.each([1_000, 7 * mebibyte])(
    "a body of more than %i bytes is refused while it streams, and what was there stays",
    async (maxBytes) => {
      await objects.put(bucket, "a", Buffer.from("before"));
      let givenBytes = 0;
      async function* endless() {
        for (;;) {
          givenBytes += 65_536;
          yield Buffer.alloc(65_536);
        }
      }
      const source = Readable.from(endless());
      const refused = await objects.put(bucket, "a", source, { maxBytes }).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(ObjectTooLarge);
      expect((refused as ObjectTooLarge).maxBytes).toBe(maxBytes);
      expect(source.destroyed).toBe(true);
      expect(givenBytes).toBeLessThan(maxBytes + 8 * mebibyte);
      await expect(objects.put(bucket, "b", Readable.from(endless()), { maxBytes, ifAbsent: true })).rejects.toBeInstanceOf(ObjectTooLarge);
      expect(await read("a")).toBe("before");
      expect(await listAll()).toEqual(["a"]);
      expect((await objects.put(bucket, "c", Buffer.alloc(maxBytes), { maxBytes })).sizeBytes).toBe(maxBytes);
      expect(await objects.sweep(bucket, new Date(Date.now() + 60_000))).toBe(0);
    },
  );

  test.each([10, 6 * mebibyte])("a body that fails after %i bytes, ends early or is aborted leaves nothing", async (sizeBytes) => {
    async function* failing() {
      yield Buffer.alloc(sizeBytes);
      throw new Error("the caller went away");
    }
    await expect(objects.put(bucket, "a", Readable.from(failing()))).rejects.toThrow("the caller went away");

    const cut = new Readable({ read() {} });
    cut.push(Buffer.alloc(sizeBytes));
    setImmediate(() => cut.destroy());
    await expect(objects.put(bucket, "a", cut)).rejects.toThrow();

    const abort = new AbortController();
    const waiting = new Readable({
      read() {
        setImmediate(() => abort.abort(new Error("too slow")));
      },
    });
    waiting.push(Buffer.alloc(sizeBytes));
    await expect(objects.put(bucket, "a", waiting, { signal: abort.signal })).rejects.toThrow();
    expect(waiting.destroyed).toBe(true);
    await expect(objects.put(bucket, "a", Buffer.from("x"), { signal: abort.signal })).rejects.toThrow("too slow");

    const dead = new Readable({ read() {} });
    dead.destroy(new Error("dead on arrival"));
    await expect(objects.put(bucket, "a", dead)).rejects.toThrow("dead on arrival");

    expect(await objects.head(bucket, "a")).toBeNull();
    expect(await listAll()).toEqual([]);
    expect(await objects.sweep(bucket, new Date(Date.now() + 60_000))).toBe(0);
  });

  test("an aborted read ends with an error", async () => {
    await objects.put(bucket, "a", Buffer.alloc(8 * mebibyte));
    const abort = new AbortController();
    const found = (await objects.get(bucket, "a", { signal: abort.signal }))!;
    abort.abort();
    await expect(buffer(found.body)).rejects.toThrow();
    await expect(objects.get(bucket, "a", { signal: abort.signal })).rejects.toThrow();
  });

  test("readers during overwrites see one whole version each, with its own tag and type", async () => {
    const bodies = ["A", "B", "C"].map((letter, n) => Buffer.alloc(300_000 + n * 50_000, letter));
    const put = (n: number) => objects.put(bucket, "a", Readable.from([bodies[n % 3]!]), { contentType: `text/${"abc"[n % 3]}` });
    await put(0);
    let isWriting = true;
    const write = async () => {
      for (let n = 1; n <= 40; n += 1) await put(n);
      isWriting = false;
    };
    const readWhole = async () => {
      while (isWriting) {
        const found = (await objects.get(bucket, "a"))!;
        const content = await buffer(found.body);
        const n = content[0]! - 65;
        expect(content.equals(bodies[n]!)).toBe(true);
        expect([found.sizeBytes, found.contentType]).toEqual([content.length, `text/${"abc"[n]}`]);
      }
    };
    await Promise.all([write(), readWhole(), readWhole()]);
    const open = (await objects.get(bucket, "a"))!;
    await put(41);
    await objects.delete(bucket, "a");
    expect((await buffer(open.body)).equals(bodies[40 % 3]!)).toBe(true);
  });

  test("a process killed in the middle of a put leaves what was there, and a later sweep removes the rest", async () => {
    await objects.put(bucket, "a", Buffer.from("before"));
    const child: ChildProcess = spawn(process.execPath, [
      join(import.meta.dirname, "killed-put.child.ts"),
      JSON.stringify({ ...subject.forChild, bucket, key: "a" }),
    ]);
    const failed: Buffer[] = [];
    child.stderr?.on("data", (line: Buffer) => failed.push(line));
    await Promise.race([
      once(child.stdout!, "data"),
      once(child, "exit").then(() => Promise.reject(new Error(Buffer.concat(failed).toString()))),
    ]);
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
    expect(await read("a")).toBe("before");
    expect(await listAll()).toEqual(["a"]);
    expect(await objects.sweep(bucket, new Date(Date.now() - 3_600_000))).toBe(0);
    expect(await objects.sweep(bucket, new Date(Date.now() + 60_000))).toBe(1);
    expect(await objects.sweep(bucket, new Date(Date.now() + 60_000))).toBe(0);
    await objects.put(bucket, "a", Buffer.from("after"));
    expect(await read("a")).toBe("after");
  });

  test("a bucket goes with all in it; an absent one has nothing, takes nothing, and may be deleted again", async () => {
    await fill(Array.from({ length: 1_050 }, (_, n) => `deep/${n}`));
    await objects.deleteBucket(bucket);
    await objects.deleteBucket(bucket);
    expect(await objects.get(bucket, "deep/1")).toBeNull();
    expect(await objects.head(bucket, "deep/1")).toBeNull();
    expect(await objects.delete(bucket, "deep/1")).toBe(false);
    expect(await objects.list(bucket)).toEqual({ objects: [], next: null });
    expect(await objects.sweep(bucket, new Date())).toBe(0);
    await expect(objects.put(bucket, "a", Buffer.from("x"))).rejects.toBeInstanceOf(NoSuchBucket);
    await Promise.all([objects.ensureBucket(bucket), objects.ensureBucket(bucket), objects.ensureBucket(bucket)]);
    await objects.ensureBucket(bucket);
    expect(await listAll()).toEqual([]);
  });

  test("buckets do not see each other", async () => {
    const other = `kap-${randomUUID()}`;
    buckets.push(other);
    await objects.ensureBucket(other);
    await objects.put(other, "a", Buffer.from("theirs"));
    expect(await read("a")).toBeNull();
    expect(await listAll()).toEqual([]);
  });

  test("check passes where the store works and throws where it cannot", async () => {
    await objects.check();
    await expect(subject.broken.check()).rejects.toThrow();
  });
}
