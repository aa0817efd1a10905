import { setTimeout as delay } from "node:timers/promises";
import { newId } from "#platform/ids.ts";
import { addJob } from "#platform/jobs.ts";
import type { Deps } from "../../deps.ts";
import type { KapRow } from "../kaps/kap.ts";
import { scheduledRunJob } from "../runs/finish.ts";
import { createRuns } from "../runs/run.ts";
import type { RunRow } from "../runs/run-row.ts";
import { findTrigger, type TriggerRow, wrongKind } from "./trigger.ts";

/** How long run-now waits for the run's end (decided §7.4). */
export const runNowWaitMs = 30_000;

/**
 * Runs a schedule now, paused or not, and waits for the end at most 30 seconds: the run comes back ended, `running`, or `missed` when another run of
 * the same trigger is going on. Of other kinds of triggers 409.
 */
export async function runNow(deps: Deps, kap: KapRow, trigger: TriggerRow, requestId: string, signal: AbortSignal): Promise<RunRow> {
  if (trigger.kind === "inbox") {
    throw wrongKind(`an inbox trigger runs when a mail comes: send one to ${kap.slug}@${deps.addresses.mailDomain}`);
  }
  if (trigger.kind === "request") throw wrongKind(`the request trigger runs when the kap is called: call ${deps.addresses.kap(kap.slug)}`);
  const id = newId();
  await deps.db.transaction(async (trx) => {
    // The trigger's row lock is what firing takes too: of both, one makes a run and the other sees it.
    await trx("kap_triggers").where({ id: trigger.id }).forUpdate().first("id");
    await findTrigger(trx, kap, trigger.id);
    const open: Pick<RunRow, "id" | "started_at"> | undefined = await trx("runs")
      .where({ trigger_id: trigger.id, trigger_kind: "schedule" })
      .whereIn("status", ["queued", "running"])
      .first("id", "started_at");
    const reason =
      open &&
      `the run ${open.id} of this trigger has been going on since ${open.started_at.toISOString()}, and a schedule has one run at a time`;
    await createRuns(trx, [
      {
        id,
        kap_id: kap.id,
        org_id: kap.org_id,
        version_id: kap.current_version_id,
        trigger_id: trigger.id,
        trigger_kind: "schedule",
        request_id: requestId,
        ...(reason ? { ended: { outcome: "missed", detail: reason, message: `The run was not started: ${reason}.` } } : {}),
      },
    ]);
    if (!open) await addJob(trx, scheduledRunJob, { run_id: id });
  });
  return waitForEnd(deps, id, signal);
}

async function waitForEnd(deps: Deps, id: string, signal: AbortSignal): Promise<RunRow> {
  const deadline = performance.now() + runNowWaitMs;
  for (let pauseMs = 10; ; pauseMs = Math.min(250, pauseMs * 1.5)) {
    const run: RunRow | undefined = await deps.db("runs").where({ id }).first();
    if (!run) throw new Error(`the run ${id} is gone`);
    if (run.finished_at !== null || performance.now() > deadline || signal.aborted) return run;
    await delay(pauseMs);
  }
}
