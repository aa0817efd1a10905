import { afterAll, beforeAll, expect, test } from "vitest";
import { until } from "../harness/wait.ts";
import { type Ground, prepareGround } from "./ground.ts";
import { childrenOf, openFiles, residentMb } from "./processes.ts";

/** How often the kap is killed: a tenth of it with its process, the rest by the isolate's own timeout. `npm run bench kills` does it 10,000 times. */
const kills = Number(process.env.KAPSTONE_ATTACK_KILLS ?? 500);
const inFlight = 4;

const program = `
export default (request) => {
  const { pathname } = new URL(request.url);
  if (pathname === "/loop") for (;;);
  if (pathname === "/wedge") { let x = 3n ** 100_000n; for (;;) x = x * x; }
  return new Response("ok");
};`;

let ground: Ground;

beforeAll(async () => {
  ground = await prepareGround({ KAPSTONE_KAP_REQUEST_CPU_MS: "20", KAPSTONE_KAP_MEMORY_MB: "32" });
  await ground.subject.save(program);
});
afterAll(() => ground?.close());

const serves = () =>
  until(async () => (await ground.subject.call({ path: "/ok", timeoutMs: 5_000 })).text === "ok", { what: "the kap to serve again" });

/** What the runtime holds when nothing is going on: its processes are three again and both children are at rest. */
async function held(pid: number) {
  const children = await until(() => {
    const found = childrenOf(pid);
    return found.length === 2 && found;
  });
  const { rows } = await ground.test.database.postgres.hot.query<{ open: number }>(
    "select count(*)::int as open from runs where status in ('queued', 'running')",
  );
  return { processes: children.length + 1, files: openFiles(pid), supervisorMb: residentMb(pid), openRuns: rows[0]?.open };
}

test(`${kills} kills leave nothing behind`, { timeout: 120_000 + kills * 1_000 }, async () => {
  await serves();
  const pid = await ground.supervisorOf(ground.subject);
  // The first kills build what is kept (pools, caches): the measure starts after them.
  for (let n = 0; n < 5; n++) await ground.subject.call({ path: "/wedge" }).catch(() => undefined);
  await serves();
  const before = await held(pid);
  const pausesMs: number[] = [];
  for (let done = 0; done < kills; ) {
    const path = done % 10 < inFlight && done % 40 < inFlight ? "/wedge" : "/loop";
    const answers = await Promise.all(
      Array.from({ length: inFlight }, () => ground.subject.call({ path, timeoutMs: 20_000 }).catch(() => null)),
    );
    for (const answer of answers) {
      if (answer?.status === 504) {
        // Its record says why: others had the processor, and V8 ended it before it had used up its time.
        const run = await ground.ended(ground.subject, answer.headers["x-kap-run-id"] as string);
        expect(run.detail).toContain("machine was too busy");
      } else expect([503, 502, undefined]).toContain(answer?.status);
    }
    done += answers.length;
    const started = performance.now();
    await serves();
    pausesMs.push(performance.now() - started);
  }
  expect(await ground.supervisorOf(ground.subject)).toBe(pid);
  const after = await until(async () => {
    const now = await held(pid);
    return now.openRuns === 0 && now;
  });
  const sorted = pausesMs.toSorted((a, b) => a - b);
  console.info(
    `after ${kills} kills: ${JSON.stringify({ before, after })}; serves again after ${sorted[Math.floor(sorted.length / 2)]?.toFixed(0)} ms (median), ${sorted.at(-1)?.toFixed(0)} ms (longest)`,
  );
  expect(after.processes).toBe(before.processes);
  expect(after.files).toBeLessThanOrEqual(before.files + 8);
  expect(after.supervisorMb).toBeLessThan(before.supervisorMb + 48);
});
