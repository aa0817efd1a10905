import { expect, test } from "vitest";
import { checkObjectKey } from "./object-key.ts";

test.each(["a", "a/b", "a//b", "a/", ".hidden", "a/..b", "ü/😀", "a b", "%2F", "a\\b", "x".repeat(1_024), "é".repeat(512), "con"])(
  "%j is a key",
  (key) => {
    expect(checkObjectKey(key)).toBe(key);
  },
);

test.each(["", "x".repeat(1_025), `${"é".repeat(512)}x`, "/a", "a\0b", ".", "..", "a/./b", "../a", "a/..", "\ud800"])(
  "%j is refused",
  (key) => {
    expect(() => checkObjectKey(key)).toThrow();
  },
);
