import { afterAll, beforeAll, expect, test } from "vitest";
import type { ApiResource } from "../../platform/kubernetes/client.ts";
import type { Pod } from "../../platform/kubernetes/objects.ts";
import { signUpOrg, type TestKap, type TestOrg } from "../harness/org.ts";
import { until } from "../harness/wait.ts";
import { type ApiReplica, openApiGround } from "./api-ground.ts";
import { openFaultyProxy } from "./faulty-proxy.ts";

const podResource: ApiResource<Pod> = { apiVersion: "v1", kind: "Pod", plural: "pods" };
const ground = await openApiGround();
const proxy = await openFaultyProxy();
let one: ApiReplica;
let two: ApiReplica;
let org: TestOrg;
beforeAll(async () => {
  await ground.deployPool(4);
  one = await ground.startApi({ KUBECONFIG: proxy.kubeconfig });
  two = await ground.startApi({ KUBECONFIG: proxy.kubeconfig });
  org = await signUpOrg(one);
}, 300_000);
afterAll(async () => {
  await ground.close();
  await proxy.close();
});
const waitMs = { timeoutMs: 60_000 };
const { knex } = ground.database.postgres;

const telling = (word: string): string => `export default () => new Response(${JSON.stringify(word)});`;
const rowsOf = (kap: TestKap) => knex("runtimes").where({ kap_id: kap.id, state: "ready" }).select("id", "data_address", "control_address");
const callOn = (replica: ApiReplica, kap: TestKap) =>
  replica.http.call({ host: replica.host(`${kap.slug}.kaps`), path: "/", headers: { authorization: `Bearer ${kap.token}` } });

test("a replica is ready when it knows the warm pods", async () => {
  for (const replica of [one, two]) {
    const { checks } = await until(async () => {
      const state = await replica.readyz();
      return state.status === 200 && state;
    }, waitMs);
    expect(checks).toMatchObject({ kubernetes: "ok", runtimes: "ok", leaving: "ok" });
  }
});

test("the first calls of a kap, on two replicas at once, claim one warm pod by direct HTTP", async () => {
  const kap = await org.createKap(telling("hello"));
  const answers = await Promise.all(Array.from({ length: 20 }, (_, n) => callOn(n % 2 === 0 ? one : two, kap)));
  expect(answers.map(({ text }) => text)).toEqual(answers.map(() => "hello"));
  const rows = await rowsOf(kap);
  expect(rows).toHaveLength(1);
  const { items } = await ground.namespace.kubernetes.listPage(podResource, {});
  expect(items.map(({ status }) => `tcp:${status?.podIP}:9001`)).toContain(rows[0].control_address);
});

test("a call that follows an address which is now another kap's runtime never reaches that kap's program", async () => {
  const [mine, other] = [await org.createKap(telling("mine")), await org.createKap(telling("other"))];
  expect((await mine.call()).text).toBe("mine");
  expect((await other.call()).text).toBe("other");
  const [theirs] = await rowsOf(other);
  await knex("runtimes")
    .where({ kap_id: mine.id })
    .update({
      data_address: theirs.data_address,
      control_address: theirs.control_address,
      last_report_at: knex.raw("now() - interval '1 hour'"),
    });
  for (let n = 0; n < 5; n++) {
    expect((await callOn(n % 2 === 0 ? one : two, mine)).text).toBe("mine");
    expect((await callOn(n % 2 === 0 ? one : two, other)).text).toBe("other");
  }
  expect(await rowsOf(other)).toEqual([theirs]);
});

test("while the Kubernetes API server is away kaps run, are saved, and claim the pods that are known", async () => {
  await ground.deployPool(7); // without an operator claimed pods go on counting as warm ones, so none is made in their place
  const known = await org.createKap(telling("before"));
  expect((await known.call()).text).toBe("before");
  proxy.set("away");
  expect((await known.call()).text).toBe("before");
  expect((await known.save(telling("after"))).status).toBe(200);
  expect((await known.call()).text).toBe("after");
  const fresh = await org.createKap(telling("fresh"));
  expect((await fresh.call()).text).toBe("fresh");
  await until(async () => (await one.readyz()).status === 200, waitMs); // its checks have two seconds each
  proxy.set("none");
}, 400_000);

test("a pod that dies is replaced at the next call; acknowledged state is in PostgreSQL, not in it", async () => {
  await ground.deployPool(9);
  const kap = await org.createKap(telling("again"));
  expect((await kap.call()).text).toBe("again");
  const [row] = await rowsOf(kap);
  const { items } = await ground.namespace.kubernetes.listPage(podResource, {});
  const pod = items.find(({ status }) => row.control_address === `tcp:${status?.podIP}:9001`);
  await ground.namespace.kubectl("delete", "pod", pod?.metadata.name ?? "", "--grace-period=0", "--force");
  await until(async () => (await kap.call()).text === "again" && (await rowsOf(kap))[0]?.id !== row.id, waitMs);
}, 400_000);

test("a replica that is told to end turns unready at once, fails no call, and ends with 0", async () => {
  const kap = await org.createKap(
    `export default async () => { await new Promise((done) => setTimeout(done, 50)); return new Response("slow"); };`,
  );
  expect((await callOn(two, kap)).text).toBe("slow");
  let isLeaving = false;
  const statuses = new Map<string, number>();
  const caller = async (): Promise<void> => {
    while (!isLeaving) {
      const { status } = await callOn(two, kap);
      statuses.set(String(status), (statuses.get(String(status)) ?? 0) + 1);
    }
  };
  const callers = Promise.all(Array.from({ length: 8 }, caller));
  await until(() => (statuses.get("200") ?? 0) > 20, waitMs);
  const ended = two.stop();
  const unready = await until(async () => {
    const state = await two.readyz();
    return state.status === 503 && state;
  }, waitMs);
  expect(unready.checks.leaving).toMatch(/about to end/);
  isLeaving = true; // as proxies do that hear of it
  await callers;
  expect([...statuses.keys()]).toEqual(["200"]);
  expect(await ended).toBe(0);
});
