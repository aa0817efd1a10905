import type { Deps } from "../../deps.ts";
import { invoke } from "../../gateway/invoke.ts";
import { beginAttempt, endAbandoned } from "../runs/finish.ts";
import type { RunRow } from "../runs/run-row.ts";
import { endAttemptSurely, outcomeOfFailure } from "./carry-out.ts";
import { type Runnable, refusalToRun } from "./runnable.ts";

/**
 * Carries out a schedule's queued run: at most once, since whoever takes it from the queue is the only one. Ends when the run has ended; how it ended
 * is in its row.
 */
export async function carryOutSchedule(deps: Deps, runId: string, isRedelivered: boolean): Promise<void> {
  const run: (RunRow & Runnable) | undefined = await deps
    .db("runs")
    .join("kaps", "kaps.id", "runs.kap_id")
    .leftJoin("kap_triggers", "kap_triggers.id", "runs.trigger_id")
    .where("runs.id", runId)
    .first("runs.*", "kaps.slug", "kaps.state", "kaps.disabled", "kap_triggers.deleted_at as trigger_deleted_at");
  if (!run || run.trigger_id === null) return;
  const startedAt = await beginAttempt(deps.db, run.id, 1);
  if (startedAt === null) return isRedelivered ? endAbandoned(deps.db, run.id, 1) : undefined;
  const refusal = refusalToRun(run);
  const result =
    refusal ??
    (await invoke(deps, {
      kapId: run.kap_id,
      triggerId: run.trigger_id,
      runId: run.id,
      kind: "schedule",
      scheduledAt: run.due_at ?? startedAt,
    }).catch((error: unknown) => outcomeOfFailure(deps, error)));
  await endAttemptSurely(deps, { id: run.id, attempt: 1, outcome: result.outcome, detail: result.detail });
}
