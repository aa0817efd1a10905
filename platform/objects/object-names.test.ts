import fc from "fast-check";
import { expect, test } from "vitest";
import { fileNameOf, keyOfFileName } from "./file-name.ts";
import { keyOfS3Name, s3NameOf, s3PrefixOf, s3StartAfter } from "./s3-name.ts";

const anyKey = fc.uint8Array({ minLength: 1, maxLength: 1_024 }).map((bytes) => Buffer.from(bytes));
/** Pairs that share a long beginning, where cut, escaped and digested names meet. */
const relatedKeys = fc
  .tuple(fc.uint8Array({ maxLength: 1_000 }), fc.uint8Array({ maxLength: 24 }), fc.uint8Array({ maxLength: 24 }))
  .map(([start, a, b]) => [Buffer.from([...start, ...a]), Buffer.from([...start, ...b])] as const)
  .filter(([a, b]) => a.length > 0 && b.length > 0);

test("a file name is one safe name of at most 255 characters, whatever the key, and gives the key back", () => {
  fc.assert(
    fc.property(anyKey, (key) => {
      const name = fileNameOf(key);
      expect(name).toMatch(/^[a-z0-9_%-]+(~[0-9a-f]{64})?=$/);
      expect(name.length).toBeLessThanOrEqual(255);
      const parsed = keyOfFileName(name)!;
      if ("key" in parsed) expect(parsed.key.equals(key)).toBe(true);
      else expect(key.subarray(0, parsed.startsWith.length).equals(parsed.startsWith)).toBe(true);
    }),
  );
});

test("different keys have different file names, even where case does not count", () => {
  fc.assert(
    fc.property(relatedKeys, ([a, b]) => {
      fc.pre(!a.equals(b));
      expect(fileNameOf(a).toUpperCase()).not.toBe(fileNameOf(b).toUpperCase());
    }),
  );
});

test("an S3 name has at most 1,024 printable bytes in parts of at most 255, no part empty, a dot or two", () => {
  fc.assert(
    fc.property(anyKey, (key) => {
      const name = s3NameOf(key);
      expect(name).toMatch(/^[!-~]{1,1024}$/);
      for (const part of name.split("/")) expect(part).toMatch(/^(?!\.{1,2}$).{1,255}$/);
      const parsed = keyOfS3Name(name)!;
      if ("key" in parsed) expect(parsed.key.equals(key)).toBe(true);
    }),
  );
});

test("S3 names have the order of keys, and no name is the folder of another", () => {
  fc.assert(
    fc.property(relatedKeys, ([a, b]) => {
      fc.pre(!a.equals(b));
      const [nameA, nameB] = [s3NameOf(a), s3NameOf(b)];
      expect(nameA).not.toBe(nameB);
      expect(nameB.startsWith(`${nameA}/`)).toBe(false);
      const [inA, inB] = [keyOfS3Name(nameA)!, keyOfS3Name(nameB)!];
      if ("group" in inA && "group" in inB && inA.group === inB.group) return; // sorted by key after the listing
      expect(nameA < nameB).toBe(Buffer.compare(a, b) < 0);
    }),
    { numRuns: 1_000 },
  );
});

test("an S3 listing by prefix and after a key misses no key", () => {
  fc.assert(
    fc.property(relatedKeys, fc.nat(1_024), ([a, b], length) => {
      const prefix = a.subarray(0, length);
      expect(s3NameOf(a).startsWith(s3PrefixOf(prefix))).toBe(true);
      if (Buffer.compare(a, b) < 0) expect(s3NameOf(b) > s3StartAfter(a)).toBe(true);
    }),
    { numRuns: 1_000 },
  );
});
