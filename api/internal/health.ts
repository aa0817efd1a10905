import type { ReadinessChecks } from "#platform/metrics.ts";
import { checkMigrated } from "#platform/migrate.ts";
import { migrations } from "../../migrations/list.ts";
import type { Deps } from "../deps.ts";

/** The parts the API cannot serve without, each by its name (decided §2). */
export function readinessChecks(deps: Deps): ReadinessChecks {
  return {
    database: () => deps.db.raw("select 1"),
    hot_database: () => deps.postgres.hot.query("select 1"),
    migrations: () => checkMigrated(deps.postgres, migrations),
    objects: () => deps.objects.check(),
    runtimes: async () => {
      if ((await deps.pool.candidates()).some(({ isStarting }) => !isStarting)) return;
      const { rows } = await deps.postgres.hot.query<{ n: number }>("select count(*) as n from runtimes where state = 'ready'");
      if ((rows[0]?.n ?? 0) === 0) throw new Error("no runtime is warm: see the log of the runtime pool");
    },
    ...deps.checks,
  };
}
