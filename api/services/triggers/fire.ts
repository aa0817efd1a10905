import { addJob, addJobs } from "#platform/jobs.ts";
import type { Db, Knex } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";
import { scheduledRunJob } from "../runs/finish.ts";
import { createRuns, type NewRun } from "../runs/run.ts";
import { databaseNow } from "./changes.ts";
import { type Due, dueTimes, nextTime, recordedMissed } from "./schedule.ts";
import type { TriggerRow } from "./trigger.ts";

/** How many runs a round made, and how many times it recorded as missed. */
export interface Fired {
  fired: number;
  missed: number;
}

/** A due trigger with what deciding needs of its kap. */
interface DueTrigger extends TriggerRow {
  org_id: string;
  kap_state: "active" | "disabled" | "deleted";
  version_id: string;
  /** When the kap was last enabled or recovered: times before that were not missed, they were not to be. */
  live_since: Date | null;
}

/** Fires what is due: a time that was about to come when the driver last called. */
export const fireJob = "schedules-fire";

const batch = 50;
/** A time that comes this soon is fired by a job of its own, so that a driver whose clock is ahead of the database's does not pass it by. */
const soonMs = 15_000;

/**
 * Makes the runs of all schedules that are due at `at` (the database's clock when absent, so that all replicas share one): each due time at most
 * once, never two runs of one trigger at a time, and after an outage one run for the newest time while the others are recorded `missed`, the newest
 * 1,000 of them one by one (decided §7.4). Rows are decided under their lock, in any number of processes at once; a run, its job and the trigger's
 * next time commit together. A clock that goes back repeats nothing: a trigger's next time only ever grows, and (trigger, due time) is unique.
 */
export async function fireDue(deps: Pick<Deps, "db" | "log">, at?: Date): Promise<Fired> {
  const total: Fired = { fired: 0, missed: 0 };
  const now = at ?? (await databaseNow(deps.db));
  const round = async (size: number, wait: "skip locked" | ""): Promise<boolean> => {
    const done = await deps.db.transaction((trx) => fireBatch(deps, trx, now, size, wait));
    total.fired += done.fired;
    total.missed += done.missed;
    return done.found === size;
  };
  while (await round(batch, "skip locked"));
  // What was locked just now is being fired, run by hand or changed elsewhere: wait for each, so that no due time waits for the next round.
  while (await round(1, ""));
  await fireSoon(deps.db, now);
  return total;
}

async function fireBatch(
  deps: Pick<Deps, "log">,
  trx: Knex.Transaction,
  now: Date,
  size: number,
  wait: string,
): Promise<Fired & { found: number }> {
  const { rows: triggers } = await trx.raw<{ rows: DueTrigger[] }>(
    `select t.*, k.org_id, k.state as kap_state, k.current_version_id as version_id,
            (select max(e.at) from kap_events e where e.kap_id = k.id and e.kind in ('enabled', 'recovered')) as live_since
     from kap_triggers t join kaps k on k.id = t.kap_id
     where t.kind = 'schedule' and t.enabled and t.deleted_at is null and t.next_run_at <= ?
     order by t.next_run_at, t.id limit ? for update of t ${wait}`,
    [now, size] as unknown as string[],
  );
  if (triggers.length === 0) return { fired: 0, missed: 0, found: 0 };
  const open = await openRuns(trx, triggers);
  const runs: NewRun[] = [];
  const missed: NewRun[] = [];
  const next: { id: string; next_run_at: Date | null }[] = [];
  for (const trigger of triggers) {
    try {
      const due = dueOf(trigger, now);
      if (due) {
        const running = open.get(trigger.id);
        if (running === undefined) runs.push(runAt(trigger, due.newest));
        else missed.push(missedAt(trigger, due.newest, `the run of ${running} was still going on, and a schedule has one run at a time`));
        missed.push(...missedBefore(trigger, due));
      }
      next.push({ id: trigger.id, next_run_at: nextTime(trigger, now) });
    } catch (error) {
      // One schedule that cannot be read must not stop the others.
      deps.log.error({ err: error, trigger_id: trigger.id }, "a schedule cannot be read and has no next time");
      next.push({ id: trigger.id, next_run_at: null });
    }
  }
  const made = await createRuns(trx, runs);
  await addJobs(
    trx,
    scheduledRunJob,
    made.map((id) => ({ run_id: id })),
  );
  const recorded = await createRuns(trx, missed);
  await trx.raw(
    `update kap_triggers t set next_run_at = x.next_run_at from jsonb_to_recordset(?::jsonb) as x(id uuid, next_run_at timestamptz) where t.id = x.id`,
    [JSON.stringify(next)],
  );
  return { fired: made.length, missed: recorded.length, found: triggers.length };
}

/** What is due of a trigger: nothing while its kap runs nothing, and nothing of the time before it was enabled or recovered. */
function dueOf(trigger: DueTrigger, now: Date): Due | null {
  if (trigger.kap_state !== "active" || trigger.next_run_at === null) return null;
  const from = trigger.live_since !== null && trigger.live_since > trigger.next_run_at ? trigger.live_since : trigger.next_run_at;
  return dueTimes(trigger, from, now);
}

/** The due time, or the start, of each trigger's run that is still going on. Read after the rows are locked. */
async function openRuns(trx: Knex.Transaction, triggers: readonly TriggerRow[]): Promise<Map<string, string>> {
  const rows: { trigger_id: string; due_at: Date | null; started_at: Date }[] = await trx("runs")
    .whereIn(
      "trigger_id",
      triggers.map((trigger) => trigger.id),
    )
    .where("trigger_kind", "schedule")
    .whereIn("status", ["queued", "running"])
    .select("trigger_id", "due_at", "started_at");
  return new Map(rows.map((row) => [row.trigger_id, (row.due_at ?? row.started_at).toISOString()]));
}

function runAt(trigger: DueTrigger, dueAt: Date): NewRun {
  return {
    kap_id: trigger.kap_id,
    org_id: trigger.org_id,
    version_id: trigger.version_id,
    trigger_id: trigger.id,
    trigger_kind: "schedule",
    due_at: dueAt,
  };
}

function missedAt(trigger: DueTrigger, dueAt: Date, reason: string): NewRun {
  return {
    ...runAt(trigger, dueAt),
    ended: { outcome: "missed", detail: reason, message: `The run of ${dueAt.toISOString()} was missed: ${reason}.` },
  };
}

/** The times that passed before the newest one. */
function missedBefore(trigger: DueTrigger, due: Due): NewRun[] {
  return due.earlier.map((time, index) =>
    missedAt(
      trigger,
      time,
      `schedules were not fired at that time, and the newest missed time (${due.newest.toISOString()}) stands for all${
        index === 0 && due.unlisted > 0 ? `; ${due.unlisted} earlier ones are not listed (at most ${recordedMissed} are)` : ""
      }`,
    ),
  );
}

async function fireSoon(db: Db, now: Date): Promise<void> {
  const { rows } = await db.raw<{ rows: { next: Date | null }[] }>(
    `select min(next_run_at) as next from kap_triggers
     where kind = 'schedule' and enabled and deleted_at is null and next_run_at > ? and next_run_at <= ?`,
    [now, new Date(now.getTime() + soonMs)] as unknown as string[],
  );
  const next = rows[0]?.next;
  if (next) await addJob(db, fireJob, {}, { key: `${fireJob}:${next.toISOString()}`, runAt: next, maxAttempts: 3 });
}
