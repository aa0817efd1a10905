import type { Knex } from "knex";
import { migrateJobs } from "./jobs.ts";
import { type Postgres, platformSchema } from "./postgres.ts";

/** One step of the schema, forward only: `name` is its file's name, `up` its change in one transaction. */
export interface Migration {
  name: string;
  up(db: Knex.Transaction): Promise<void>;
}

/** A database whose schema this release does not know: it was made by a newer one. */
export class NewerSchemaError extends Error {
  override name = "NewerSchemaError";
}

const lockId = 4_207_011_001; // any constant: the one lock under which schemas change

/**
 * Brings the schema up to date: all pending migrations in order, each in its own transaction, under a lock that makes other starters wait.
 * Returns the names applied. Throws `NewerSchemaError` when the database has been migrated by a newer release.
 */
export async function migrate(postgres: Postgres, migrations: readonly Migration[]): Promise<string[]> {
  const applied: string[] = [];
  await postgres.knex.transaction(async (lock) => {
    await lock.raw("set local idle_in_transaction_session_timeout = 0");
    await lock.raw("set local statement_timeout = 0");
    await lock.raw("select pg_advisory_xact_lock(?)", [lockId]);
    await postgres.knex.raw(`create schema if not exists ${platformSchema}`);
    await postgres.knex.raw(
      `create table if not exists ${platformSchema}.migrations (name text primary key, applied_at timestamptz not null default now())`,
    );
    const done = new Set<string>((await postgres.knex("migrations").select("name")).map((row: { name: string }) => row.name));
    const unknown = [...done].filter((name) => !migrations.some((migration) => migration.name === name));
    if (unknown.length > 0) {
      throw new NewerSchemaError(
        `the database was migrated by a newer release (it has ${unknown.join(", ")}, which this one does not know): start that release, or give this one another database or data folder`,
      );
    }
    await migrateJobs(postgres);
    for (const migration of migrations) {
      if (done.has(migration.name)) continue;
      await postgres.knex.transaction(async (trx) => {
        await trx.raw("set local statement_timeout = 0");
        await migration.up(trx);
        await trx("migrations").insert({ name: migration.name });
      });
      applied.push(migration.name);
    }
  });
  return applied;
}

/** Whether every migration this release knows has been applied: part of readiness. Throws naming what is missing. */
export async function checkMigrated(postgres: Postgres, migrations: readonly Migration[]): Promise<void> {
  const done = new Set<string>((await postgres.knex("migrations").select("name")).map((row: { name: string }) => row.name));
  const missing = migrations.filter((migration) => !done.has(migration.name)).map((migration) => migration.name);
  if (missing.length > 0) throw new Error(`migrations are missing: ${missing.join(", ")}`);
}
