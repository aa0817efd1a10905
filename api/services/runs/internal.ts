import { parseJson, readBody } from "../../http/body.ts";
import { refuse } from "../../http/refusal.ts";
import type { InternalRoute } from "../../internal/internal-route.ts";
import { readReport, takeReport } from "./report.ts";

/** More than a runtime keeps back: 1,000 lines of 8 KiB of each of a few runs. */
const reportBytes = 64 * 1024 * 1024;

/** What runtimes tell of the runs they ended and the lines these wrote. */
export const internalRoutes: InternalRoute[] = [
  {
    method: "POST",
    path: "/internal/runtimes/:runtime_id/report",
    token: "runtime",
    async handler({ deps, runtime, request }) {
      if (!runtime) throw refuse("GONE", "this runtime no longer serves a kap");
      await takeReport(deps.postgres.hot, runtime, readReport(parseJson(await readBody(request, reportBytes)), deps.log));
      return { status: 204 };
    },
  },
];
