import { afterAll, expect, test } from "vitest";
import { signUpOrg, type TestKap } from "../../harness/org.ts";
import { until } from "../../harness/wait.ts";
import { openRelease, releaseName } from "./release.ts";
import { percentile } from "./subject.ts";

const release = await openRelease();
const { kubectl } = release;
afterAll(() => release.close());
const waitMs = { timeoutMs: 180_000 };
const starts = { warm: 10, empty: 3 };
const programs = {
  plain: 'export default () => new Response("1");',
  database: `import { db } from "kap";
export default async () => new Response(String((await db.query("select 1 as one")).rows[0].one));`,
};

const org = await signUpOrg(release);
const warmPods = async (): Promise<number> => {
  const path = "jsonpath={.status.readyReplicas}";
  return Number((await kubectl("get", "deployment", `${releaseName}-pool`, "-o", path)) || 0);
};
const poolOf = async (size: number): Promise<void> => {
  await kubectl("scale", `deployment/${releaseName}-pool`, `--replicas=${size}`);
  await until(async () => (await warmPods()) === size, { ...waitMs, what: `a pool of ${size}` });
};
/** Calls a kap until it answers and tells how long that took: while the pool is empty for long, callers are told to come again. */
const firstCall = async (kap: TestKap): Promise<number> => {
  const call = { host: release.host(`${kap.slug}.kaps`), path: "/", headers: { authorization: `Bearer ${kap.token}` } };
  for (let total = 0; ; ) {
    const { status, text, ms } = await release.client.time(call);
    total += ms;
    if (status === 503 && total < waitMs.timeoutMs) continue;
    expect([status, text]).toEqual([200, "1"]);
    return total;
  }
};
/** Ends a kap's runtime, so that the next one finds room on the node. */
const disable = (kap: TestKap): Promise<unknown> =>
  org.call({ method: "POST", path: `/v1/orgs/${org.id}/kaps/${kap.id}/disable`, body: { reason: "measured" } });

test("the first call of a kap: from a warm pod, and with an empty pool", async () => {
  const make = async (program: string, count: number): Promise<TestKap[]> => {
    const kaps: TestKap[] = [];
    for (let n = 0; n < count; n++) kaps.push(await org.createKap(program));
    return kaps;
  };
  const pool = Number(await kubectl("get", "deployment", `${releaseName}-pool`, "-o", "jsonpath={.spec.replicas}"));
  const measured: Record<string, { n: number; p50: number; p99: number }> = {};
  const keep = (name: string, ms: number[]): void => {
    measured[name] = { n: ms.length, p50: percentile(ms, 0.5), p99: percentile(ms, 0.99) };
  };
  try {
    for (const [name, program] of Object.entries(programs)) {
      const ms: number[] = [];
      for (const kap of await make(program, starts.warm)) {
        // The pod that takes the place of the one before starts on the same node.
        await until(async () => (await warmPods()) === pool, waitMs);
        ms.push(await firstCall(kap));
        await disable(kap);
      }
      keep(name, ms);
    }
    const ms: number[] = [];
    for (const kap of await make(programs.plain, starts.empty)) {
      await poolOf(0);
      await until(async () => (await release.pods("runtime", "kapstone.dev/runtime=warm")).length === 0, waitMs);
      const answered = firstCall(kap);
      await kubectl("scale", `deployment/${releaseName}-pool`, "--replicas=1");
      ms.push(await answered);
      await disable(kap);
    }
    keep("plain, empty pool", ms);
  } finally {
    await poolOf(pool);
  }
  process.stdout.write(`${JSON.stringify({ first_call_ms: measured })}\n`);
}, 600_000);
