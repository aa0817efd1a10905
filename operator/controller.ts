import { setTimeout as delay } from "node:timers/promises";
import { type Kap, kapLabels, kapResource } from "#platform/kap-resource.ts";
import { isConflict, type Kubernetes } from "#platform/kubernetes/client.ts";
import type { Pod } from "#platform/kubernetes/objects.ts";
import { type ObjectWatch, watchObjects } from "#platform/kubernetes/watch.ts";
import type { Logger } from "#platform/log.ts";
import type { Knex } from "#platform/postgres.ts";
import { countPods, keysToDo, reconcilePod } from "./adoption.ts";
import type { Buckets } from "./buckets.ts";
import { type CronJob, cronJobLabels, cronJobResource, type FirePod } from "./desired/cron-jobs.ts";
import { controlAddressOf } from "./desired/pods.ts";
import { createEventRecorder } from "./events.ts";
import type { KapDatabases } from "./kap-databases.ts";
import { LeaseLost, type Term } from "./lease.ts";
import type { OperatorMetrics, OperatorState } from "./metrics.ts";
import { podResource, type ReconcileParts } from "./parts.ts";
import { createQueue } from "./queue.ts";
import { reconcileCronJobs } from "./reconcile-cron-jobs.ts";
import { reconcileKap } from "./reconcile-kap.ts";
import { followRuntimeRows, type RuntimeRow } from "./runtime-rows.ts";

/** What a controller is given for one term of leadership. */
export interface ControllerOptions {
  kubernetes: Kubernetes;
  db: Knex;
  databaseUrl: string;
  databases: KapDatabases;
  buckets: Buckets;
  metrics: OperatorMetrics;
  firePod: FirePod;
  identity: string;
  workers: number;
  log: Logger;
}

/** A controller at work. */
export interface Controller {
  state(): OperatorState;
  /** What has not moved although it should have, a line each; empty when all is well. */
  stuck(): string[];
  /** Takes no more work, lets what is under way end (at most 10 s), and stops watching. */
  stop(): Promise<void>;
}

const databasesMs = 20_000;
const databasePatienceMs = 5_000;
const stuckMs = 120_000;
const finishMs = 10_000;
/** Changes of pods that come together are looked at together. */
const gatherMs = 20;
const cronJobsKey = "cron-jobs";
const runtimesKey = "runtimes";

/**
 * The controller of one term of leadership: watches Kap resources, runtime pods, its CronJobs and the table of runtimes, and works through what they
 * ask for by key. Everything that it writes is checked against the lease right before it is sent.
 */
