import { afterAll, expect, test } from "vitest";
import { acquireLease, LeaseLost, leaseResource } from "../../operator/lease.ts";
import { kapLabels } from "../../platform/kap-resource.ts";
import type { ApiResource } from "../../platform/kubernetes/client.ts";
import { createLogger } from "../../platform/log.ts";
import { until } from "../harness/wait.ts";
import { openGround, podResource } from "./operator-ground.ts";

const ground = await openGround();
const { namespace } = ground;
const { kubernetes, kubectl } = namespace;
afterAll(() => ground.close());
const waitMs = { timeoutMs: 60_000 };
const holder = async (): Promise<string> => (await kubernetes.get(leaseResource, "t-operator")).spec?.holderIdentity ?? "";

test("of two operators one leads; one that is stopped past its lease is replaced, and does nothing when it goes on", async () => {
  // Long enough that a machine that stands still for seconds takes it from nobody.
  const lease = { KAPSTONE_LEASE_SECONDS: "15" };
  const first = await ground.startOperator({ ...lease, KAPSTONE_POD_NAME: "first" });
  await until(() => first.leads(), waitMs);
  const second = await ground.startOperator({ ...lease, KAPSTONE_POD_NAME: "second" });
  const kap = await ground.makeKap({ schedules: ["*/15 * * * *"] });
  await kubectl("wait", "--for=condition=Ready", `kap/${kap.slug}`, "--timeout=60s");
  expect(await holder()).toMatch(/^first_/);
  expect(await second.leads()).toBe(false);

  // It is stopped with work before it, and has as much to do when it wakes as the other has done meanwhile.
  const kaps = await Promise.all(Array.from({ length: 8 }, () => ground.makeKap({ schedules: ["0 4 * * *"] })));
  first.child.kill("SIGSTOP");
  await Promise.all(kaps.map((_, i) => ground.makePod(`runtime-${i}`, `192.0.2.${100 + i}`)));
  await Promise.all(kaps.map(({ id }, i) => ground.claim(id, `tcp:192.0.2.${100 + i}:9001`)));
  await until(() => second.leads(), waitMs);
  first.child.kill("SIGCONT");
  await until(() => first.lines.some(({ msg }) => msg === "this operator does not lead any more"), waitMs);
  await until(async () => {
    const { items } = await kubernetes.listPage(podResource, { labelSelector: `${kapLabels.runtime}=claimed` });
    return items.length === kaps.length;
  }, waitMs);
  for (const { slug } of kaps) await kubectl("wait", "--for=jsonpath={.status.phase}=Running", `kap/${slug}`, "--timeout=60s");

  expect(await holder()).toMatch(/^second_/);
  expect(await first.leads()).toBe(false);
  // Whatever was done was done by one of them.
  expect((await first.metric("adoptions_total")) + (await second.metric("adoptions_total"))).toBe(kaps.length);
  await until(async () => (await kubectl("get", "cronjobs", "-o", "name")).trim().split("\n").length === 2, waitMs);
  expect((await first.monitor("/healthz")).status).toBe(200);
  expect(await first.stop()).toBe(0);
  expect(await second.stop()).toBe(0);
}, 300_000);

test("an operator that is told to end finishes, hands the lease over at once, and exits 0", async () => {
  // A lease far longer than the test waits: only handing over makes the next one lead.
  const lease = { KAPSTONE_LEASE_SECONDS: "300" };
  const first = await ground.startOperator({ ...lease, KAPSTONE_POD_NAME: "third" });
  await until(() => first.leads(), waitMs);
  const kap = await ground.makeKap();
  await kubectl("wait", "--for=condition=Ready", `kap/${kap.slug}`, "--timeout=60s");
  expect(await first.stop()).toBe(0);
  expect(await holder()).toBe("");
  const second = await ground.startOperator({ ...lease, KAPSTONE_POD_NAME: "fourth" });
  await until(() => second.leads(), waitMs);
  expect(await second.stop()).toBe(0);
});

test("a holder that was held up past its lease writes nothing more, whatever its timers have yet to say", async () => {
  const configMaps: ApiResource = { apiVersion: "v1", kind: "ConfigMap", plural: "configmaps" };
  const log = createLogger("lease-test", { level: "silent" });
  const durationSeconds = 10;
  const lease = { name: "held-up", identity: "one", durationSeconds, log };
  const term = await acquireLease(kubernetes, lease, new AbortController().signal);
  const guarded = kubernetes.guarded(term.check);
  await guarded.create(configMaps, { metadata: { name: "before" } });
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, durationSeconds * 1_000); // nothing of this process runs meanwhile
  await expect(guarded.create(configMaps, { metadata: { name: "after" } })).rejects.toThrow(LeaseLost);
  await expect(guarded.delete(configMaps, "before")).rejects.toThrow(LeaseLost);
  expect((await guarded.get(configMaps, "before")).metadata.name).toBe("before");
  expect(await kubectl("get", "configmap", "after", "--ignore-not-found")).toBe("");
});

test("of many that want a lease at once, one gets it, and a late renewal of another is no way in", async () => {
  const log = createLogger("lease-test", { level: "silent" });
  const end = new AbortController();
  let held = 0;
  const terms = await Promise.all(
    Array.from({ length: 5 }, async (_, i) => {
      const options = { name: "contested", identity: `candidate-${i}`, durationSeconds: 15, log };
      const term = await acquireLease(kubernetes, options, end.signal).catch(() => undefined);
      if (term) {
        held += 1;
        // The others wait for as long as it is renewed: longer than its time.
        await until(async () => (await kubernetes.get(leaseResource, "contested")).spec?.renewTime !== undefined);
        const since = performance.now();
        await until(() => performance.now() - since > 18_000 || term.signal.aborted, { timeoutMs: 60_000 });
        term.check();
        expect(held).toBe(1);
        end.abort();
      }
      return term;
    }),
  );
  expect(terms.filter((term) => term !== undefined)).toHaveLength(1);
  await terms.find((term) => term !== undefined)?.release();
});
