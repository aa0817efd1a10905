import { setTimeout as delay } from "node:timers/promises";
import { afterAll, expect, test } from "vitest";
import { isPodReady, type Pod } from "../../../platform/kubernetes/objects.ts";
import { until } from "../../harness/wait.ts";
import type { LoadCall } from "./client-agent.ts";
import { openRelease } from "./release.ts";
import { createSubject, proveRows, troubles } from "./subject.ts";

const release = await openRelease();
const { kubectl } = release;
afterAll(() => release.close());

const roles = ["operator", "api", "runtime", "pool", "mail-ingest"] as const;
type Role = (typeof roles)[number];
/** Longest that a call may go unanswered after a kill, on a loaded machine. */
const recoveryMs = 60_000;
const betweenMs = 3_000;

test("operator, API, runtime and pool pods killed at random under load: what was acknowledged is there, and the kap answers again", async () => {
  const subject = await createSubject(release);
  const targets: Record<Role, () => Promise<Pod[]>> = {
    operator: () => release.pods("operator"),
    api: () => release.pods("api"),
    runtime: () => release.pods("runtime", `kapstone.dev/kap=${subject.kap.slug}`),
    pool: () => release.pods("runtime", "kapstone.dev/runtime=warm"),
    "mail-ingest": () => release.pods("mail-ingest"),
  };
  const load = await subject.load({ callers: 3, pauseMs: 50, isKeptAlive: false });
  const probe = async (): Promise<boolean> => {
    const key = `probe-${kills.length}-${performance.now()}`;
    const { status } = await subject.kap.call({ path: `/?key=${key}`, timeoutMs: recoveryMs }).catch(() => ({ status: 0 }));
    return status === 200;
  };
  const kills: Role[] = [];
  // Each part twice, in an order of its own each time; the seed is in the message of what fails.
  const seed = Math.floor(Math.random() * 2 ** 31);
  for (const role of shuffled([...roles, ...roles], seed)) {
    const pod = await until(async () => (await targets[role]()).filter(isPodReady).at(seed % 2 === 0 ? 0 : -1), {
      timeoutMs: 120_000,
      what: `a pod of ${role} (seed ${seed})`,
    });
    await kubectl("delete", "pod", pod.metadata.name, "--grace-period=0", "--force", "--wait=false");
    await until(probe, { timeoutMs: recoveryMs, what: `an answer after ${role} (seed ${seed})` });
    kills.push(role);
    await delay(betweenMs); // the load meets what is left of it
  }
  const calls = await load.stop();
  process.stdout.write(
    `${JSON.stringify({
      kills,
      longest_without_an_answer_ms: longestGapMs(calls),
      slowest_calls_ms: calls
        .map(({ ms }) => Math.round(ms))
        .sort((x, y) => y - x)
        .slice(0, kills.length),
      calls: calls.length,
      failed: troubles(calls),
    })}\n`,
  );
  await proveRows(subject, calls);
  expect(calls.filter(({ status }) => status === 200).length, `seed ${seed}`).toBeGreaterThan(0);
  // A failure is said in the platform's words, or the connection broke with the pod that held it.
  const unclear = calls.filter(({ status, text }) =>
    status === null ? /abort|timeout/i.test(text) : status !== 200 && !/"code":/.test(text),
  );
  expect(unclear).toEqual([]);

  // All parts come back by themselves.
  for (const [role, count] of [
    ["operator", 2],
    ["api", 2],
    ["mail-ingest", 1],
  ] as const) {
    await until(async () => (await targets[role]()).filter(isPodReady).length === count, {
      timeoutMs: 120_000,
      what: role,
    });
  }
  await until(async () => (await targets.pool()).filter(isPodReady).length >= 2, {
    timeoutMs: 120_000,
    what: "the pool",
  });
}, 600_000);

/** Longest time between two calls that were answered, whoever made them. */
function longestGapMs(calls: LoadCall[]): number {
  const ends = calls
    .filter(({ status }) => status === 200)
    .map(({ startedAt, ms }) => startedAt + ms)
    .sort((x, y) => x - y);
  return Math.round(Math.max(...ends.slice(1).map((end, i) => end - (ends[i] as number))));
}

/** The same order for the same seed. */
function shuffled<T>(items: T[], seed: number): T[] {
  let state = seed;
  for (let i = items.length - 1; i > 0; i--) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fff_ffff;
    const j = state % (i + 1);
    [items[i], items[j]] = [items[j] as T, items[i] as T];
  }
  return items;
}
