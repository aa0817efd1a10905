import { kapFieldManagers } from "#platform/kap-resource.ts";
import type { CronJob } from "./desired/cron-jobs.ts";
import { cronJobResource, desiredAnnotation, desiredCronJobs } from "./desired/cron-jobs.ts";
import type { ReconcileParts } from "./parts.ts";

/** The generation of each CronJob as this operator last applied it: one that has moved on was changed by somebody else. */
export type AppliedGenerations = Map<string, string>;

/**
 * Makes the CronJobs those that all kaps together need. One that the API server refuses holds up no other; the first refusal is thrown in the end, so
 * that all are tried again.
 */
export async function reconcileCronJobs(parts: ReconcileParts, applied: AppliedGenerations): Promise<undefined> {
  const wanted = new Map(desiredCronJobs(parts.kaps.values(), parts.firePod).map((job) => [job.metadata.name, job]));
  let refusal: unknown;
  for (const job of wanted.values()) {
    const { name } = job.metadata;
    if (isAsWanted(parts.cronJobs.get(name), job, applied)) continue;
    try {
      const made = await parts.kubernetes.apply(cronJobResource, job, { fieldManager: kapFieldManagers.operator });
      applied.set(name, identityOf(made));
      parts.log.info({ cron_job: name, schedule: job.spec.schedule }, "a CronJob was applied");
    } catch (error) {
      parts.log.error({ err: error, cron_job: name, schedule: job.spec.schedule }, "a CronJob could not be applied");
      refusal ??= error;
    }
  }
  for (const [name, { metadata }] of parts.cronJobs) {
    if (wanted.has(name) || metadata.deletionTimestamp !== undefined) continue;
    await parts.kubernetes.delete(cronJobResource, name, {
      preconditions: { uid: metadata.uid },
      propagationPolicy: "Background",
    });
    applied.delete(name);
    parts.log.info({ cron_job: name }, "a CronJob that no kap needs was deleted");
  }
  if (refusal !== undefined) throw refusal;
}

function isAsWanted(found: CronJob | undefined, wanted: CronJob, applied: AppliedGenerations): boolean {
  return (
    found !== undefined &&
    found.metadata.annotations?.[desiredAnnotation] === wanted.metadata.annotations?.[desiredAnnotation] &&
    applied.get(wanted.metadata.name) === identityOf(found)
  );
}

function identityOf({ metadata }: CronJob): string {
  return `${metadata.uid}/${metadata.generation}`;
}
