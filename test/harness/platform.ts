import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Platform, startPlatform } from "../../local/platform.ts";
import { createTestDatabase, type TestDatabase } from "./database.ts";
import { type HttpClient, openHttpClient } from "./http.ts";

/** A whole platform on free ports, on a database of its own, with a client to it. */
export interface TestPlatform {
  platform: Platform;
  database: TestDatabase;
  http: HttpClient;
  /** Host header of a name in the deployment's domain: `host("api")`, `host("acme")`, `host("visits.kaps")`. */
  host(name: string): string;
  close(): Promise<void>;
}

/**
 * Starts one as `npm start` does, but for PostgreSQL, which is the run's. `settings` are environment variables (docs/configuration.md) and come over the
 * test's defaults: limits that would slow tests are high, the log says warnings only, one runtime is warm. Close it in `afterAll`.
 */
export async function startTestPlatform(settings: Record<string, string> = {}): Promise<TestPlatform> {
  const database = await createTestDatabase();
  const dataDir = await mkdtemp(join(tmpdir(), "kapstone-data-"));
  const removeAll = async (): Promise<void> => {
    await database.close();
    await rm(dataDir, { recursive: true, force: true, maxRetries: 5, retryDelay: 500 }); // a backend that was forked last may still write
  };
  try {
    const platform = await startPlatform({
      env: { ...testSettings, KAPSTONE_DATA_DIR: dataDir, KAPSTONE_DATABASE_URL: database.url, ...settings },
      show: () => undefined,
    });
    const http = openHttpClient(`http://127.0.0.1:${platform.port}`);
    return {
      platform,
      database,
      http,
      host: (name) => `${name}.${platform.api.deps.config.domain}:${platform.port}`,
      async close() {
        await http.close();
        await platform.close();
        await removeAll();
      },
    };
  } catch (error) {
    await removeAll();
    throw error;
  }
}

const testSettings = {
  KAPSTONE_PORT: "0",
  KAPSTONE_SMTP_PORT: "0",
  KAPSTONE_LOG_LEVEL: "warn",
  KAPSTONE_WARM_RUNTIMES: "1",
  KAPSTONE_REQUESTS_PER_MINUTE: "1000000",
  KAPSTONE_CALLS_PER_MINUTE: "1000000",
  KAPSTONE_LOGINS_PER_MINUTE: "1000000",
  KAPSTONE_SIGNUPS_PER_MINUTE: "1000000",
  KAPSTONE_MAILS_PER_HOUR: "1000000",
};
