import type { Service } from "../../http/route.ts";
import { sweepJobs } from "./retention.ts";
import { routes } from "./routes.ts";

/** What kaps did: their runs, logs and consumption. */
export const runsService: Service = {
  name: "runs",
  envelope: "kaps",
  clientHeader: true,
  bodyLimit: 2 * 1024 * 1024,
  routes,
  jobs: sweepJobs,
};
