import { setTimeout as delay } from "node:timers/promises";
import { printableSettings, readSettings } from "#platform/config.ts";
import { checkHardened } from "#platform/harden-database.ts";
import { createLogger, type Logger } from "#platform/log.ts";
import { migrate } from "#platform/migrate.ts";
import { preparePlatformDatabase } from "#platform/platform-database.ts";
import { connectPostgres } from "#platform/postgres.ts";
import { migrations } from "../migrations/list.ts";
import { migrateSettings } from "./migrate-settings.ts";

const pauseMs = 500;
/** Codes of a server that is not there yet: no address, no listener, starting, stopping, full. */
const notYet = /^(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|EHOSTUNREACH|ETIMEDOUT|57P0[123]|53300|08...)$/;

/** Brings the database to this release and ends: 0 when it is there, 1 with one line that says why not. Several at the same time wait for each other. */
async function main(): Promise<void> {
  const settings = readSettings(migrateSettings, process.env);
  const log = createLogger("migrate", { level: settings.logLevel });
  log.info({ settings: printableSettings(migrateSettings, settings) }, "configuration");
  const deadline = Date.now() + settings.waitSeconds * 1_000;
  const { adminDatabaseUrl, databaseUrl } = settings;
  if (adminDatabaseUrl !== undefined) await whenThere(() => preparePlatformDatabase(adminDatabaseUrl, databaseUrl), deadline, log);
  const postgres = connectPostgres({ url: databaseUrl, applicationName: "kapstone-migrate", max: 4, log, silenceMs: null });
  try {
    await whenThere(() => postgres.knex.raw("select 1"), deadline, log);
    const applied = await migrate(postgres, migrations);
    const open = await checkHardened(postgres.knex);
    if (open.length > 0)
      log.warn({ open: open.length, first: open[0] }, "the database is not hardened: kaps are kept apart by one wall less");
    log.info({ applied }, "the database is up to date");
  } finally {
    await postgres.close();
  }
}

/** Tries until the server is there; any other refusal, or the deadline, is thrown. */
async function whenThere(work: () => Promise<unknown>, deadline: number, log: Logger): Promise<void> {
  for (let isTold = false; ; ) {
    try {
      await work();
      return;
    } catch (error) {
      const code = error instanceof Error && "code" in error ? String(error.code) : "";
      const isAbsent = notYet.test(code) || (error instanceof Error && /timeout/i.test(error.message));
      if (!isAbsent || Date.now() > deadline) throw error;
      if (!isTold) log.info({ cause: code || String(error) }, "waiting for the database");
      isTold = true;
      await delay(pauseMs);
    }
  }
}

process.on("SIGTERM", () => process.exit(143)); // as process 1 nothing else ends it; what was not committed is undone
try {
  await main();
} catch (error) {
  process.stderr.write(`The database was not brought up to date: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
}
