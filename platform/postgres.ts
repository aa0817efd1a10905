import knex, { type Knex } from "knex";
import pg from "pg";

export type { Pool, PoolClient } from "pg";
export type { Knex };

/** Anything SQL can be sent through: the pool of the process or a transaction. */
export type Db = Knex | Knex.Transaction;

export const platformSchema = "kapstone";

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
  const max = options.max ?? 10;
  const base = {
    connectionString: options.url,
    application_name: options.applicationName,
    types,
    connectionTimeoutMillis: 10_000,
    keepAlive: true,
  };
  const search = `-c search_path=${platformSchema},public`;
  const db = knex({
    client: "pg",
    connection: {
      ...base,
      options: `${search} -c statement_timeout=60000 -c idle_in_transaction_session_timeout=60000`,
    } as Knex.PgConnectionConfig,
    searchPath: [platformSchema, "public"],
    pool: { min: 0, max },
    acquireConnectionTimeout: 10_000,
  });
  const hot = new pg.Pool({
    ...base,
    options: `${search} -c synchronous_commit=off -c statement_timeout=10000`,
    max,
    idleTimeoutMillis: 60_000,
  });
  // A connection that breaks while idle is replaced at the next use; without a listener it would end the process.
  hot.on("error", () => undefined);
  return {
    url: options.url,
    knex: db,
    hot,
    async close() {
      await Promise.all([db.destroy(), hot.end()]);
    },
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
