import { afterAll, expect, test } from "vitest";
import { signUpOrg, type TestKap } from "../../harness/org.ts";
import { until } from "../../harness/wait.ts";
import { openRelease, releaseName } from "./release.ts";
import { percentile } from "./subject.ts";

const release = await openRelease();
const { kubectl } = release;
afterAll(() => release.close());
const waitMs = { timeoutMs: 180_000 };
const starts = { warm: 20, empty: 5 };
const program = `import { db } from "kap";
export default async () => new Response(String((await db.query("select 1 as one")).rows[0].one));`;

const org = await signUpOrg(release);
const warmPods = async (): Promise<number> => {
  const path = "jsonpath={.status.readyReplicas}";
  return Number((await kubectl("get", "deployment", `${releaseName}-pool`, "-o", path)) || 0);
};
const poolOf = async (size: number): Promise<void> => {
  await kubectl("scale", `deployment/${releaseName}-pool`, `--replicas=${size}`);
  await until(async () => (await warmPods()) === size, { ...waitMs, what: `a pool of ${size}` });
};
const firstCall = async (kap: TestKap): Promise<number> => {
  const call = { host: release.host(`${kap.slug}.kaps`), path: "/", headers: { authorization: `Bearer ${kap.token}` } };
  const { status, text, ms } = await release.client.time(call);
  expect([status, text]).toEqual([200, "1"]);
  return ms;
};
/** Ends a kap's runtime, so that the next one finds room on the node. */
const disable = (kap: TestKap): Promise<unknown> =>
  org.call({ method: "POST", path: `/v1/orgs/${org.id}/kaps/${kap.id}/disable`, body: { reason: "measured" } });

test("the first call of a kap: from a warm pod, and with an empty pool", async () => {
  const kaps: TestKap[] = [];
  for (let n = 0; n < starts.warm + starts.empty; n++) kaps.push(await org.createKap(program));
  const pool = Number(await kubectl("get", "deployment", `${releaseName}-pool`, "-o", "jsonpath={.spec.replicas}"));
  const measured: { warm: number[]; empty: number[] } = { warm: [], empty: [] };
  try {
    for (const kap of kaps.splice(0, starts.warm)) {
      // The pod that takes the place of the one before starts on the same node.
      await until(async () => (await warmPods()) === pool, waitMs);
      measured.warm.push(await firstCall(kap));
      await disable(kap);
    }
    for (const kap of kaps) {
      await poolOf(0);
      await until(async () => (await release.pods("runtime", "kapstone.dev/runtime=warm")).length === 0, waitMs);
      const answered = firstCall(kap);
      await kubectl("scale", `deployment/${releaseName}-pool`, "--replicas=1");
      measured.empty.push(await answered);
      await disable(kap);
    }
  } finally {
    await poolOf(pool);
  }
  const shown = (values: number[]): object => ({ n: values.length, p50: percentile(values, 0.5), p99: percentile(values, 0.99) });
  process.stdout.write(`${JSON.stringify({ first_call_ms: { warm: shown(measured.warm), empty_pool: shown(measured.empty) } })}\n`);
}, 600_000);
