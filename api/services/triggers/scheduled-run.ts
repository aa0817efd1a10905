import type { Deps } from "../../deps.ts";
import { invoke } from "../../gateway/invoke.ts";
import { beginAttemptSql, endAbandoned } from "../runs/finish.ts";
import { endAttemptSurely, holdSlotFor, outcomeOfFailure } from "./carry-out.ts";
import { type Runnable, refusalToRun } from "./runnable.ts";

interface ScheduledRun extends Runnable {
  kap_id: string;
  trigger_id: string;
  /** The time it stands for. */
  scheduled_at: Date;
}

/** A schedule's run has one attempt. */
const attempt = 1;

/** Takes the run and reads all it needs. */
const begin = `
with begun as (${beginAttemptSql})
select r.kap_id, r.trigger_id, coalesce(r.due_at, r.started_at) as scheduled_at, k.slug, k.state, k.disabled, t.deleted_at as trigger_deleted_at
from begun r join kaps k on k.id = r.kap_id
left join kap_triggers t on t.id = r.trigger_id`;

/**
 * Carries out a schedule's queued run: at most once, since whoever takes it from the queue is the only one. Ends when the run has ended; how it ended
 * is in its row.
 */
export async function carryOutSchedule(deps: Deps, runId: string, isRedelivered: boolean): Promise<void> {
  const { rows } = await deps.postgres.hot.query<ScheduledRun>({ name: "scheduled-run-begin", text: begin, values: [runId, attempt] });
  const run = rows[0];
  if (!run) return isRedelivered ? endAbandoned(deps.postgres, runId, attempt) : undefined;
  const { kap_id: kapId, trigger_id: triggerId, scheduled_at: scheduledAt } = run;
  const carriedOut = async (): Promise<void> => {
    const result =
      refusalToRun(run) ??
      (await invoke(deps, { kapId, triggerId, runId, attempt, kind: "schedule", scheduledAt }).catch((error: unknown) =>
        outcomeOfFailure(deps, error),
      ));
    await endAttemptSurely(deps, { id: runId, attempt, outcome: result.outcome, detail: result.detail });
  };
  return holdSlotFor(deps, carriedOut());
}
