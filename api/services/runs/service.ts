import type { JobHandlers } from "#platform/jobs.ts";
import type { Deps } from "../../deps.ts";
import type { Service } from "../../http/route.ts";
import { ensureSweeps, sweepJobs } from "./retention.ts";
import { routes } from "./routes.ts";

/** The sweeps come round from the moment on at which a process begins to take jobs. */
function jobs(deps: Deps): JobHandlers {
  ensureSweeps(deps.db).catch((error: unknown) => deps.log.error({ err: error }, "the sweeps of runs could not be started"));
  return sweepJobs(deps);
}

/** What kaps did: their runs, logs and consumption. */
export const runsService: Service = {
  name: "runs",
  envelope: "kaps",
  clientHeader: true,
  bodyLimit: 2 * 1024 * 1024,
  routes,
  jobs,
};
