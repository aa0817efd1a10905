import { newId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import type { Outcome } from "#platform/run-outcome.ts";
import type { TriggerKind } from "#platform/trigger-kind.ts";
import type { RunRow } from "./run-row.ts";
import { messageOf, whatToDo } from "./what-to-do.ts";

/** How often a failed mail run is tried in all: once, and twice again (decided §7.4). */
export const mailAttempts = 3;

/** A run to be written: queued, or ended at once where nothing is to be carried out (`missed`, `refused`). */
export interface NewRun {
  id?: string;
  kap_id: string;
  org_id: string;
  version_id: string | null;
  trigger_id: string;
  trigger_kind: TriggerKind;
  due_at?: Date | null;
  request_id?: string | null;
  ended?: { outcome: Outcome; detail: string; message: string };
}

/**
 * Writes runs in the caller's transaction and answers the ids of those it wrote, in order. A due time that has a run already gets no second one
 * (unique (trigger_id, due_at)). Those that are over with being written count as failed in the day's usage.
 */
export async function createRuns(db: Db, runs: readonly NewRun[]): Promise<string[]> {
  if (runs.length === 0) return [];
  const records = runs.map(({ ended, ...run }) => ({
    ...run,
    id: run.id ?? newId(),
    status: ended ? "failed" : "queued",
    outcome: ended?.outcome ?? null,
    detail: ended?.detail ?? null,
    message: ended?.message ?? null,
  }));
  const { rows } = await db.raw<{ rows: { id: string }[] }>(
    `with made as (
       insert into runs (id, kap_id, org_id, version_id, trigger_id, trigger_kind, due_at, request_id, status, outcome, detail, message, finished_at, duration_ms)
       select id, kap_id, org_id, version_id, trigger_id, trigger_kind, due_at, request_id, status, outcome, detail, message,
              case when status = 'failed' then now() end, case when status = 'failed' then 0 end
       from jsonb_to_recordset(?::jsonb) as x(id uuid, kap_id uuid, org_id uuid, version_id uuid, trigger_id uuid, trigger_kind text, due_at timestamptz,
                                              request_id text, status text, outcome text, detail text, message text)
       on conflict (trigger_id, due_at) where due_at is not null do nothing
       returning id, kap_id, started_at, status
     ), counted as (
       insert into kap_usage (kap_id, day, runs, failed_runs)
       select kap_id, (started_at at time zone 'utc')::date, count(*), count(*) from made where status = 'failed' group by 1, 2 order by 1, 2
       on conflict (kap_id, day) do update set runs = kap_usage.runs + excluded.runs, failed_runs = kap_usage.failed_runs + excluded.failed_runs
     )
     select id from made`,
    [JSON.stringify(records)],
  );
  return rows.map((row) => row.id);
}

/** The run as the contract shows it (decided §7.3), with what is further known of its call. */
export function presentRun(run: RunRow): Record<string, unknown> {
  return {
    id: run.id,
    kap_id: run.kap_id,
    version_id: run.version_id,
    trigger_id: run.trigger_id,
    trigger_kind: run.trigger_kind,
    status: run.status,
    outcome: run.outcome,
    what_to_do: whatToDo(run),
    detail: run.detail,
    message: run.message ?? messageOf(run),
    attempts: run.attempts,
    due_at: run.due_at,
    started_at: run.started_at,
    finished_at: run.finished_at,
    duration_ms: run.duration_ms,
    cpu_ms: run.cpu_ms,
    http_status: run.http_status,
    request_id: run.request_id,
    caller: run.caller,
    method: run.method,
    target: run.target,
    phases: run.phases,
    acknowledged_by: run.acknowledged_by,
    acknowledged_at: run.acknowledged_at,
  };
}
