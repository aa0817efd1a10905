import knex, { type Knex } from "knex";
import pg from "pg";
import { impatientSocket } from "./lasting-connection.ts";
import type { Logger } from "./log.ts";

export type { Pool, PoolClient } from "pg";
export type { Knex };

/** Anything SQL can be sent through: the pool of the process or a transaction. */
export type Db = Knex | Knex.Transaction;

export const platformSchema = "kapstone";

/**
 * The server ends every statement of the general pool within a minute, and a transaction in which nothing happens. A connection that is silent for
 * longer is dead, whatever the network says of it, and who waits on it is told.
 */
const statementMs = 60_000;
const defaultSilenceMs = statementMs + 15_000;
/** The same for the gateway's pool. */
const hotStatementMs = 10_000;
const hotQueryMs = hotStatementMs + 10_000;
/** The kernel asks after an idle connection after this long, and gives it up some ten seconds later. */
const keepAliveMs = 10_000;

const int8 = 20;

/** Counters of the platform fit a double (2^53): int8 is read as a number. Kaps' own data are read by rules of their own. */
const types = {
  getTypeParser(oid: number, format?: "text" | "binary") {
    return oid === int8 && format !== "binary" ? Number : pg.types.getTypeParser(oid, format);
  },
} as pg.CustomTypesConfig;

export interface PostgresOptions {
  url: string;
  /** Shown in pg_stat_activity. */
  applicationName: string;
  /** Connections of the general pool; the hot pool has as many. */
  max?: number;
  /** Takes what the pools have to say of their connections. */
  log: Logger;
  /** How long a server may say nothing before its connection is given up; null where a statement may take any time, as in migrations. */
  silenceMs?: number | null;
}

/** The database connections of one process. */
export interface Postgres {
  url: string;
  /** General use: every statement and transaction of the services. Commits are durable when they answer. */
  knex: Knex;
  /**
   * The gateway's pool: prepared statements, and commits that do not wait for the disk. What it writes (the first row of a run) may be lost
   * if the database server itself crashes within `wal_writer_delay` (200 ms by default, at most three times that).
   */
  hot: pg.Pool;
  close(): Promise<void>;
}

/** Opens the pools of a process on the platform's schema. Nothing connects before the first statement. */
export function connectPostgres(options: PostgresOptions): Postgres {
  const { log, max = 10, silenceMs = defaultSilenceMs } = options;
  const base = {
    connectionString: options.url,
    application_name: options.applicationName,
    types,
    connectionTimeoutMillis: 10_000,
    keepAlive: true,
    keepAliveInitialDelayMillis: keepAliveMs,
  };
  const search = `-c search_path=${platformSchema},public`;
  const db = knex({
    client: "pg",
    connection: {
      ...base,
      ...(silenceMs === null ? {} : { stream: () => impatientSocket(silenceMs) }),
      options: `${search} -c statement_timeout=${statementMs} -c idle_in_transaction_session_timeout=${statementMs}`,
    } as Knex.PgConnectionConfig,
    searchPath: [platformSchema, "public"],
    pool: { min: 0, max },
    acquireConnectionTimeout: 10_000,
    log: knexLog(log),
  });
  const hot = new pg.Pool({
    ...base,
    options: `${search} -c synchronous_commit=off -c statement_timeout=${hotStatementMs}`,
    ...(silenceMs === null ? {} : { query_timeout: Math.min(hotQueryMs, silenceMs) }),
    max,
    idleTimeoutMillis: 60_000,
  });
  // A connection that breaks while idle is replaced at the next use; without a listener it would end the process.
  hot.on("error", (error) => log.warn({ err: error }, "an idle connection to the database broke"));
  hot.on("connect", (client) => client.on("error", () => undefined)); // while it is held: its holder's next statement tells
  return {
    url: options.url,
    knex: db,
    hot,
    async close() {
      await Promise.all([db.destroy(), hot.end()]);
    },
  };
}

/** Knex's own words, which it would print as they are, as lines of the process's log. */
function knexLog(log: Logger): Knex.Logger {
  return {
    debug: (message: unknown) => log.debug({ said: message }, "knex"),
    warn: (message: unknown) => log.warn({ said: message }, "knex"),
    error: (message: unknown) => log.error({ said: message }, "knex"),
    deprecate: (message: unknown) => log.warn({ said: message }, "knex"),
  };
}

/** Whether an error is a violation of a unique constraint, optionally of that name: the way races are decided (one wins, the other hears 409). */
export function isUniqueViolation(error: unknown, constraint?: string): boolean {
  return (
    error instanceof Error &&
    "code" in error &&
    error.code === "23505" &&
    (constraint === undefined || ("constraint" in error && error.constraint === constraint))
  );
}
