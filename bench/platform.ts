import type { ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startPostgres } from "../local/postgres.ts";
import { createLogger } from "../platform/log.ts";
import { type HttpClient, openHttpClient } from "../test/harness/http.ts";
import { cores, end, moveToRest, script, startOn } from "./processes.ts";

/** A platform under measurement: API and runtimes on one core, PostgreSQL on the other (it is started by this process). */
export interface MeasuredPlatform {
  origin: string;
  http: HttpClient;
  /** The API's process, parent of the runtimes. */
  process: ChildProcess;
  host(name: string): string;
  databaseUrl: string;
  signUp(): Promise<{ orgId: string; slug: string; session: string; email: string; password: string }>;
  createKap(
    org: { orgId: string; session: string },
    content: string,
  ): Promise<{ id: string; slug: string; token: string; versionId: string }>;
  close(): Promise<void>;
}

/** Limits are raised by configuration and the limiter keeps running; the values are printed with the table. */
export const benchSettings = {
  KAPSTONE_PORT: "0",
  KAPSTONE_SMTP_PORT: "0",
  KAPSTONE_LOG_LEVEL: "warn",
  KAPSTONE_REQUESTS_PER_MINUTE: "100000000",
  KAPSTONE_CALLS_PER_MINUTE: "100000000",
  KAPSTONE_SIGNUPS_PER_MINUTE: "1000000",
  KAPSTONE_LOGINS_PER_MINUTE: "1000000",
};

/** Starts one. PostgreSQL keeps fsync on, as it does for users. */
export async function startMeasuredPlatform(settings: Record<string, string> = {}): Promise<MeasuredPlatform> {
  moveToRest();
  const home = await mkdtemp(join(tmpdir(), "kapstone-bench-"));
  const server = await startPostgres({ home: join(home, "postgres"), log: createLogger("bench", { level: "warn" }) });
  const { process: child, firstLine: origin } = await startOn(cores.measured, script("platform-server.ts"), {
    ...benchSettings,
    KAPSTONE_DATA_DIR: join(home, "data"),
    KAPSTONE_DATABASE_URL: server.url,
    ...settings,
  });
  const http = openHttpClient(origin);
  const port = new URL(origin).port;
  const host = (name: string): string => `${name}.localhost:${port}`;
  return {
    origin,
    http,
    process: child,
    host,
    databaseUrl: server.url,
    async signUp() {
      const slug = `bench-${randomBytes(5).toString("hex")}`;
      const email = `you@${slug}.example`;
      const password = "correct horse battery staple";
      const answer = await http.call({
        host: host("api"),
        method: "POST",
        path: "/v1/auth/signup",
        body: { org_slug: slug, email, password, name: "Bench" },
      });
      const body = answer.json<{ org_id: string; session_token: string }>();
      return { orgId: body.org_id, slug, session: body.session_token, email, password };
    },
    async createKap(org, content) {
      const answer = await http.call({
        host: host("api"),
        method: "POST",
        path: `/v1/orgs/${org.orgId}/kaps`,
        headers: { authorization: `Bearer ${org.session}`, "x-service-client": "bench" },
        body: { name: `Bench ${randomBytes(4).toString("hex")}`, main_file: "main.ts", files: [{ path: "main.ts", content }] },
      });
      const body = answer.json<{ kap: { id: string; slug: string }; version: { id: string }; bypass_token: string }>();
      return { id: body.kap.id, slug: body.kap.slug, token: body.bypass_token, versionId: body.version.id };
    },
    async close() {
      await http.close();
      await end(child);
      await server.stop();
      await rm(home, { recursive: true, force: true });
    },
  };
}
