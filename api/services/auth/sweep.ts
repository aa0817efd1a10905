import { addJob, type JobHandlers, recurringJob } from "#platform/jobs.ts";
import type { Db } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";
import { sweepFailures } from "./lockout.ts";
import { sweepSessions } from "./session.ts";

const sweepJob = "auth.sweep";
const everySeconds = 3_600;

/** Makes sure that the sweep of what is over comes round: call it at every start. One job of it waits at a time, whoever calls. */
export async function ensureAuthSweep(db: Db): Promise<void> {
  await addJob(db, sweepJob, {}, { key: sweepJob });
}

/** Removes sessions, counts, links and events that are over. */
export function authSweepJob(deps: Deps): JobHandlers {
  return {
    [sweepJob]: recurringJob(deps, sweepJob, everySeconds, async () => {
      await sweepFailures(deps.db);
      await sweepSessions(deps.db);
      await deps.events.sweep(deps.config.eventHours);
      await deps.db("password_resets").where("expires_at", "<", deps.db.raw("now() - interval '30 days'")).delete();
      await deps.db("invitations").where("expires_at", "<", deps.db.raw("now() - interval '90 days'")).delete();
    }),
  };
}
