import { mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { trimPackageCache } from "./package-cache.ts";

test("above its bound the cache loses what was written longest ago, below it nothing", async () => {
  const folder = mkdtempSync(join(tmpdir(), "kapstone-trim-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, "deep"));
  for (let n = 0; n < 10; n++) {
    const path = join(folder, "deep", `f${n}`);
    writeFileSync(path, Buffer.alloc(100));
    utimesSync(path, 1_000 + n, 1_000 + n);
  }
  await trimPackageCache(folder, 1_000);
  expect(readdirSync(join(folder, "deep"))).toHaveLength(10);
  await trimPackageCache(folder, 900);
  expect(readdirSync(join(folder, "deep")).sort()).toEqual(["f3", "f4", "f5", "f6", "f7", "f8", "f9"]);
});

test("a cache that is not there yet needs no trimming", async () => {
  await expect(trimPackageCache(join(tmpdir(), "kapstone-no-such-cache"), 1)).resolves.toBeUndefined();
});
