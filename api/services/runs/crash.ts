import { addJob } from "#platform/jobs.ts";
import type { Db, Postgres } from "#platform/postgres.ts";
import { endAttempt, mailRunJob, scheduledRunJob } from "./finish.ts";
import type { RunRow } from "./run-row.ts";

/** Conditions of the open runs that are lost, over `runs r`. */
interface Lost {
  where: string;
  values: Record<string, string | number>;
}

/**
 * Marks the open runs of a runtime that is gone `crashed`. A mail's run has its further attempts; every other run is over, as it may have been
 * carried out in part. Answers how many there were.
 */
export function crashRunsOf(postgres: Postgres, runtimeId: string, detail: string): Promise<number> {
  return crash(postgres, { where: "r.runtime_id = :runtime_id", values: { runtime_id: runtimeId } }, detail);
}

/**
 * The same for every run that is going on: for the start of a platform that is one process tree, whose last start left nothing that could still end
 * them.
 */
export function crashOpenRuns(postgres: Postgres, detail: string): Promise<number> {
  return crash(postgres, { where: "true", values: {} }, detail);
}

/** Seconds after which an open run whose runtime is no longer known is given up. */
const orphanSeconds = 60;
/** Seconds after which a run of a schedule or mail that never reached a runtime is given up: a claim takes at most a fraction of that. */
const unclaimedSeconds = 120;
/** Seconds past its wall time after which a run is given up, whoever should have ended it. */
const graceSeconds = 120;

/** Ends the runs that nobody will end any more: their runtime is gone, no runtime ever took them, or their time is long over. */
export async function crashLostRuns(postgres: Postgres, limits: { requestWallMs: number; backgroundWallMs: number }): Promise<number> {
  const orphans = await crash(
    postgres,
    {
      where: `r.runtime_id is not null and r.started_at < now() - make_interval(secs => :seconds)
              and not exists (select 1 from runtimes x where x.id = r.runtime_id)`,
      values: { seconds: orphanSeconds },
    },
    "the runtime went away and did not report the run's end",
  );
  const unclaimed = await crash(
    postgres,
    {
      where: `r.runtime_id is null and r.trigger_kind <> 'request' and r.started_at < now() - make_interval(secs => :seconds)`,
      values: { seconds: unclaimedSeconds },
    },
    "the platform was restarted before a runtime took the run",
  );
  const overdue = await crash(
    postgres,
    {
      where: `r.started_at < now() - make_interval(secs => case when r.trigger_kind = 'request' then cast(:request as float8) else :background end)`,
      values: { request: limits.requestWallMs / 1_000 + graceSeconds, background: limits.backgroundWallMs / 1_000 + graceSeconds },
    },
    "the run's end was never reported, and its time is over",
  );
  return orphans + unclaimed + overdue;
}

/** Minutes after which a queued run is put into the queue again; its own job comes within a minute at most. */
const strandedMinutes = 5;

/**
 * Gives queued runs whose job was lost (the process failed between taking the job and taking the run) a job again. One too many does no harm: each
 * attempt is begun once.
 */
export async function requeueStranded(db: Db): Promise<number> {
  const rows: Pick<RunRow, "id" | "trigger_kind" | "attempts" | "duration_ms">[] = await db("runs")
    .where("status", "queued")
    .where("trigger_kind", "<>", "request")
    .whereRaw("started_at < now() - make_interval(mins => ?)", [strandedMinutes])
    .select("id", "trigger_kind", "attempts", "duration_ms");
  for (const { id, trigger_kind, attempts, duration_ms } of rows) {
    // A run that has been tried already carries the duration of that attempt.
    const attempt = duration_ms === null ? attempts : attempts + 1;
    await addJob(db, trigger_kind === "inbox" ? mailRunJob : scheduledRunJob, { run_id: id, attempt }, { key: `run:${id}:${attempt}` });
  }
  return rows.length;
}

async function crash(postgres: Postgres, lost: Lost, detail: string): Promise<number> {
  const ended = await postgres.knex.raw<{ rows: { n: number }[] }>(
    `with ended as (
       update runs r set status = 'failed', outcome = 'crashed', detail = :detail, finished_at = now(),
                         duration_ms = extract(epoch from now() - r.started_at) * 1000
       where r.status = 'running' and r.trigger_kind <> 'inbox' and ${lost.where}
       returning r.kap_id, r.trigger_id, r.started_at
     ), trigger as (
       update kap_triggers t set last_run_at = e.started_at, last_outcome = 'crashed'
       from (select trigger_id, max(started_at) as started_at from ended group by trigger_id) e
       where t.id = e.trigger_id and (t.last_run_at is null or t.last_run_at <= e.started_at)
     ), counted as (
       insert into kap_usage (kap_id, day, runs, failed_runs)
       select kap_id, (started_at at time zone 'utc')::date, count(*), count(*) from ended group by 1, 2 order by 1, 2
       on conflict (kap_id, day) do update set runs = kap_usage.runs + excluded.runs, failed_runs = kap_usage.failed_runs + excluded.failed_runs
     )
     select count(*) as n from ended`,
    { ...lost.values, detail } as Record<string, string>,
  );
  const mails = await postgres.knex.raw<{ rows: { id: string; attempts: number }[] }>(
    `select r.id, r.attempts from runs r where r.status = 'running' and r.trigger_kind = 'inbox' and ${lost.where}`,
    lost.values as Record<string, string>,
  );
  for (const mail of mails.rows) await endAttempt(postgres, { id: mail.id, attempt: mail.attempts, outcome: "crashed", detail });
  return (ended.rows[0]?.n ?? 0) + mails.rows.length;
}
