import type { Kap } from "#platform/kap-resource.ts";
import type { ApiResource, Kubernetes } from "#platform/kubernetes/client.ts";
import type { Pod } from "#platform/kubernetes/objects.ts";
import type { Logger } from "#platform/log.ts";
import type { Knex } from "#platform/postgres.ts";
import type { Buckets } from "./buckets.ts";
import type { CronJob, FirePod } from "./desired/cron-jobs.ts";
import type { EventRecorder } from "./events.ts";
import type { KapDatabases } from "./kap-databases.ts";
import type { OperatorMetrics } from "./metrics.ts";
import type { RuntimeRows } from "./runtime-rows.ts";

export const podResource: ApiResource<Pod> = { apiVersion: "v1", kind: "Pod", plural: "pods" };

/** What the work on one key may use. Stores are what the watches have seen so far; every write is checked against the lease. */
export interface ReconcileParts {
  kubernetes: Kubernetes;
  db: Knex;
  log: Logger;
  kaps: ReadonlyMap<string, Kap>;
  pods: ReadonlyMap<string, Pod>;
  cronJobs: ReadonlyMap<string, CronJob>;
  /** The table of runtimes; undefined until it has been read once. */
  runtimes(): RuntimeRows | undefined;
  databases: KapDatabases;
  buckets: Buckets;
  events: EventRecorder;
  metrics: OperatorMetrics;
  firePod: FirePod;
}
