import { afterAll, afterEach, expect, test } from "vitest";
import { type ApiResource, connectKubernetes } from "../../platform/kubernetes/client.ts";
import type { KubernetesObject } from "../../platform/kubernetes/objects.ts";
import { type ObjectChange, type ObjectWatch, watchObjects } from "../../platform/kubernetes/watch.ts";
import { createLogger } from "../../platform/log.ts";
import { until } from "../harness/wait.ts";
import { type Fault, openFaultyProxy } from "./faulty-proxy.ts";
import { createNamespace } from "./namespace.ts";

interface ConfigMap extends KubernetesObject {
  data?: Record<string, string>;
}
const configMaps: ApiResource<ConfigMap> = { apiVersion: "v1", kind: "ConfigMap", plural: "configmaps" };

const [namespace, proxy] = await Promise.all([createNamespace(), openFaultyProxy()]);
/** Past every fault. */
const direct = namespace.kubernetes;
const through = await connectKubernetes({ namespace: namespace.name, env: { KUBECONFIG: proxy.kubeconfig } });
const log = createLogger("watch-test", { level: "silent" });
const labels = { "kapstone.dev/test": "watch" };
let end = new AbortController();

afterEach(async () => {
  proxy.set("none");
  end.abort();
  end = new AbortController();
});
afterAll(async () => {
  await through.close();
  await proxy.close();
  await namespace.close();
});

function follow(relistSeconds: number): { watch: ObjectWatch<ConfigMap>; changes: ObjectChange<ConfigMap>[] } {
  const changes: ObjectChange<ConfigMap>[] = [];
  const watch = watchObjects(through, {
    resource: configMaps,
    labelSelector: "kapstone.dev/test=watch",
    onChange: (change) => changes.push(change),
    signal: end.signal,
    log,
    relistSeconds,
  });
  return { watch, changes };
}

const write = (name: string, value: string) =>
  direct.apply(configMaps, { metadata: { name, labels }, data: { value } }, { fieldManager: "tests" });
const valueIn = (watch: ObjectWatch<ConfigMap>, name: string): string | undefined => watch.store.get(name)?.data?.value;

test("a watch tells what is there, what comes, changes and goes, once each", async () => {
  await write("first", "1");
  const { watch, changes } = follow(40);
  await watch.synced;
  expect(valueIn(watch, "first")).toBe("1");
  await write("second", "1");
  await write("second", "2");
  await until(() => valueIn(watch, "second") === "2");
  await direct.delete(configMaps, "second");
  await until(() => !watch.store.has("second"));
  expect(changes.map(({ type, object }) => `${type} ${object.metadata.name} ${object.data?.value}`)).toEqual([
    "added first 1",
    "added second 1",
    "modified second 2",
    "deleted second 2",
  ]);
});

const faults: Fault[] = ["away", "too-many", "gone", "cut", "mute", "lossy"];
test.each(faults)("nothing that happens while the API server is '%s' is missed", async (fault) => {
  const name = `during-${fault}`;
  await Promise.all([write(`${name}-kept`, "1"), write(`${name}-gone`, "1")]);
  const watches = proxy.counts.watches;
  const { watch, changes } = follow(6);
  await until(() => proxy.counts.watches > watches);
  await until(() => valueIn(watch, `${name}-gone`) === "1");
  proxy.set(fault);
  for (let i = 2; i <= 20; i++) await write(`${name}-kept`, String(i));
  await write(`${name}-new`, "1");
  await direct.delete(configMaps, `${name}-gone`);
  if (fault === "away" || fault === "too-many") {
    await until(() => proxy.counts.refused > 0 && watch.failures() > 0, { what: "a failure that is noticed" });
    proxy.set("none");
  }
  // All else heals while the fault goes on: by lists.
  await until(() => valueIn(watch, `${name}-kept`) === "20" && valueIn(watch, `${name}-new`) === "1" && !watch.store.has(`${name}-gone`), {
    timeoutMs: 60_000,
    what: "the store to be what the API server has",
  });
  expect(changes.filter(({ type, object }) => type === "deleted" && object.metadata.name === `${name}-gone`)).toHaveLength(1);
  expect(changes.filter(({ type, object }) => type === "added" && object.metadata.name === `${name}-new`)).toHaveLength(1);
});

test("an object that was deleted and made anew unseen is told as both", async () => {
  await write("again", "1");
  const { watch, changes } = follow(40);
  await until(() => valueIn(watch, "again") === "1");
  proxy.set("away");
  await direct.delete(configMaps, "again");
  await write("again", "2");
  proxy.set("none");
  await until(() => valueIn(watch, "again") === "2");
  const told = changes.filter(({ object }) => object.metadata.name === "again").map(({ type, object }) => `${type} ${object.data?.value}`);
  expect(told).toEqual(["added 1", "deleted 1", "added 2"]);
});

test("an API server that is away is not asked in a busy loop", async () => {
  const { watch } = follow(40);
  await watch.synced;
  proxy.set("away");
  const before = proxy.counts.refused;
  await until(() => watch.failures() >= 6, { timeoutMs: 60_000 });
  expect(proxy.counts.refused - before).toBeLessThanOrEqual(watch.failures() + 1);
  expect(watch.stuckMs()).toBeLessThan(30_000);
  expect(watch.silentMs()).toBeGreaterThan(0);
});
