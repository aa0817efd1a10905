import { expect, test } from "vitest";
import type { Kap } from "#platform/kap-resource.ts";
import { desiredCronJobs, type FirePod, podOverrides } from "./cron-jobs.ts";

const pod: FirePod = { release: "shop", image: "example.org/operator:1", url: "http://api:8081", secretName: "shop-fire", overrides: {} };

function kap(schedules: string[], hasIntervals = false, state: Kap["spec"]["state"] = "active"): Kap {
  return { metadata: { name: "k" }, spec: { state, schedules, hasIntervals } } as Kap;
}
const cadences = (...kaps: Kap[]): string[] => desiredCronJobs(kaps, pod).map(({ spec }) => spec.schedule);

test("one CronJob stands for each distinct cadence, and one every minute for all intervals", () => {
  expect(cadences(kap(["0 3 * * *", "*/15 * * * *"]), kap(["0 3 * * *"], true), kap([], true))).toEqual([
    "*/15 * * * *",
    "0 3 * * *",
    "* * * * *",
  ]);
});

test("no kap, no schedule, or none that is active: no CronJob", () => {
  expect(cadences()).toEqual([]);
  expect(cadences(kap([]), kap(["0 3 * * *"], true, "disabled"), kap(["0 3 * * *"], true, "deleted"))).toEqual([]);
});

test("a cadence has the same name whoever uses it, and a name that Kubernetes takes", () => {
  const release = "a".repeat(36);
  const names = desiredCronJobs([kap(["0 3 * * *"], true)], { ...pod, release }).map(({ metadata }) => metadata.name);
  expect(names).toEqual(
    desiredCronJobs([kap(["0 3 * * *"], true), kap(["0 3 * * *"])], { ...pod, release }).map(({ metadata }) => metadata.name),
  );
  for (const name of names) expect(name.length).toBeLessThanOrEqual(52);
});

test("what a CronJob is made of shows in its annotation, so that a changed image is applied", () => {
  const annotation = (given: FirePod) => desiredCronJobs([kap(["0 3 * * *"])], given)[0]?.metadata.annotations;
  expect(annotation(pod)).toEqual(annotation({ ...pod }));
  expect(annotation(pod)).not.toEqual(annotation({ ...pod, image: "example.org/operator:2" }));
});

test("the pods have no way to the API server and run as nobody in particular; their token comes from the Secret", () => {
  const [job] = desiredCronJobs([kap(["0 3 * * *"])], { ...pod, overrides: { nodeSelector: { disk: "fast" }, imagePullPolicy: "Never" } });
  expect(job?.spec).toMatchObject({
    concurrencyPolicy: "Forbid",
    jobTemplate: {
      spec: {
        template: {
          spec: {
            automountServiceAccountToken: false,
            enableServiceLinks: false,
            nodeSelector: { disk: "fast" },
            securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
            containers: [
              {
                imagePullPolicy: "Never",
                command: ["node", "fire.js"],
                env: [
                  { name: "KAPSTONE_INTERNAL_URL" },
                  { valueFrom: { secretKeyRef: { name: "shop-fire", key: "KAPSTONE_FIRE_TOKEN" } } },
                ],
                securityContext: { readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } },
              },
            ],
          },
        },
      },
    },
  });
});

test("overrides that are no JSON, or of other fields, are refused by name", () => {
  expect(podOverrides.parse(undefined)).toBeUndefined();
  expect(podOverrides.parse('{"tolerations":[{"key":"spot"}]}')).toEqual({ tolerations: [{ key: "spot" }] });
  expect(() => podOverrides.parse("{")).toThrow(/it is no JSON/);
  expect(() => podOverrides.parse('{"hostNetwork":true}')).toThrow(/hostNetwork/);
});
