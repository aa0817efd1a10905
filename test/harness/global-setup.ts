import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import type { TestProject } from "vitest/node";
import { harden, startPostgres } from "../../local/postgres.ts";
import { migrations } from "../../migrations/list.ts";
import { createLogger } from "../../platform/log.ts";
import { migrate } from "../../platform/migrate.ts";
import { connectPostgres } from "../../platform/postgres.ts";
import { databaseUrl, templateDatabase } from "./database-url.ts";

declare module "vitest" {
  export interface ProvidedContext {
    /** URL of the platform's login on the run's PostgreSQL; each test database is a clone beside it. */
    postgresUrl: string;
    /** URL of the superuser, for tests that look behind the platform. */
    superuserUrl: string;
  }
}

/** One real PostgreSQL for the whole run, in a temporary folder, with one migrated database that every test database is cloned from. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const home = await mkdtemp(join(tmpdir(), "kapstone-test-"));
  const log = createLogger("test-postgres", { level: "warn" });
  const server = await startPostgres({ home, isDurable: false, log });
  const teardown = async (): Promise<void> => {
    await server.stop();
    await rm(home, { recursive: true, force: true });
  };
  try {
    const client = new pg.Client({ connectionString: server.url });
    await client.connect();
    await client.query(`create database ${templateDatabase}`);
    await client.end();
    await harden(databaseUrl(server.superuserUrl, templateDatabase));
    const url = databaseUrl(server.url, templateDatabase);
    const postgres = connectPostgres({ url, applicationName: "kapstone-test-template", max: 4, log, silenceMs: null });
    await migrate(postgres, migrations);
    await postgres.close();
  } catch (error) {
    await teardown();
    throw error;
  }
  project.provide("postgresUrl", server.url);
  project.provide("superuserUrl", server.superuserUrl);
  return teardown;
}
