import { addJob, type JobHandler } from "#platform/jobs.ts";
import type { Db } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";
import { sweepFailures } from "./lockout.ts";
import { sweepSessions } from "./session.ts";

const sweepJob = "auth.sweep";
const everyMs = 3_600_000;

/** Makes sure that the sweep of what is over comes round: call it at every start. One job of it waits at a time, whoever calls. */
export async function ensureAuthSweep(db: Db): Promise<void> {
  await addJob(db, sweepJob, {}, { key: sweepJob });
}

/** Removes sessions, counts, links and events that are over. The next round goes into the queue first, so that a round that fails does not end them. */
export function authSweepJob(deps: Deps): Record<string, JobHandler> {
  return {
    async [sweepJob]() {
      await addJob(deps.db, sweepJob, {}, { key: sweepJob, runAt: new Date(Date.now() + everyMs), maxAttempts: 1 });
      await sweepFailures(deps.db);
      await sweepSessions(deps.db);
      await deps.events.sweep(deps.config.eventHours);
      await deps.db("password_resets").where("expires_at", "<", deps.db.raw("now() - interval '30 days'")).delete();
      await deps.db("invitations").where("expires_at", "<", deps.db.raw("now() - interval '90 days'")).delete();
    },
  };
}
