import { createHash } from "node:crypto";
import * as z from "zod";
import { type Kap, kapFieldManagers, kapLabels } from "#platform/kap-resource.ts";
import type { ApiResource } from "#platform/kubernetes/client.ts";
import type { KubernetesObject } from "#platform/kubernetes/objects.ts";
import { restrictedContainer, restrictedPod } from "./restricted-pod.ts";

export interface CronJob extends KubernetesObject {
  spec: { schedule: string } & Record<string, unknown>;
}

export const cronJobResource: ApiResource<CronJob> = { apiVersion: "batch/v1", kind: "CronJob", plural: "cronjobs" };

/** Every interval is a number of seconds from its trigger's creation: a look each minute is what Kubernetes offers. */
const everyMinute = "* * * * *";
const component = "fire";

/** What the pods that fire schedules are made of. */
export interface FirePod {
  release: string;
  image: string;
  /** The API's internal listener. */
  url: string;
  secretName: string;
  overrides: PodOverrides;
}

const overrideFields = z.strictObject({
  imagePullPolicy: z.enum(["Always", "IfNotPresent", "Never"]).optional(),
  imagePullSecrets: z.array(z.strictObject({ name: z.string() })).optional(),
  nodeSelector: z.record(z.string(), z.string()).optional(),
  tolerations: z.array(z.record(z.string(), z.unknown())).optional(),
  affinity: z.record(z.string(), z.unknown()).optional(),
  priorityClassName: z.string().optional(),
  runtimeClassName: z.string().optional(),
  resources: z.record(z.string(), z.unknown()).optional(),
});
export type PodOverrides = z.infer<typeof overrideFields>;

/** The setting's text as overrides. */
export const podOverrides = z
  .string()
  .optional()
  .transform((text, context): PodOverrides | undefined => {
    if (text === undefined || text === "") return undefined;
    try {
      return overrideFields.parse(JSON.parse(text));
    } catch (error) {
      const why = error instanceof z.ZodError ? z.prettifyError(error).replaceAll("\n", " ") : "it is no JSON";
      context.addIssue({ code: "custom", message: `must be a JSON object of these fields: ${why}` });
      return z.NEVER;
    }
  });

/** Labels by which the operator finds its CronJobs again. */
export function cronJobLabels(release: string): Record<string, string> {
  return {
    "app.kubernetes.io/name": "kapstone",
    [kapLabels.managedBy]: kapFieldManagers.operator,
    [kapLabels.instance]: release,
    [kapLabels.component]: component,
  };
}

/**
 * The CronJobs that all kaps together need: one per distinct cron expression in use, one every minute while any kap counts by intervals, none when
 * nothing is scheduled (decided §7.4). What is due is decided in PostgreSQL; a CronJob only makes somebody look.
 */
export function desiredCronJobs(kaps: Iterable<Kap>, pod: FirePod): CronJob[] {
  const cadences = new Set<string>();
  let hasIntervals = false;
  for (const { spec, metadata } of kaps) {
    if (spec.state !== "active" || metadata.deletionTimestamp !== undefined) continue;
    for (const cron of spec.schedules) cadences.add(cron);
    hasIntervals ||= spec.hasIntervals;
  }
  const jobs = [...cadences].sort().map((cron) => cronJob(`${pod.release}-cron-${shortHash(cron)}`, cron, pod));
  return hasIntervals ? [...jobs, cronJob(`${pod.release}-cron-intervals`, everyMinute, pod)] : jobs;
}

/** Annotation with the digest of what was applied: tells whether the operator now wants something else. */
export const desiredAnnotation = "kapstone.dev/desired";

function cronJob(name: string, schedule: string, pod: FirePod): CronJob {
  const labels = cronJobLabels(pod.release);
  const { imagePullPolicy, resources, ...podFields } = pod.overrides;
  const spec = {
    schedule,
    timeZone: "Etc/UTC",
    concurrencyPolicy: "Forbid",
    startingDeadlineSeconds: 200, // one that was held up still makes somebody look; with fewer than 100 missed starts the controller counts no further
    successfulJobsHistoryLimit: 1,
    failedJobsHistoryLimit: 1,
    jobTemplate: {
      metadata: { labels },
      spec: {
        backoffLimit: 2,
        activeDeadlineSeconds: 120,
        ttlSecondsAfterFinished: 3_600,
        template: {
          metadata: { labels },
          spec: {
            ...restrictedPod,
            restartPolicy: "Never",
            ...podFields,
            containers: [
              {
                ...restrictedContainer,
                name: "fire",
                image: pod.image,
                ...(imagePullPolicy && { imagePullPolicy }),
                command: ["node", "fire.js"],
                env: [
                  { name: "KAPSTONE_INTERNAL_URL", value: pod.url },
                  { name: "KAPSTONE_FIRE_TOKEN", valueFrom: { secretKeyRef: { name: pod.secretName, key: "KAPSTONE_FIRE_TOKEN" } } },
                ],
                resources: resources ?? { requests: { cpu: "10m", memory: "32Mi" }, limits: { memory: "128Mi" } },
              },
            ],
          },
        },
      },
    },
  };
  return { metadata: { name, labels, annotations: { [desiredAnnotation]: shortHash(JSON.stringify(spec)) } }, spec };
}

function shortHash(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 10);
}
