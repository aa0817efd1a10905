import { expect, test } from "vitest";
import type { Kap } from "#platform/kap-resource.ts";
import type { Kubernetes } from "#platform/kubernetes/client.ts";
import type { Pod } from "#platform/kubernetes/objects.ts";
import { createLogger } from "#platform/log.ts";
import { createMetrics } from "#platform/metrics.ts";
import { kubernetesAnswering } from "../test/harness/kubernetes-api.ts";
import { adoptPods } from "./adoption.ts";
import { createEventRecorder } from "./events.ts";
import { createOperatorMetrics } from "./metrics.ts";
import type { ReconcileParts } from "./parts.ts";

/** An API server that takes everything and remembers what was asked of it. */
async function patientServer(): Promise<{ asked: string[]; kubernetes: Kubernetes }> {
  const asked: string[] = [];
  const kubernetes = await kubernetesAnswering((request, response) => {
    asked.push(`${request.method} ${request.url?.split("/").slice(-2).join("/")}`);
    response.writeHead(200, { "content-type": "application/json" }).end("{}");
  });
  return { asked, kubernetes };
}

test("a pod is adopted once, however often its kap is looked at before the watch brings the adoption back", async () => {
  const { asked, kubernetes } = await patientServer();
  const log = createLogger("test", { level: "silent" });
  const kap = { apiVersion: "kapstone.dev/v1", kind: "Kap", metadata: { name: "shop", uid: "u" }, spec: { kapId: "k" } } as Kap;
  const control = "tcp:10.0.0.7:9001";
  const warm = (): Pod => ({
    metadata: { name: "pod", uid: "p", labels: { "kapstone.dev/runtime": "warm" } },
    status: { podIP: "10.0.0.7" },
  });
  const pods = new Map([["pod", warm()]]);
  const rows = new Map([[control, { id: "r", kapId: "k", state: "ready" as const, control, claimSeconds: 0 }]]);
  const metrics = createOperatorMetrics(createMetrics("operator"), () => undefined);
  const events = createEventRecorder(kubernetes, "test", log);
  const runtimes = () => ({ rows, ageMs: 0, discarded: new Set<string>() });
  const parts = { kubernetes, log, pods, runtimes, metrics, events } as Partial<ReconcileParts> as ReconcileParts;

  for (let look = 0; look < 3; look++) expect(await adoptPods(parts, kap)).toBe(1);
  await events.flush();
  expect(asked.filter((line) => line.startsWith("PATCH"))).toEqual(["PATCH pods/pod"]);
  expect((await metrics.adoptions.get()).values[0]?.value).toBe(1);

  // Somebody has put it back into the pool.
  pods.set("pod", warm());
  await adoptPods(parts, kap);
  expect(asked.filter((line) => line.startsWith("PATCH"))).toHaveLength(2);
});
