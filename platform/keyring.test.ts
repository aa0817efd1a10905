import { randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { createKeyring } from "./keyring.ts";

const older = randomBytes(32);
const newer = randomBytes(32);

test("a sealed value opens under its own context only, and not after a bit has changed", () => {
  const ring = createKeyring([older]);
  const sealed = ring.seal("s3cret ✓", "kap:1:NAME");
  expect(ring.open(sealed, "kap:1:NAME")).toBe("s3cret ✓");
  expect(() => ring.open(sealed, "kap:2:NAME")).toThrow();
  for (const at of [6, 20, sealed.length - 1]) {
    const changed = Buffer.from(sealed);
    changed[at] = (changed[at] ?? 0) ^ 1;
    expect(() => ring.open(changed, "kap:1:NAME")).toThrow();
  }
});

test("after a rotation old values still open and are known as stale; without the old key they do not open", () => {
  const sealed = createKeyring([older]).seal("v", "c");
  const rotated = createKeyring([newer, older]);
  expect(rotated.open(sealed, "c")).toBe("v");
  expect(rotated.isStale(sealed)).toBe(true);
  expect(rotated.isStale(rotated.seal("v", "c"))).toBe(false);
  expect(() => createKeyring([newer]).open(sealed, "c")).toThrow(/KAPSTONE_KEYS/);
});

test("a key of another length and an empty ring are refused with the fix", () => {
  expect(() => createKeyring([randomBytes(16)])).toThrow(/32 bytes/);
  expect(() => createKeyring([])).toThrow(/KAPSTONE_KEYS/);
});
