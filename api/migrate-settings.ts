import { integer, optionalText, setting } from "#platform/config.ts";
import { apiSettings } from "./config.ts";

/** Everything the init container of the API reads from its environment; docs/configuration.md is made from this. */
export const migrateSettings = {
  databaseUrl: apiSettings.databaseUrl,
  adminDatabaseUrl: setting(
    "KAPSTONE_ADMIN_DATABASE_URL",
    optionalText(),
    "A superuser's login on the same server: with it the platform's login and database are made where missing, and closed to everybody else",
    { secret: true },
  ),
  waitSeconds: setting("KAPSTONE_MIGRATE_WAIT_SECONDS", integer(120, 0, 3_600), "Seconds to wait for a database that does not answer yet"),
  logLevel: apiSettings.logLevel,
} as const;
