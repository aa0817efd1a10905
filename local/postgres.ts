import { mkdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import type { Logger } from "#platform/log.ts";
import { hardenPlatformDatabase, preparePlatformDatabase } from "#platform/platform-database.ts";
import { probePort } from "./free-port.ts";
import { keptSecret, writeSecret } from "./kept-secret.ts";
import { findPostgresBinaries } from "./postgres-binaries.ts";
import { openCluster, superuser } from "./postgres-cluster.ts";
import { endLeftoverServer, type PostgresProcess, spawnPostgres } from "./postgres-process.ts";
import { choosePostgresUser } from "./postgres-user.ts";
import { StartRefusal } from "./start-refusal.ts";

/** The platform's own login and database. The login may make roles and databases and is no superuser: what production needs is what the laptop has. */
const platformLogin = "kapstone";

const readyMs = 300_000; // recovery after a crash replays what the log holds
const portAttempts = 5;
const restartDelayMs = 500;

/** The embedded PostgreSQL. */
export interface EmbeddedPostgres {
  /** Connection URL of the platform's login on its database. */
  url: string;
  /** Connection URL of the superuser on the maintenance database. */
  superuserUrl: string;
  port: number;
  stop(): Promise<void>;
}

export interface EmbeddedPostgresOptions {
  /** The folder of everything that belongs to the server: its files, passwords, port and log. Made when missing. */
  home: string;
  /** 0: the port of the last start while it is free, else any free one. */
  port?: number;
  /** False for throw-away servers: commits do not reach the disk. */
  isDurable?: boolean;
  log: Logger;
}

/**
 * Starts the PostgreSQL that npm brought, on loopback with passwords, in `home`. A server that a killed platform left there is ended first. When
 * the server ends by itself it is started again on the same port, until `stop`. Throws `StartRefusal` with one line of what to do.
 */
export async function startPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const home = resolve(options.home);
  const { log } = options;
  await mkdir(home, { recursive: true, mode: 0o711 });
  const binaries = await findPostgresBinaries();
  const user = choosePostgresUser(home, Object.values(binaries));
  const cluster = await openCluster(home, binaries, user);
  if (await endLeftoverServer(cluster.folder)) log.info("ended the PostgreSQL that an earlier start had left");
  const logFile = join(home, "server.log");
  const portFile = join(home, "port");

  const launch = async (port: number): Promise<PostgresProcess> => {
    const server = await spawnPostgres(binaries, user, cluster.folder, logFile, settings(port, options.isDurable ?? true));
    await ready(server, urlOf(superuser, cluster.superuserPassword, port, "postgres"), logFile);
    return server;
  };

  let port = options.port || (await freePort(Number(await readFile(portFile, "utf8").catch(() => "0"))));
  let started: PostgresProcess | undefined;
  for (let attempt = 1; started === undefined; attempt++) {
    try {
      started = await launch(port);
    } catch (error) {
      // Between the look and the start somebody else may have taken the port, and the last backends of a killed server may need a moment to end.
      if (attempt === portAttempts) throw error;
      log.warn({ err: error }, "PostgreSQL did not start: trying again");
      await delay(restartDelayMs);
      port = options.port || (await freePort(port));
    }
  }
  await writeSecret(portFile, String(port));

  let server = started;
  let isStopping = false;
  const supervised = (async () => {
    for (;;) {
      await server.ended;
      if (isStopping) return;
      log.error({ log_file: logFile }, "PostgreSQL ended by itself: starting it again");
      try {
        await endLeftoverServer(cluster.folder);
        server = await launch(port);
        if (isStopping) return await server.stop();
        log.info("PostgreSQL is back");
      } catch (error) {
        log.error({ err: error }, "PostgreSQL did not start");
        await delay(restartDelayMs);
      }
    }
  })();

  const superuserUrl = urlOf(superuser, cluster.superuserPassword, port, "postgres");
  const stop = async (): Promise<void> => {
    isStopping = true;
    await server.stop();
    await supervised;
  };
  try {
    const password = await keptSecret(join(home, `${platformLogin}.password`));
    const url = urlOf(platformLogin, password, port, platformLogin);
    await preparePlatformDatabase(superuserUrl, url);
    return { url, superuserUrl, port, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** The server's settings: small, safe, and only on loopback. */
function settings(port: number, isDurable: boolean): Record<string, string | number> {
  const durability = isDurable ? {} : { fsync: "off", synchronous_commit: "off", full_page_writes: "off" };
  return {
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
    port,
    max_connections: 200,
    shared_buffers: "64MB",
    max_wal_size: "512MB",
    io_method: "sync",
    jit: "off",
    timezone: "UTC",
    log_timezone: "UTC",
    ...durability,
  };
}

function urlOf(login: string, password: string, port: number, database: string): string {
  return `postgres://${login}:${password}@127.0.0.1:${port}/${database}`;
}

/** Waits until the server takes statements. Throws when it ends before, with the last line it said. */
async function ready(server: PostgresProcess, url: string, logFile: string): Promise<void> {
  const until = Date.now() + readyMs;
  for (;;) {
    const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 5_000 });
    client.on("error", () => undefined); // a connection cut while the server starts is tried again below
    try {
      await client.connect();
      await client.query("select 1");
      return;
    } catch (error) {
      if (server.hasEnded()) {
        const said = (await readFile(logFile, "utf8").catch(() => ""))
          .trim()
          .split("\n")
          .findLast((line) => /FATAL|ERROR|error/.test(line));
        throw new StartRefusal(`PostgreSQL does not start: ${said ?? String(error)} (the whole log: ${logFile})`);
      }
      if (Date.now() > until) {
        await server.stop();
        throw new StartRefusal(`PostgreSQL is not ready after ${readyMs / 1000} s: ${String(error)} (its log: ${logFile})`);
      }
    } finally {
      await client.end().catch(() => undefined);
    }
    await delay(50);
  }
}

/** Closes to everybody what only a superuser can close in a database of this server; safe to repeat. Tests harden the template of their databases. */
export async function harden(superuserUrl: string): Promise<void> {
  await hardenPlatformDatabase(superuserUrl, platformLogin);
}

/** A free port on loopback: `preferred` while nobody listens on it. */
async function freePort(preferred: number): Promise<number> {
  const kept = Number.isInteger(preferred) && preferred > 0 && preferred < 65_536 ? (await probePort("127.0.0.1", preferred)).port : null;
  const port = kept ?? (await probePort("127.0.0.1", 0)).port;
  if (port === null) throw new StartRefusal("No free port on 127.0.0.1 for PostgreSQL: end a program that holds ports and start again.");
  return port;
}
