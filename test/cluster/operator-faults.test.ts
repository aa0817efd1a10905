import { afterAll, expect, test } from "vitest";
import { type CronJob, cronJobResource } from "../../operator/desired/cron-jobs.ts";
import { kapResource } from "../../platform/kap-resource.ts";
import { until } from "../harness/wait.ts";
import { openFaultyProxy } from "./faulty-proxy.ts";
import { openGround } from "./operator-ground.ts";

const [ground, proxy] = await Promise.all([openGround(), openFaultyProxy()]);
const { kubernetes, kubectl } = ground.namespace;
afterAll(async () => {
  proxy.set("none");
  await ground.close();
  await proxy.close();
});
const waitMs = { timeoutMs: 60_000 };

test("an API server that goes away, answers 429, drops and mutes watches: no change is missed, and drift heals within a minute", async () => {
  const operator = await ground.startOperator({ KUBECONFIG: proxy.kubeconfig, KAPSTONE_LEASE_SECONDS: "15" });
  await until(() => operator.leads(), waitMs);
  let revision = 1;
  const kap = await ground.makeKap();
  await kubectl("wait", "--for=condition=Ready", `kap/${kap.slug}`, "--timeout=60s");
  const cadences = async (): Promise<string[]> =>
    (await kubernetes.listPage<CronJob>(cronJobResource, {})).items.map(({ spec }) => spec.schedule).sort();

  for (const fault of ["away", "too-many", "cut", "gone", "mute", "lossy"] as const) {
    proxy.set(fault);
    revision += 1;
    const cron = `${revision} 5 * * *`;
    await kubernetes.mergePatch(kapResource, kap.slug, { spec: { revision, schedules: [cron] } });
    if (fault === "away" || fault === "too-many") {
      const before = proxy.counts.refused;
      await until(() => proxy.counts.refused > before + 3, waitMs);
      proxy.set("none");
    }
    const since = performance.now();
    await until(async () => (await kap.read()).status?.observedRevision === revision, { timeoutMs: 90_000, what: `${fault} to heal` });
    await until(async () => JSON.stringify(await cadences()) === JSON.stringify([cron]), { timeoutMs: 90_000, what: `${fault} to heal` });
    expect(performance.now() - since).toBeLessThan(60_000);
    expect((await operator.monitor("/healthz")).status).toBe(200);
    proxy.set("none");
  }
  expect(await operator.stop()).toBe(0);
}, 600_000);

test("PostgreSQL that is away keeps no deleted resource for ever: after a minute it goes, and an event says so", async () => {
  const operator = await ground.startOperator();
  await until(() => operator.leads(), waitMs);
  const kap = await ground.makeKap();
  await kubectl("wait", "--for=condition=Ready", `kap/${kap.slug}`, "--timeout=60s");
  await ground.refuseDatabase(true);
  try {
    await kubectl("delete", "kap", kap.slug, "--wait=false");
    await until(async () => (await kubectl("get", "kap", kap.slug, "--ignore-not-found")) === "", { timeoutMs: 150_000 });
    await until(async () => /ReleasedBlindly/.test(await kubectl("get", "events", "-o", "custom-columns=R:.reason")), waitMs);
    expect((await operator.monitor("/healthz")).status).toBe(200);
    expect((await operator.monitor("/readyz")).status).toBe(503);
  } finally {
    await ground.refuseDatabase(false);
  }
  // It goes on by itself when PostgreSQL is back.
  const next = await ground.makeKap();
  await kubectl("wait", "--for=condition=Ready", `kap/${next.slug}`, "--timeout=60s");
  expect(await operator.stop()).toBe(0);
}, 300_000);
