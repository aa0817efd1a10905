import type { JobHandlers } from "#platform/jobs.ts";
import type { Deps } from "../../deps.ts";
import type { Service } from "../../http/route.ts";
import { mailRunJob, scheduledRunJob } from "../runs/finish.ts";
import { fireDue, fireJob } from "./fire.ts";
import { carryOutMail } from "./mail/mail-run.ts";
import { routes } from "./routes.ts";
import { carryOutSchedule } from "./scheduled-run.ts";

/** Durable jobs: the runs of schedules and mails. */
function jobs(deps: Deps): JobHandlers {
  return {
    [scheduledRunJob](payload, job) {
      const { run_id } = payload as { run_id: string };
      return carryOutSchedule(deps, run_id, job.attempt > 1);
    },
    [mailRunJob](payload, job) {
      const { run_id, attempt } = payload as { run_id: string; attempt: number };
      return carryOutMail(deps, run_id, attempt, job.attempt > 1);
    },
    async [fireJob]() {
      await fireDue(deps);
    },
  };
}

/** Triggers: what makes a kap run when nobody calls it. */
export const triggersService: Service = {
  name: "triggers",
  envelope: "kaps",
  clientHeader: true,
  bodyLimit: 2 * 1024 * 1024,
  routes,
  jobs,
};
