import { afterAll, expect, test } from "vitest";
import { type CronJob, cronJobResource } from "../../operator/desired/cron-jobs.ts";
import { kapLabels, kapResource } from "../../platform/kap-resource.ts";
import { until } from "../harness/wait.ts";
import { gatedPodSpec, openGround, podResource, runtimeLabels, setPodStatus } from "./operator-ground.ts";

const ground = await openGround();
const { namespace, database } = ground;
const { kubernetes, kubectl } = namespace;
const operator = await ground.startOperator();
afterAll(() => ground.close());
const waitMs = { timeoutMs: 60_000 };

test("kubectl wait, get and describe tell how a kap is", async () => {
  const kap = await ground.makeKap();
  await kubectl("wait", "--for=condition=Ready", `kap/${kap.slug}`, "--timeout=60s");
  const { status, metadata } = await kap.read();
  expect(status).toMatchObject({ phase: "Idle", replicas: 0, observedGeneration: metadata.generation, observedRevision: 1 });
  expect(status?.conditions.map(({ type }) => type)).toEqual(["Ready", "DatabaseReady", "StoreReady", "RuntimeReady"]);
  expect(metadata.finalizers).toEqual(["kapstone.dev/cluster-objects"]);
  const [head, line] = (await kubectl("get", "kp", kap.slug)).split("\n");
  expect(head?.trim().split(/\s+/)).toEqual(["NAME", "ORG", "VERSION", "PHASE", "REPLICAS", "ADDRESS", "AGE"]);
  expect(line).toMatch(new RegExp(`^${kap.slug} +[0-9a-f-]{36} +0 +Idle +0 +http://${kap.slug}\\.kaps\\.localhost +\\d+s`));
  await until(async () => /Normal +Ready .*the kap can be called/.test(await kubectl("describe", "kap", kap.slug)), waitMs);
});

test("a status follows the spec: disabled is not Ready, and says why", async () => {
  const kap = await ground.makeKap();
  await kubectl("wait", "--for=condition=Ready", `kap/${kap.slug}`, "--timeout=60s");
  await kubernetes.mergePatch(kapResource, kap.slug, { spec: { state: "disabled", revision: 7 } });
  await kubectl("wait", "--for=jsonpath={.status.phase}=Disabled", `kap/${kap.slug}`, "--timeout=60s");
  const { status } = await kap.read();
  expect(status?.observedRevision).toBe(7);
  expect(status?.conditions.find(({ type }) => type === "Ready")).toMatchObject({ status: "False", reason: "Disabled" });
});

