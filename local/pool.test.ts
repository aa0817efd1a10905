import { generateKeyPairSync } from "node:crypto";
import { openSync } from "node:fs";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createLogger } from "#platform/log.ts";
import type { RuntimeCandidate } from "../api/gateway/pool.ts";
import { control } from "../api/gateway/runtime-client.ts";
import { until } from "../test/harness/wait.ts";
import { claimPublicKey } from "./deployment-keys.ts";
import { createProcessPool, type ProcessPool } from "./pool.ts";

const timeoutMs = 60_000;
let folder: string;
let pool: ProcessPool;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "kapstone-"));
  const claimKey = generateKeyPairSync("ed25519").privateKey.export({ format: "der", type: "pkcs8" }).toString("base64");
  pool = createProcessPool({
    size: 1,
    socketFolder: folder,
    claimPublicKey: claimPublicKey(claimKey),
    env: { KAPSTONE_LOG_LEVEL: "warn" },
    logFd: openSync("/dev/null", "w"),
    log: createLogger("test", { level: "silent" }),
  });
  await pool.warmed();
});

afterEach(async () => {
  await pool.close(10_000);
  await rm(folder, { recursive: true, force: true });
});

async function onlyCandidate(): Promise<RuntimeCandidate> {
  const candidates = await pool.candidates();
  expect(candidates).toHaveLength(1);
  return candidates[0]!;
}

const answers = (runtime: RuntimeCandidate) => control(runtime.control, "GET", "/state", undefined, timeoutMs);
const successorOf = (runtime: RuntimeCandidate) =>
  until(async () => (await pool.candidates()).find(({ id }) => id !== runtime.id), { timeoutMs, what: "a successor" });

test("a candidate is a generic runtime that answers on its control address", { timeout: 120_000 }, async () => {
  expect(await answers(await onlyCandidate())).toMatchObject({ status: 200, body: { state: "generic", kap_id: null } });
});

test("a taken runtime is no candidate any more, goes on living, and has a successor", { timeout: 120_000 }, async () => {
  const runtime = await onlyCandidate();
  pool.taken(runtime.control);
  expect(await pool.candidates()).toEqual([]);
  const successor = await successorOf(runtime);
  expect((await answers(successor)).status).toBe(200);
  expect((await answers(runtime)).status).toBe(200);
});

test("a discarded runtime ends, leaves no socket, and has a successor", { timeout: 120_000 }, async () => {
  const runtime = await onlyCandidate();
  pool.discard(runtime.control);
  expect((await pool.candidates()).map(({ id }) => id)).not.toContain(runtime.id);
  await successorOf(runtime);
  await until(async () => !(await readdir(folder)).some((name) => name.startsWith(runtime.id)), { timeoutMs });
  await expect(answers(runtime)).rejects.toThrow();
});

test("a closed pool leaves no runtime and starts none", { timeout: 120_000 }, async () => {
  const runtime = await onlyCandidate();
  await pool.close(10_000);
  await expect(answers(runtime)).rejects.toThrow();
  expect(await pool.candidates()).toEqual([]);
});
