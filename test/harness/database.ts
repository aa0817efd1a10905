import { randomBytes } from "node:crypto";
import pg from "pg";
import { inject } from "vitest";
import { createLogger } from "../../platform/log.ts";
import { connectPostgres, type Postgres } from "../../platform/postgres.ts";
import { databaseUrl, templateDatabase } from "./database-url.ts";

/** A database of its own for one test file. */
export interface TestDatabase {
  /** Connection URL as the platform's login. */
  url: string;
  /** Connection URL of the same database as the superuser, to look behind the platform. */
  superuserUrl: string;
  postgres: Postgres;
  /** Closes `postgres` and drops the database with whatever is still connected to it. */
  close(): Promise<void>;
}

/** A fresh clone of the migrated template (about 50 ms). Close it in `afterAll`. */
export async function createTestDatabase(): Promise<TestDatabase> {
  const serverUrl = inject("postgresUrl");
  const name = `test_${randomBytes(8).toString("hex")}`;
  await runOnServer(serverUrl, `create database ${name} template ${templateDatabase}`);
  const url = databaseUrl(serverUrl, name);
  const log = createLogger("test-database", { level: "error" });
  const postgres = connectPostgres({ url, applicationName: "kapstone-test", max: 8, log });
  return {
    url,
    superuserUrl: databaseUrl(inject("superuserUrl"), name),
    postgres,
    async close() {
      await postgres.close();
      await runOnServer(inject("superuserUrl"), `drop database if exists ${name} with (force)`);
    },
  };
}

/** One statement on the server's own database. Two clones at once wait for each other, inside PostgreSQL's own five seconds and then here. */
async function runOnServer(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 30_000 });
  await client.connect();
  try {
    await client.query("select pg_advisory_lock(4207011002)"); // one clone at a time: the template may have one user only
    await client.query(statement);
  } finally {
    await client.end();
  }
}