test("the definition refuses what can never be", async () => {
  const kap = await ground.makeKap();
  const change = (spec: object) => kubernetes.mergePatch(kapResource, kap.slug, { spec });
  await expect(change({ kapId: "00000000-0000-4000-8000-000000000000" })).rejects.toThrow(/kapId never changes/);
  await expect(change({ orgId: "00000000-0000-4000-8000-000000000000" })).rejects.toThrow(/orgId never changes/);
  await expect(change({ slug: "another" })).rejects.toThrow(/slug never changes|named by the kap's slug/);
  await expect(change({ schedules: ["@daily"] })).rejects.toThrow(/five numeric fields/);
  await expect(change({ state: "disabled", hasIntervals: true })).rejects.toThrow(/only an active kap has schedules/);
  await expect(change({ state: "gone" })).rejects.toThrow(/Unsupported value/);
});

test("one CronJob stands for each cadence in use, and none for none", async () => {
  const names = async (): Promise<string[]> =>
    (await kubernetes.listPage<CronJob>(cronJobResource, {})).items.map(({ spec }) => spec.schedule).sort();
  const [one, two] = [
    await ground.makeKap({ schedules: ["*/15 * * * *", "0 3 * * 0"] }),
    await ground.makeKap({ schedules: ["*/15 * * * *"], hasIntervals: true }),
  ];
  await until(async () => JSON.stringify(await names()) === JSON.stringify(["* * * * *", "*/15 * * * *", "0 3 * * 0"]), waitMs);
  const { items } = await kubernetes.listPage<CronJob>(cronJobResource, {});
  expect(items.find(({ spec }) => spec.schedule === "* * * * *")?.metadata.name).toBe("t-cron-intervals");
  expect(items[0]?.spec).toMatchObject({ concurrencyPolicy: "Forbid", timeZone: "Etc/UTC" });

  // Changed by hand: put back. Deleted by hand: made anew.
  const [job] = items as [CronJob];
  await kubernetes.mergePatch(cronJobResource, job.metadata.name, { spec: { suspend: true, concurrencyPolicy: "Allow" } });
  await until(async () => (await kubernetes.get(cronJobResource, job.metadata.name)).spec.concurrencyPolicy === "Forbid", waitMs);
  await kubernetes.delete(cronJobResource, job.metadata.name);
  await until(async () => (await names()).length === 3, waitMs);

  // A pod of it is admitted where only restricted pods are.
  await kubectl("create", "job", "now", `--from=cronjob/${job.metadata.name}`);
  await until(async () => (await kubectl("get", "pods", "-l", "job-name=now", "-o", "name")) !== "", waitMs);

  for (const kap of [one, two]) await kubernetes.mergePatch(kapResource, kap.slug, { spec: { schedules: [], hasIntervals: false } });
  await until(async () => (await names()).length === 0, waitMs);
});

test("a claimed warm pod is adopted, the pool makes another, and the pod ends when its row goes", async () => {
  const kap = await ground.makeKap();
  await kubectl("wait", "--for=condition=Ready", `kap/${kap.slug}`, "--timeout=60s"); // a kap that is not known yet adopts its pods later
  await namespace.apply({
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name: "t-pool" },
    spec: {
      replicas: 1,
      selector: { matchLabels: runtimeLabels },
      template: { metadata: { labels: runtimeLabels }, spec: gatedPodSpec },
    },
  });
  const warm = async () => (await kubernetes.listPage(podResource, { labelSelector: `${kapLabels.runtime}=warm` })).items;
  const [pod] = await until(async () => {
    const pods = await warm();
    return pods.length === 1 && pods;
  }, waitMs);
  const name = pod?.metadata.name as string;
  await setPodStatus(namespace, name, { ip: "192.0.2.10", restarts: 2 });
  const row = await ground.claim(kap.id, "tcp:192.0.2.10:9001");
  const adopted = await until(async () => {
    const now = await kubernetes.get(podResource, name);
    return now.metadata.labels?.[kapLabels.runtime] === "claimed" && now;
  }, waitMs);
  const { metadata } = await kap.read();
  expect(adopted.metadata.labels).toMatchObject({ [kapLabels.kapId]: kap.id, [kapLabels.kap]: kap.slug });
  expect(adopted.metadata.annotations?.[kapLabels.restarts]).toBe("2");
  expect(adopted.metadata.ownerReferences).toEqual([{ apiVersion: "kapstone.dev/v1", kind: "Kap", name: kap.slug, uid: metadata.uid }]);
  const [fresh] = await until(async () => {
    const pods = await warm();
    return pods.length === 1 && pods;
  }, waitMs);
  expect(fresh?.metadata.name).not.toBe(name);
  await kubectl("wait", "--for=jsonpath={.status.phase}=Running", `kap/${kap.slug}`, "--timeout=60s");
  await until(async () => /Normal +Adopted/.test(await kubectl("describe", "kap", kap.slug)), waitMs);

  await database.postgres.knex("runtimes").where({ id: row }).update({ state: "draining", slot: -5 });
  await kubectl("wait", "--for=jsonpath={.status.phase}=Idle", `kap/${kap.slug}`, "--timeout=60s");
  expect((await kubernetes.get(podResource, name)).metadata.deletionTimestamp).toBeUndefined();
  await database.postgres.knex("runtimes").where({ id: row }).delete();
  await until(async () => (await kubectl("get", "pod", name, "--ignore-not-found")) === "", waitMs);
  await kubectl("delete", "deployment", "t-pool");
});

