import { randomBytes } from "node:crypto";
import { Readable } from "node:stream";
import { buffer, text } from "node:stream/consumers";
import { beforeEach, expect, test } from "vitest";
import { describeStores } from "./contract-ground.ts";
import { NoSuchBucket, ObjectExists, type ObjectStore, RangeNotSatisfiable } from "./store.ts";

const mebibyte = 1024 * 1024;

describeStores((ground) => {
  const { fill, further, listAll, read } = ground;
  let objects: ObjectStore;
  let bucket: string;
  beforeEach(() => {
    ({ objects, bucket } = ground);
  });

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
    const other = await further();
    await objects.put(other, "a", Buffer.from("theirs"));
    expect(await read("a")).toBeNull();
    expect(await listAll()).toEqual([]);
  });

  test("check passes where the store works and throws where it cannot", async () => {
    await objects.check();
    await expect(ground.subject.broken.check()).rejects.toThrow();
  });
});
