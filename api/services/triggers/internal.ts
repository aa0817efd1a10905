import type { InternalRoute } from "../../internal/internal-route.ts";
import { fireDue } from "./fire.ts";
import { internalRoutes as mailRoutes } from "./mail/internal.ts";

/** What the schedule driver and mail ingest call. */
export const internalRoutes: InternalRoute[] = [
  {
    method: "POST",
    path: "/internal/fire",
    token: "fire",
    // Whatever cadence called, all that is due is fired: a CronJob that came late is made up for by any other.
    handler: async ({ deps }) => ({ status: 200, body: await fireDue(deps) }),
  },
  ...mailRoutes,
];
