import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { makeUnpackFolder, removeStaleFolders } from "./unpack-folder.ts";

test("folders of processes that are gone are removed, those of living ones stay", () => {
  const ended = spawnSync(process.execPath, ["--version"]).pid;
  const stale = mkdtempSync(join(tmpdir(), `kapstone-build-${ended}-`));
  const own = makeUnpackFolder();
  removeStaleFolders();
  expect(existsSync(stale)).toBe(false);
  expect(existsSync(own)).toBe(true);
  rmSync(own, { recursive: true });
});
