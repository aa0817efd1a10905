import { isDeepStrictEqual } from "node:util";
import { addJob, type JobHandlers, recurringJob } from "#platform/jobs.ts";
import { type Kap, kapFieldManagers, kapLabels, kapResource } from "#platform/kap-resource.ts";
import type { Kubernetes } from "#platform/kubernetes/client.ts";
import { Counter } from "#platform/metrics.ts";
import type { Db } from "#platform/postgres.ts";
import type { Deps } from "../deps.ts";
import { desiredKap, type KapRow, readKapRow, readKapRows } from "./kap-rows.ts";

const projectJob = "kaps.project";
const resyncJob = "kaps.resync";
/** For one call of the API server: a job must not hold its worker for long while it is away. */
const callMs = 5_000;
const longestPauseMs = 15_000;
const pageSize = 500;
const maxRounds = 10;
/** After so many failures of one comparison it is given up: then it is not about single kaps. */
const maxFailures = 10;

/**
 * Puts a kap's projection into the queue, in the transaction that changed it: one job per kap waits, however many changes there are, and a change
 * while one runs is another. All go one after another, so that an API server that is away holds one worker and not all.
 */
export async function kapChanged(db: Db, kapId: string): Promise<void> {
  await addProjection(db, { kap_id: kapId, failures: 0 }, new Date());
}

async function addProjection(db: Db, payload: { kap_id: string; failures: number }, runAt: Date): Promise<void> {
  await addJob(db, projectJob, payload, { key: `${projectJob}:${payload.kap_id}`, queue: projectJob, runAt });
}

/** Makes sure that the comparison of everything comes round: call it at every start. One job of it waits at a time, whoever calls. */
export async function ensureResync(db: Db): Promise<void> {
  await addJob(db, resyncJob, {}, { key: resyncJob });
}

export interface ProjectionOptions {
  kubernetes: Kubernetes;
  release: string;
  resyncSeconds: number;
}

/** `Kap` resources follow the table of kaps: changes at once, and everything every `resyncSeconds`, whoever changed or removed a resource. */
export function projectionJobs(deps: Deps, { kubernetes, release, resyncSeconds }: ProjectionOptions): JobHandlers {
  const { db, log } = deps;
  const written = new Counter({
    name: "kapstone_kap_projections_total",
    help: "Kap resources written or removed, by what made it necessary (change, drift), and failed tries",
    labelNames: ["cause"],
    registers: [deps.metrics],
  });
  const desired = (row: KapRow): Kap => desiredKap(row, { release, address: deps.addresses.kap(row.slug) });

  /** Makes the resource what the row says; again when the row has changed meanwhile, so that the last word is the table's whoever else writes. */
  async function project(kapId: string, signal: AbortSignal): Promise<void> {
    let row = await readKapRow(db, kapId);
    for (let round = 0; row && round < maxRounds; round++) {
      const options = { signal, deadlineMs: callMs };
      if (row.purged_at !== null) await kubernetes.delete(kapResource, row.slug, options);
      else await kubernetes.apply(kapResource, desired(row), { ...options, fieldManager: kapFieldManagers.api });
      const after = await readKapRow(db, kapId);
      if (isDeepStrictEqual(after, row)) return;
      row = after;
    }
  }

  async function listKaps(signal: AbortSignal): Promise<Map<string, Kap>> {
    const kaps = new Map<string, Kap>();
    let position: string | undefined;
    do {
      const page = await kubernetes.listPage(kapResource, { limit: pageSize, continue: position }, { signal, deadlineMs: callMs });
      for (const kap of page.items) kaps.set(kap.metadata.name, kap);
      position = page.continue;
    } while (position !== undefined);
    return kaps;
  }

  /** Compares all kaps with all resources and puts right what differs. The table is read after the list, so what is new in it is never taken for left over. */
  async function resync(signal: AbortSignal): Promise<void> {
    const resources = await listKaps(signal);
    let repaired = 0;
    const failures: unknown[] = [];
    /** One that cannot be repaired must not keep the others from it. */
    const repair = async (work: () => Promise<unknown>): Promise<void> => {
      await work().then(
        () => (repaired += 1),
        (error: unknown) => void failures.push(error),
      );
      if (failures.length >= maxFailures) throw failures[0];
    };
    for await (const rows of readKapRows(db, pageSize)) {
      for (const row of rows) {
        const resource = resources.get(row.slug);
        resources.delete(row.slug);
        if (row.purged_at !== null ? resource === undefined : resource !== undefined && agrees(resource, desired(row))) continue;
        await repair(() => project(row.id, signal));
      }
    }
    for (const [name, { metadata }] of resources) {
      // Of no kap. One of another release in the same namespace is that release's.
      if ((metadata.labels?.[kapLabels.instance] ?? release) !== release || metadata.deletionTimestamp !== undefined) continue;
      const preconditions = { uid: metadata.uid };
      await repair(() => kubernetes.delete(kapResource, name, { signal, deadlineMs: callMs, preconditions }));
    }
    if (repaired > 0) {
      written.inc({ cause: "drift" }, repaired);
      log.info({ repaired }, "resources of kaps did not say what the database says and do again");
    }
    if (failures.length > 0)
      log.warn({ err: failures[0], count: failures.length }, "resources of kaps could not be put right; they are tried again");
  }

  return {
    async [projectJob](payload, { signal }) {
      const { kap_id, failures = 0 } = payload as { kap_id: string; failures?: number };
      try {
        await project(kap_id, signal);
        written.inc({ cause: "change" });
      } catch (error) {
        written.inc({ cause: "failure" });
        log.warn({ err: error, kap_id }, "a kap was not projected into the cluster; it will be");
        // The queue's own pauses grow to hours: an API server that comes back hears of it within seconds.
        const pauseMs = Math.min(longestPauseMs, 500 * 2 ** Math.min(failures, 10));
        await addProjection(db, { kap_id, failures: failures + 1 }, new Date(Date.now() + pauseMs));
      }
    },
    [resyncJob]: recurringJob({ db, log }, resyncJob, resyncSeconds, resync),
  };
}

/** Whether a resource says what it should. Fields of others (status, finalizers, further labels) are theirs. */
function agrees(resource: Kap, desired: Kap): boolean {
  if (resource.metadata.deletionTimestamp !== undefined) return true; // it is made anew when the operator has let it go
  const labels = resource.metadata.labels ?? {};
  return (
    isDeepStrictEqual(resource.spec, desired.spec) &&
    Object.entries(desired.metadata.labels ?? {}).every(([name, value]) => labels[name] === value)
  );
}