export function startController(options: ControllerOptions, term: Term): Controller {
  const { db, databaseUrl, databases, metrics, log } = options;
  const kubernetes = options.kubernetes.guarded(term.check);
  const end = new AbortController();
  const signal = AbortSignal.any([end.signal, term.signal]);
  const ofRelease = `${kapLabels.instance}=${options.firePod.release}`;
  const applied = new Map<string, string>();
  const namesById = new Map<string, string>();

  const kaps: ObjectWatch<Kap> = watchObjects(kubernetes, {
    resource: kapResource,
    labelSelector: ofRelease,
    signal,
    log,
    onChange({ type, object, previous }) {
      if (type === "deleted") namesById.delete(object.spec.kapId);
      else namesById.set(object.spec.kapId, object.metadata.name);
      queue.add(`kap/${object.metadata.name}`);
      if (type !== "modified" || cadencesOf(object) !== cadencesOf(previous)) queue.add(cronJobsKey);
    },
    onSynced: () => queue.add(cronJobsKey),
  });
  const pods: ObjectWatch<Pod> = watchObjects(kubernetes, {
    resource: podResource,
    labelSelector: `${ofRelease},${kapLabels.component}=runtime,${kapLabels.runtime}`,
    keep: essentialsOf,
    signal,
    log,
    onChange({ type, previous }) {
      const address = type === "deleted" ? controlAddressOf(previous) : undefined;
      if (address !== undefined) runtimes.forget(address);
      queue.addAfter(runtimesKey, gatherMs);
    },
    onSynced: () => queue.add(runtimesKey),
  });
  const cronJobs: ObjectWatch<CronJob> = watchObjects(kubernetes, {
    resource: cronJobResource,
    labelSelector: Object.entries(cronJobLabels(options.firePod.release))
      .map(([name, value]) => `${name}=${value}`)
      .join(","),
    signal,
    log,
    onChange: ({ type, object, previous }) => {
      // Not for every run that its status tells of.
      if (type !== "modified" || object.metadata.generation !== previous.metadata.generation) queue.add(cronJobsKey);
    },
    onSynced: () => queue.add(cronJobsKey),
  });
  const runtimes = followRuntimeRows({
    databaseUrl,
    log,
    signal,
    onRead(now, before) {
      for (const kapId of changedKaps(now, before)) {
        const name = namesById.get(kapId);
        if (name !== undefined) queue.add(`kap/${name}`);
      }
      if (before) for (const row of startedSince(now, before)) metrics.coldStart.observe(row.claimSeconds);
      queue.add(runtimesKey);
    },
  });
  const parts: ReconcileParts = {
    kubernetes,
    db,
    log,
    kaps: kaps.store,
    pods: pods.store,
    cronJobs: cronJobs.store,
    runtimes: runtimes.current,
    databases,
    buckets: options.buckets,
    events: createEventRecorder(kubernetes, options.identity, log),
    metrics,
    firePod: options.firePod,
  };

  async function work(key: string): Promise<number | undefined> {
    if (key === cronJobsKey) return await reconcileCronJobs(parts, applied);
    if (key === runtimesKey) {
      forgetGone(runtimes, pods.store);
      for (const todo of keysToDo(parts)) queue.add(todo);
      return undefined;
    }
    const [kind, name = ""] = key.split("/");
    return kind === "pod" ? await reconcilePod(parts, name) : await reconcileKap(parts, name);
  }

  const queue = createQueue({
    workers: options.workers,
    work,
    onDone(key, error) {
      const kind = key.split("/")[0] ?? "";
      metrics.reconciles.inc({ kind, outcome: error === undefined ? "ok" : isConflict(error) ? "conflict" : "error" });
      if (error === undefined || error instanceof LeaseLost || signal.aborted) return;
      // Someone else was faster: the watch brings what they did.
      if (isConflict(error)) return log.debug({ key, err: error }, "changed meanwhile; looked at again");
      metrics.errors.inc({ kind });
      log.warn({ key, err: error }, "not done yet; tried again later");
    },
  });

  /** Looks at all kaps' databases now and then: what is missing is repaired by the kap's own key. */
  async function lookAtDatabases(): Promise<void> {
    while (!signal.aborted) {
      try {
        for (const { kapId } of await databases.look()) {
          const name = namesById.get(kapId);
          if (name !== undefined) queue.add(`kap/${name}`);
        }
      } catch (error) {
        if (!signal.aborted) log.warn({ err: error }, "the kaps' databases could not be looked at");
      }
      await delay(databasesMs * (0.9 + Math.random() * 0.2), undefined, { signal }).catch(() => undefined);
    }
  }
  const looking = lookAtDatabases();
  // What is not known yet must not be taken for gone. PostgreSQL is waited for a little only: deleted resources must go without it too.
  const rowsRead = Promise.race([runtimes.read, delay(databasePatienceMs, undefined, { signal }).catch(() => undefined)]);
  const starting = Promise.all([kaps.synced, pods.synced, cronJobs.synced, rowsRead]).then(() => {
    if (!signal.aborted) queue.start();
  });
  const watches = { kaps, pods, cron_jobs: cronJobs };

  return {
    state: () => ({
      queueDepth: queue.depth(),
      watchFailures: Object.values(watches).reduce((sum, watch) => sum + watch.failures(), 0),
      kaps: kaps.store.size,
      pool: countPods(pods.store),
      claims: [...(runtimes.current()?.rows.values() ?? [])].filter(({ state }) => state === "ready").length,
      cronJobs: cronJobs.store.size,
    }),
    stuck() {
      const lines = Object.entries(watches).flatMap(([name, watch]) =>
        watch.stuckMs() > stuckMs ? [`the watch of ${name} has not moved for ${Math.round(watch.stuckMs() / 1_000)} s`] : [],
      );
      return queue.stuckMs() > stuckMs ? [...lines, `the queue has not moved for ${Math.round(queue.stuckMs() / 1_000)} s`] : lines;
    },
    async stop() {
      await queue.close(finishMs);
      await parts.events.flush();
      end.abort();
      await Promise.all([kaps.ended, pods.ended, cronJobs.ended, runtimes.ended, looking, starting]);
    },
  };
}

/** An address that was given up is that of one pod; another may get it later. */
function forgetGone(runtimes: ReturnType<typeof followRuntimeRows>, pods: ReadonlyMap<string, Pod>): void {
  const discarded = runtimes.current()?.discarded;
  if (!discarded || discarded.size === 0) return;
  const addresses = new Set([...pods.values()].map(controlAddressOf));
  for (const address of discarded) if (!addresses.has(address)) runtimes.forget(address);
}

function cadencesOf({ spec, metadata }: Kap): string {
  return JSON.stringify([spec.state, spec.schedules, spec.hasIntervals, metadata.deletionTimestamp !== undefined]);
}

/** Kaps whose runtimes are others than before. */
function changedKaps(now: ReadonlyMap<string, RuntimeRow>, before: ReadonlyMap<string, RuntimeRow> | undefined): Set<string> {
  const changed = new Set<string>();
  for (const [control, row] of now) {
    const was = before?.get(control);
    if (was?.id !== row.id || was.state !== row.state) changed.add(row.kapId);
  }
  for (const [control, row] of before ?? []) if (now.get(control)?.id !== row.id) changed.add(row.kapId);
  return changed;
}

function* startedSince(now: ReadonlyMap<string, RuntimeRow>, before: ReadonlyMap<string, RuntimeRow>): Generator<RuntimeRow> {
  for (const [control, row] of now) if (before.get(control)?.id !== row.id && row.state === "ready") yield row;
}

/** What is kept of a pod in memory. */
function essentialsOf({ metadata, status }: Pod): Pod {
  const { name, uid, resourceVersion, deletionTimestamp, labels, annotations, ownerReferences } = metadata;
  const kept = { uid, resourceVersion, deletionTimestamp, labels, annotations, ownerReferences };
  return {
    metadata: {
      name,
      ...(Object.fromEntries(Object.entries(kept).filter(([, value]) => value !== undefined)) as Omit<Pod["metadata"], "name">),
    },
    ...(status && {
      status: {
        ...(status.phase && { phase: status.phase }),
        ...(status.podIP && { podIP: status.podIP }),
        conditions: (status.conditions ?? []).filter(({ type }) => type === "Ready").map(({ type, status: is }) => ({ type, status: is })),
        containerStatuses: (status.containerStatuses ?? []).map(({ name: container, ready, restartCount }) => ({
          name: container,
          ready,
          restartCount,
        })),
      },
    }),
  };
}
