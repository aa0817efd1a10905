import { addJob } from "#platform/jobs.ts";
import type { Db } from "#platform/postgres.ts";
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
 * the run back into the queue, with its job, in one transaction; every other end is the run's end. Whoever comes second (the runtime's own report,
 * a sweep) changes nothing: only the attempt that is going on can be ended. Answers whether this call ended it.
 */
export async function endAttempt(db: Db, end: AttemptEnd): Promise<boolean> {
  const values: Record<string, string | number | boolean | null> = {
    id: end.id,
    attempt: end.attempt,
    outcome: end.outcome,
    detail: end.detail === null ? null : storableText(end.detail),
    message: end.message ?? null,
    http_status: end.httpStatus ?? null,
    final: end.final ?? false,
    max: mailAttempts,
  };
  const mayRetry = end.outcome !== "ok" && !end.final && end.attempt < mailAttempts;
  if (!mayRetry) return (await endIn(db, values)) !== undefined;
  return db.transaction(async (trx) => {
    const ended = await endIn(trx, values);
    if (ended?.retried) {
      const seconds = retrySeconds[end.attempt - 1] ?? 60;
      await addJob(trx, mailRunJob, { run_id: end.id, attempt: end.attempt + 1 }, { runAt: new Date(Date.now() + seconds * 1_000) });
    }
    return ended !== undefined;
  });
}

async function endIn(db: Db, values: Record<string, string | number | boolean | null>): Promise<{ retried: boolean } | undefined> {
  const { rows } = await db.raw<{ rows: { retried: boolean }[] }>(
    `with ended as (
     update runs set
       status = case when :outcome = 'ok' then 'succeeded' when trigger_kind = 'inbox' and not :final and attempts < :max then 'queued' else 'failed' end,
       outcome = case when :outcome <> 'ok' and trigger_kind = 'inbox' and not :final and attempts < :max then null else :outcome end,
       finished_at = case when :outcome <> 'ok' and trigger_kind = 'inbox' and not :final and attempts < :max then null else now() end,
       detail = :detail, message = :message, http_status = :http_status,
       duration_ms = coalesce(duration_ms, extract(epoch from now() - started_at) * 1000)
     where id = :id and status in ('queued', 'running') and attempts = :attempt
     returning kap_id, trigger_id, started_at, status, outcome
   ), trigger as (
     update kap_triggers t set last_run_at = ended.started_at, last_outcome = :outcome from ended
     where t.id = ended.trigger_id and (t.last_run_at is null or t.last_run_at <= ended.started_at)
   ), counted as (
     insert into kap_usage (kap_id, day, runs, failed_runs)
     select kap_id, (started_at at time zone 'utc')::date, 1, (status = 'failed')::int from ended where status <> 'queued'
     on conflict (kap_id, day) do update set runs = kap_usage.runs + 1, failed_runs = kap_usage.failed_runs + excluded.failed_runs
   )
   select status = 'queued' as retried from ended`,
    values as Record<string, string>,
  );
  return rows[0];
}

/**
 * Takes a queued run (`:id`) to carry out an attempt (`:attempt`). Answers no row when it has been taken, has ended or is gone: so each attempt is begun at most
 * once, however often its job comes.
 */
export const beginAttemptSql = `
update runs set status = 'running', started_at = now(), attempts = :attempt, runtime_id = null, duration_ms = null
where id = :id and status = 'queued' and attempts in (:attempt, :attempt - 1)
returning id, kap_id, trigger_id, started_at`;

/** Begins an attempt; null when it is not to be begun. */
export async function beginAttempt(db: Db, id: string, attempt: number): Promise<Date | null> {
  const { rows } = await db.raw<{ rows: { started_at: Date }[] }>(beginAttemptSql, { id, attempt } as Record<string, string | number>);
  return rows[0]?.started_at ?? null;
}

/**
 * Ends an attempt that an earlier delivery of the same job began and no runtime took: the process that had begun it is gone. A mail's run has its next
 * attempt; a schedule's run is over, since nobody can tell whether that process is really gone.
 */
export async function endAbandoned(db: Db, id: string, attempt: number): Promise<void> {
  const run: { id: string } | undefined = await db("runs")
    .where({ id, attempts: attempt, status: "running" })
    .whereNull("runtime_id")
    .first("id");
  if (run) await endAttempt(db, { id, attempt, outcome: "crashed", detail: "the platform was restarted before a runtime took the run" });
}
