import { join } from "node:path";
import cron from "node-cron";
import { readSettings } from "#platform/config.ts";
import { checkHardened } from "#platform/harden-database.ts";
import { releaseJobs } from "#platform/jobs.ts";
import type { Logger } from "#platform/log.ts";
import { createMetrics, type ReadinessChecks } from "#platform/metrics.ts";
import { migrate } from "#platform/migrate.ts";
import { connectPostgres } from "#platform/postgres.ts";
import { type ApiConfig, readApiConfig } from "../api/config.ts";
import { crashOpenRuns } from "../api/services/runs/crash.ts";
import { fireDue } from "../api/services/triggers/fire.ts";
import { type Api, startApi } from "../api/start.ts";
import { createMailIngest, type MailIngest } from "../mail-ingest/server.ts";
import { migrations } from "../migrations/list.ts";
import { runtimeSettings } from "../runtime/settings.ts";
import { openFileLog } from "./console.ts";
import { takeDataFolder } from "./data-folder.ts";
import { claimPublicKey, deploymentKeys } from "./deployment-keys.ts";
import { probePort } from "./free-port.ts";
import { createProcessPool } from "./pool.ts";
import { startPostgres } from "./postgres.ts";
import { readLocalConfig } from "./settings.ts";
import { makeSocketFolder } from "./socket-folder.ts";
import { StartRefusal } from "./start-refusal.ts";

/** How long calls, mails and jobs under way may take when the platform stops. */
const drainMs = 10_000;

export interface PlatformOptions {
  /** Settings by the names of their environment variables (docs/configuration.md). */
  env: Record<string, string | undefined>;
  /** One line for the person who waits. */
  show(line: string): void;
}

/** A whole platform in one process tree. */
export interface Platform {
  /** Where the API answers, by its name in the deployment's domain. */
  address: string;
  port: number;
  smtpPort: number;
  internalPort: number;
  databaseUrl: string;
  /** The embedded server's superuser; absent where KAPSTONE_DATABASE_URL names another server. */
  adminDatabaseUrl: string | undefined;
  api: Api;
  logFile: string;
  /** Stops in the order in which nothing is lost: what takes in, what works, what stores. */
  close(): Promise<void>;
}

/**
 * Starts everything: data folder, PostgreSQL, schema, runtimes, API, mail, schedules. What was started is stopped again when a later part cannot start.
 * Throws `StartRefusal`, `ConfigurationError` or `NewerSchemaError`, each with words for the person at the keyboard.
 */
