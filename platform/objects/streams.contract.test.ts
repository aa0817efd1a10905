import { type ChildProcess, spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { join } from "node:path";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { beforeEach, expect, test } from "vitest";
import { describeStores } from "./contract-ground.ts";
import { type ObjectStore, ObjectTooLarge } from "./store.ts";

const mebibyte = 1024 * 1024;

describeStores((ground) => {
  const { listAll, read } = ground;
  let objects: ObjectStore;
  let bucket: string;
  beforeEach(() => {
    ({ objects, bucket } = ground);
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
      JSON.stringify({ ...ground.subject.forChild, bucket, key: "a" }),
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
});