test("a claimed pod whose container restarted is ended, and so is a warm one that a gateway gave up", async () => {
  const kap = await ground.makeKap();
  await ground.makePod("restarting", "192.0.2.20");
  await ground.claim(kap.id, "tcp:192.0.2.20:9001");
  await until(async () => (await kubernetes.get(podResource, "restarting")).metadata.labels?.[kapLabels.runtime] === "claimed", waitMs);
  await setPodStatus(namespace, "restarting", { ip: "192.0.2.20", restarts: 1 });
  await until(async () => (await kubectl("get", "pod", "restarting", "--ignore-not-found")) === "", waitMs);

  await ground.makePod("given-up", "192.0.2.21");
  await ground.makePod("bystander", "192.0.2.22");
  await until(async () => (await operator.metric("pool_warm")) === 2, { ...waitMs, what: "both pods to be known to the operator" });
  await database.postgres.knex.raw("select pg_notify('kapstone_runtimes', ?)", [JSON.stringify({ discard: "tcp:192.0.2.21:9001" })]);
  await until(async () => (await kubectl("get", "pod", "given-up", "--ignore-not-found")) === "", waitMs);
  expect((await kubernetes.get(podResource, "bystander")).metadata.labels?.[kapLabels.runtime]).toBe("warm");
});

test("deleting the resource of a live kap takes nothing from it: its pod serves on, and the API is asked to make it anew", async () => {
  const kap = await ground.makeKap();
  await ground.makePod("serving", "192.0.2.30");
  await ground.claim(kap.id, "tcp:192.0.2.30:9001");
  await until(async () => (await kubernetes.get(podResource, "serving")).metadata.ownerReferences?.length === 1, waitMs);
  await kubectl("delete", "kap", kap.slug, "--timeout=60s");
  const { metadata } = await kubernetes.get(podResource, "serving");
  expect(metadata.ownerReferences ?? []).toEqual([]);
  expect(metadata.deletionTimestamp).toBeUndefined();
  // Asked once the resource is gone.
  const jobs = await until(async () => {
    const { rows } = await database.postgres.knex.raw("select payload from kapstone_jobs._private_jobs where key = ?", [
      `kaps.project:${kap.id}`,
    ]);
    return rows.length > 0 && rows;
  }, waitMs);
  expect(jobs).toEqual([{ payload: { kap_id: kap.id } }]);
});

test("deleting the resource of a purged kap ends its pods", async () => {
  const kap = await ground.makeKap();
  await ground.makePod("last", "192.0.2.40");
  const row = await ground.claim(kap.id, "tcp:192.0.2.40:9001");
  await until(async () => (await kubernetes.get(podResource, "last")).metadata.ownerReferences?.length === 1, waitMs);
  await database.postgres.knex("kaps").where({ id: kap.id }).update({ state: "deleted", purged_at: new Date() });
  await kubectl("delete", "kap", kap.slug, "--timeout=60s");
  await until(async () => (await kubectl("get", "pod", "last", "--ignore-not-found")) === "", waitMs);
  await database.postgres.knex("runtimes").where({ id: row }).delete();
});

test("a dropped schema and a lost login role come back, and the events say so", async () => {
  const kap = await ground.makeKap();
  await kubectl("wait", "--for=condition=DatabaseReady", `kap/${kap.slug}`, "--timeout=60s");
  const { knex } = database.postgres;
  // At once: a repair of the first would change the role at the same time as the last, which PostgreSQL refuses to one of the two.
  await knex.transaction(async (trx) => {
    await trx.raw(`drop schema ${kap.schema} cascade`);
    await trx.raw(`alter role ${kap.role} nologin`);
  });
  await until(async () => {
    const { rows } = await knex.raw<{ rows: { ok: boolean }[] }>(
      `select has_schema_privilege(r.oid, n.oid, 'usage, create') and r.rolcanlogin as ok from pg_roles r, pg_namespace n where r.rolname = ? and n.nspname = ?`,
      [kap.role, kap.schema],
    );
    return rows[0]?.ok;
  }, waitMs);
  await until(async () => /Warning +DatabaseRepaired/.test(await kubectl("describe", "kap", kap.slug)), waitMs);
});

test("the operator tells what it does, and is alive and ready", async () => {
  expect(await operator.monitor("/healthz")).toMatchObject({ status: 200 });
  await until(async () => (await operator.monitor("/readyz")).status === 200, waitMs); // its checks have two seconds each
  const { text } = await operator.monitor("/metrics");
  for (const name of [
    "reconciles_total",
    "errors_total",
    "queue_depth",
    "pool_warm",
    "claims",
    "cold_start_seconds_bucket",
    "adoptions_total",
  ]) {
    expect(text).toContain(`kapstone_operator_${name}`);
  }
});