export async function startPlatform(options: PlatformOptions): Promise<Platform> {
  const closers: (() => Promise<void> | void)[] = [];
  const close = async (): Promise<void> => {
    for (let closer = closers.pop(); closer; closer = closers.pop()) await closer();
  };
  try {
    return { ...(await startParts(options, closers)), close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function startParts({ env, show }: PlatformOptions, closers: (() => Promise<void> | void)[]): Promise<Omit<Platform, "close">> {
  const local = readLocalConfig(env);
  // Problems of the settings are told before anything is made; what is missing here is made below.
  const draft = readApiConfig({
    ...laptopDefaults,
    KAPSTONE_KEYS: "-",
    KAPSTONE_CLAIM_KEY: "-",
    KAPSTONE_INGEST_TOKEN: "-",
    KAPSTONE_FIRE_TOKEN: "-",
    KAPSTONE_DATABASE_URL: "-",
    ...env,
  });
  const port = await freeListener(draft.host, draft.port, "KAPSTONE_PORT");
  await freeListener(local.smtpHost, local.smtpPort, "KAPSTONE_SMTP_PORT");
  await freeListener(draft.internalHost, draft.internalPort, "KAPSTONE_INTERNAL_PORT");

  const folder = await takeDataFolder(draft.dataDir);
  closers.push(() => folder.release());
  const keys = await deploymentKeys(folder.path);
  const { log, fd: logFd, path: logFile } = await openFileLog(folder.path, draft.logLevel, show);

  let databaseUrl = env.KAPSTONE_DATABASE_URL;
  let adminDatabaseUrl: string | undefined;
  if (!databaseUrl) {
    show("Starting PostgreSQL …");
    const server = await startPostgres({ home: join(folder.path, "postgres"), port: local.postgresPort, log });
    closers.push(() => server.stop());
    databaseUrl = server.url;
    adminDatabaseUrl = server.superuserUrl;
  }
  await updateSchema(databaseUrl, log, show);

  const config: ApiConfig = readApiConfig({
    ...laptopDefaults,
    ...keys,
    ...env,
    KAPSTONE_DATABASE_URL: databaseUrl,
    KAPSTONE_DATA_DIR: folder.path,
    KAPSTONE_PORT: String(port),
  });
  const recycle = readSettings({ runs: runtimeSettings.recycleRuns, growthMb: runtimeSettings.recycleGrowthMb }, env);
  show("Starting runtimes …");
  const sockets = await makeSocketFolder(folder.path);
  closers.push(() => sockets.remove());
  const pool = createProcessPool({
    size: local.warmRuntimes,
    socketFolder: sockets.path,
    claimPublicKey: claimPublicKey(config.claimKey),
    env: {
      KAPSTONE_RUNTIME_EGRESS_ALLOW: local.egressAllow,
      KAPSTONE_LOG_LEVEL: config.logLevel,
      KAPSTONE_RUNTIME_MEMORY_MB: String(config.memoryMb),
      KAPSTONE_RUNTIME_RECYCLE_RUNS: String(recycle.runs),
      KAPSTONE_RUNTIME_RECYCLE_GROWTH_MB: String(recycle.growthMb),
    },
    logFd,
    log,
  });
  closers.push(() => pool.close(drainMs));

  show("Starting the API …");
  // Mail comes through this process too, so it belongs to the one readiness there is.
  let mail: MailIngest | undefined;
  const checks: ReadinessChecks = {
    smtp: async (signal) => (mail ? mail.checks.smtp(signal) : Promise.reject(new Error("it is not started yet"))),
  };
  const api = await startApi(config, { pool, kapChanged: async () => undefined, checks }, log);
  // In this order when it stops (last pushed, first done): requests, jobs and runs end; runtimes report and end; the rest closes.
  closers.push(() => api.close());
  closers.push(() => pool.close(drainMs));
  closers.push(() => api.drain(drainMs));

  mail = createMailIngest(
    {
      host: local.smtpHost,
      port: local.smtpPort,
      mailDomain: api.deps.addresses.mailDomain,
      apiUrl: `http://${config.internalHost}:${api.internalPort}`,
      ingestToken: config.ingestToken,
      tls: null,
      proxies: [],
      limits: { drainMs },
    },
    { log, metrics: createMetrics("mail-ingest") },
  );
  const ingest = mail;
  await ingest.listen();
  closers.push(() => ingest.close());

  closers.push(tickSchedules(api, log));
  await pool.warmed();
  return {
    address: api.deps.addresses.api,
    port: api.port,
    smtpPort: ingest.address().port,
    internalPort: api.internalPort,
    databaseUrl,
    adminDatabaseUrl,
    api,
    logFile,
  };
}

/** Settings whose default for a process of its own in a cluster does not suit one tree on a laptop, where several may run side by side. */
const laptopDefaults = { KAPSTONE_INTERNAL_PORT: "0" };

/** The laptop's driver of schedules: each minute the function that CronJobs call in a cluster. What a failed tick has not fired, the next one does. */
function tickSchedules(api: Api, log: Logger): () => Promise<void> {
  let running: Promise<unknown> = Promise.resolve();
  const tick = (): Promise<unknown> => {
    running = fireDue(api.deps).catch((error: unknown) => log.error({ err: error }, "the schedules were not fired"));
    return running;
  };
  const task = cron.schedule("* * * * *", tick, { timezone: "UTC", noOverlap: true, suppressMissedWarning: true });
  return async () => {
    await task.destroy();
    await running;
  };
}

/** The port to listen on (a free one for 0). Throws `StartRefusal` naming the variable when it is taken. */
async function freeListener(host: string, port: number, variable: string): Promise<number> {
  const probe = await probePort(host, port);
  if (probe.port !== null) return probe.port;
  if (probe.reason === "EADDRINUSE")
    throw new StartRefusal(`Port ${port} is taken by another program: stop it, or set ${variable} to another port.`);
  throw new StartRefusal(
    `Cannot listen on ${host}:${port} (${probe.reason}): set ${variable} to another port${probe.reason === "EACCES" ? " above 1023" : ""}.`,
  );
}

/** Brings the schema up to date, and forgets the runtimes and the jobs in work of an earlier start: they were of that process tree. */
async function updateSchema(url: string, log: Logger, show: (line: string) => void): Promise<void> {
  const postgres = connectPostgres({ url, applicationName: "kapstone-migrate", max: 4, log, silenceMs: null });
  try {
    const applied = await migrate(postgres, migrations);
    if (applied.length > 0) show(`Updated the database: ${applied.length} ${applied.length === 1 ? "step" : "steps"}.`);
    const open = await checkHardened(postgres.knex);
    if (open.length > 0) log.warn({ open }, "the database is not hardened: kaps are kept apart by their roles, with one wall less");
    await postgres.knex("runtimes").delete();
    await crashOpenRuns(postgres, "the platform was stopped before the run ended");
    await releaseJobs(postgres.knex);
  } finally {
    await postgres.close();
  }
}
