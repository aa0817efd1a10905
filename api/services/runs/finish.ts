import { addJobSql } from "#platform/jobs.ts";
import type { Postgres } from "#platform/postgres.ts";
import type { Outcome } from "#platform/run-outcome.ts";
import { mailAttempts } from "./run.ts";
import { storableText } from "./storable.ts";

/** Carries out an attempt of a mail's run: `{run_id, attempt}`. Also how a failed attempt is tried again. */
export const mailRunJob = "mail-run";
/** Carries out a run of a schedule: `{run_id}`. */
export const scheduledRunJob = "scheduled-run";

/** How one attempt of a run ended. */
export interface AttemptEnd {
  id: string;
  attempt: number;
  outcome: Outcome;
  detail: string | null;
  httpStatus?: number | null;
  /** A sentence in place of the outcome's own. */
  message?: string | null;
  /** Not tried again although a mail's run failed: another try would end the same way. */
  final?: boolean;
}

/** Seconds before the second and the third attempt of a mail's run. */
const retrySeconds = [10, 60] as const;

/**
 * Ends an attempt of a run that a schedule, a mail or the platform itself carried out. A failed attempt of a mail's run that has attempts left puts
 * the run back into the queue, with its job, in the same statement; every other end is the run's end. Whoever comes second (the runtime's own report,
 * a sweep) changes nothing: only the attempt that is going on can be ended. But one that was given up and did well after all has done well. Answers
 * whether this call ended it.
 */
export async function endAttempt({ hot }: Pick<Postgres, "hot">, end: AttemptEnd): Promise<boolean> {
  const { rowCount } = await hot.query({
    name: "run-end-attempt",
    text: endSql,
    values: [
      end.id,
      end.attempt,
      end.outcome,
      end.detail === null ? null : storableText(end.detail),
      end.message ?? null,
      end.httpStatus ?? null,
      end.outcome !== "ok" && !end.final && end.attempt < mailAttempts,
      retrySeconds[end.attempt - 1] ?? 60,
    ],
  });
  return rowCount === 1;
}

/** Commits of the pool do not wait for the disk; this one does. */
const endSql = `
with durable as (
  select set_config('synchronous_commit', 'on', true)
), ended as (
  update runs set
    status = case when $3::text = 'ok' then 'succeeded' when trigger_kind = 'inbox' and $7::boolean then 'queued' else 'failed' end,
    outcome = case when trigger_kind = 'inbox' and $7 then null else $3 end,
    finished_at = case when trigger_kind = 'inbox' and $7 then null else now() end,
    detail = $4, message = $5, http_status = $6,
    duration_ms = coalesce(duration_ms, extract(epoch from now() - started_at) * 1000)
  where id = $1 and attempts = $2 and (status = 'running' or status = 'queued' and (duration_ms is null or $3 = 'ok'))
  returning id, kap_id, trigger_id, started_at, status, attempts
), trigger as (
  update kap_triggers t set last_run_at = ended.started_at, last_outcome = $3 from ended
  where t.id = ended.trigger_id and (t.last_run_at is null or t.last_run_at <= ended.started_at)
), counted as (
  insert into kap_usage (kap_id, day, runs, failed_runs)
  select kap_id, (started_at at time zone 'utc')::date, 1, (status = 'failed')::int from ended where status <> 'queued'
  on conflict (kap_id, day) do update set runs = kap_usage.runs + 1, failed_runs = kap_usage.failed_runs + excluded.failed_runs
)
select case when status = 'queued' then ${addJobSql(
  mailRunJob,
  "json_build_object('run_id', id, 'attempt', attempts + 1)",
  "now() + make_interval(secs => $8)",
)} end as next_job
from ended cross join durable`;

/**
 * Takes a queued run (`$1`) to carry out an attempt (`$2`). Answers no row when it has been taken, has ended or is gone: so each attempt is begun at most
 * once, however often its job comes. A run that waits for its first attempt has none behind it, and so no duration. Commits of the pool do not wait for the
 * disk; that of an attempt that is begun does: what may have been carried out is not begun again after a crash of the database.
 */
export const beginAttemptSql = `
update runs set status = 'running', started_at = now(), attempts = $2, runtime_id = null, duration_ms = null
where id = $1 and status = 'queued' and (attempts = $2 - 1 or attempts = $2 and duration_ms is null)
  and set_config('synchronous_commit', 'on', true) = 'on'
returning id, kap_id, trigger_id, started_at, due_at`;

/**
 * Ends an attempt that an earlier delivery of the same job began and no runtime took: the process that had begun it is gone. A mail's run has its next
 * attempt; a schedule's run is over, since nobody can tell whether that process is really gone.
 */
export async function endAbandoned(postgres: Postgres, id: string, attempt: number): Promise<void> {
  const run: { id: string } | undefined = await postgres
    .knex("runs")
    .where({ id, attempts: attempt, status: "running" })
    .whereNull("runtime_id")
    .first("id");
  if (run)
    await endAttempt(postgres, { id, attempt, outcome: "crashed", detail: "the platform was restarted before a runtime took the run" });
}
