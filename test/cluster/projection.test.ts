import { afterAll, expect, test } from "vitest";
import { kapResource } from "../../platform/kap-resource.ts";
import { isNotFound } from "../../platform/kubernetes/client.ts";
import { signUpOrg } from "../harness/org.ts";
import { until } from "../harness/wait.ts";
import { openApiGround } from "./api-ground.ts";
import { openFaultyProxy } from "./faulty-proxy.ts";

const ground = await openApiGround();
const proxy = await openFaultyProxy();
const { kubernetes, kubectl } = ground.namespace;
const api = await ground.startApi({ KUBECONFIG: proxy.kubeconfig });
const org = await signUpOrg(api);
afterAll(async () => {
  await ground.close();
  await proxy.close();
});
const waitMs = { timeoutMs: 60_000 };
const program = "export default () => new Response('hello');";

const read = (slug: string) =>
  kubernetes.get(kapResource, slug).catch((error: unknown) => {
    if (isNotFound(error)) return null;
    throw error;
  });
const path = (id: string): string => `/v1/orgs/${org.id}/kaps/${id}`;
const change = async (method: string, to: string, body?: object): Promise<Record<string, unknown>> => {
  const answer = await org.call({ method, path: to, ...(body && { body }) });
  if (answer.status >= 300) throw new Error(`${method} ${to} answered ${answer.status}: ${answer.text}`);
  return answer.text === "" ? {} : answer.json();
};

test("a kap has its resource a moment after it was made, and every change of it is there too", async () => {
  const kap = await org.createKap(program);
  const made = await until(() => read(kap.slug), waitMs);
  expect(made.metadata.labels).toMatchObject({
    "app.kubernetes.io/managed-by": "kapstone",
    "app.kubernetes.io/instance": "t",
    "kapstone.dev/kap-id": kap.id,
    "kapstone.dev/org-id": org.id,
  });
  const row = await ground.database.postgres.knex("kaps").where({ id: kap.id }).first();
  expect(made.spec).toEqual({
    kapId: kap.id,
    orgId: org.id,
    name: row.name,
    slug: kap.slug,
    address: `http://${api.host(`${kap.slug}.kaps`)}`,
    state: "active",
    revision: row.revision,
    versionId: kap.versionId,
    version: 1,
    audience: "members",
    database: { schema: row.schema_name, role: row.role_name },
    bucket: row.bucket,
    schedules: [],
    hasIntervals: false,
  });

  await kap.save("export default () => new Response('two');");
  await until(async () => (await read(kap.slug))?.spec.version === 2, waitMs);
  await change("PATCH", path(kap.id), { name: "Another name" });
  await until(async () => (await read(kap.slug))?.spec.name === "Another name", waitMs);

  await change("POST", `${path(kap.id)}/triggers`, { kind: "schedule", file_path: "main.ts", cron: "0 3 * * 7" });
  await change("POST", `${path(kap.id)}/triggers`, { kind: "schedule", file_path: "main.ts", cron: "0  3 * * 0" });
  const interval = await change("POST", `${path(kap.id)}/triggers`, { kind: "schedule", file_path: "main.ts", interval_seconds: 3_600 });
  await until(async () => (await read(kap.slug))?.spec.hasIntervals, waitMs);
  expect((await read(kap.slug))?.spec.schedules).toEqual(["0 3 * * 0"]);
  await change("POST", `${path(kap.id)}/triggers/${(interval.trigger as { id: string }).id}/pause`);
  await until(async () => (await read(kap.slug))?.spec.hasIntervals === false, waitMs);

  await change("POST", `${path(kap.id)}/disable`, { reason: "test" });
  await until(async () => (await read(kap.slug))?.spec.state === "disabled", waitMs);
  expect((await read(kap.slug))?.spec.schedules).toEqual([]);
  await change("POST", `${path(kap.id)}/enable`);
  await until(async () => (await read(kap.slug))?.spec.schedules.length === 1, waitMs);
});

test("a resource that is deleted, changed by hand, or of no kap is put right by the comparison", async () => {
  const [kap, other] = [await org.createKap(program), await org.createKap(program)];
  await until(async () => (await read(kap.slug)) && (await read(other.slug)), waitMs);
  await kubectl("delete", "kap", kap.slug);
  await kubernetes.mergePatch(kapResource, other.slug, {
    spec: { name: "by hand" },
    metadata: { labels: { "kapstone.dev/kap-id": "by-hand" } },
  });
  const template = await read(other.slug);
  const stray = { ...template, metadata: { name: "stray" }, spec: { ...template?.spec, slug: "stray" } };
  await ground.namespace.apply(stray);
  await until(async () => (await read(kap.slug))?.spec.kapId === kap.id, waitMs);
  await until(async () => {
    const { metadata, spec } = (await read(other.slug)) ?? {};
    return spec?.name !== "by hand" && metadata?.labels?.["kapstone.dev/kap-id"] === other.id;
  }, waitMs);
  await until(async () => (await read("stray")) === null, waitMs);
});

test("while the API server is away everything is saved as ever, and the resources follow when it is back", async () => {
  const kap = await org.createKap(program);
  await until(() => read(kap.slug), waitMs);
  proxy.set("away");
  const made = await org.createKap(program);
  for (let n = 1; n <= 5; n++) await change("PATCH", path(kap.id), { name: `Name ${n}` });
  await until(() => api.lines.some((line) => line.msg === "a kap was not projected into the cluster; it will be"), waitMs);
  expect(await read(made.slug)).toBeNull();
  expect((await api.readyz()).checks.kubernetes).toBe("ok"); // what it knows is good enough
  const { refused } = proxy.counts;
  proxy.set("too-many");
  await until(() => proxy.counts.refused > refused, waitMs);
  proxy.set("none");
  await until(async () => (await read(kap.slug))?.spec.name === "Name 5" && (await read(made.slug)) !== null, waitMs);
});

test("a deleted kap keeps its resource until it is purged", async () => {
  const kap = await org.createKap(program);
  await until(() => read(kap.slug), waitMs);
  await change("DELETE", path(kap.id));
  await until(async () => (await read(kap.slug))?.spec.state === "deleted", waitMs);
  const { knex } = ground.database.postgres;
  await knex("kaps").where({ id: kap.id }).update({ purged_at: knex.fn.now() });
  await until(async () => (await read(kap.slug)) === null, waitMs);
});
