import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createTransport } from "nodemailer";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freePort } from "../fault/tree.ts";
import { createTestDatabase, type TestDatabase } from "../harness/database.ts";
import { type HttpClient, openHttpClient } from "../harness/http.ts";
import { signUpOrg, type TestKap } from "../harness/org.ts";
import type { TestPlatform } from "../harness/platform.ts";
import { until } from "../harness/wait.ts";

/** How many mails are sent, and after how many of them the whole platform is killed (SIGKILL). A long run: MAILS=2000 MAILS_PER_KILL=100. */
const mails = Number(process.env.MAILS ?? 90);
const mailsPerKill = Number(process.env.MAILS_PER_KILL ?? 30);
const senders = 4;

let database: TestDatabase;
let dataDir: string;
let http: HttpClient;
let ports: { http: number; smtp: number };
let main: ChildProcess | null = null;

async function start(): Promise<void> {
  main = spawn(process.execPath, ["--no-node-snapshot", join(import.meta.dirname, "../../local/main.ts")], {
    stdio: ["pipe", "ignore", "inherit"],
    env: {
      ...process.env,
      KAPSTONE_DATABASE_URL: database.url,
      KAPSTONE_DATA_DIR: dataDir,
      KAPSTONE_PORT: String(ports.http),
      KAPSTONE_SMTP_PORT: String(ports.smtp),
      KAPSTONE_WARM_RUNTIMES: "1",
      KAPSTONE_LOG_LEVEL: "error",
      KAPSTONE_MAILS_PER_HOUR: "1000000",
      KAPSTONE_REQUESTS_PER_MINUTE: "1000000",
    },
  });
  await until(async () => (await http.call({ host: `api.localhost:${ports.http}`, path: "/readyz", timeoutMs: 2_000 })).status < 500, {
    timeoutMs: 60_000,
    what: "the platform",
  });
}

async function kill(): Promise<void> {
  const old = main;
  if (!old) return;
  main = null;
  const gone = once(old, "exit");
  old.kill("SIGKILL");
  await gone;
}

beforeAll(async () => {
  database = await createTestDatabase();
  dataDir = await mkdtemp(join(tmpdir(), "kapstone-kill-"));
  ports = { http: await freePort(), smtp: await freePort() };
  http = openHttpClient(`http://127.0.0.1:${ports.http}`);
  await start();
}, 120_000);
afterAll(async () => {
  await kill();
  await http?.close();
  await database?.close();
  await rm(dataDir, { recursive: true, force: true, maxRetries: 5, retryDelay: 500 });
});

/** Sends as a mail server does: the same mail again and again until it has heard a 250. */
async function deliver(kap: TestKap, n: number): Promise<void> {
  const mail = {
    from: "a@sender.example",
    to: `${kap.slug}@mail.localhost`,
    subject: `mail ${n}`,
    text: `text ${n}`,
    messageId: `<${n}@sender.example>`,
    date: new Date(0),
  };
  await until(
    async () => {
      const transport = createTransport({
        host: "127.0.0.1",
        port: ports.smtp,
        secure: false,
        ignoreTLS: true,
        connectionTimeout: 5_000,
        socketTimeout: 30_000,
      });
      try {
        return (await transport.sendMail(mail)).accepted.length === 1;
      } finally {
        transport.close();
      }
    },
    { timeoutMs: 120_000, what: `mail ${n}` },
  );
}

test("each mail that was answered 250 makes exactly one run, however often the platform is killed meanwhile", async () => {
  const names = { http, host: (name: string) => `${name}.localhost:${ports.http}` } as unknown as TestPlatform;
  const org = await signUpOrg(names);
  const kap = await org.createKap("export default { async email(message) { console.log(message.subject); } }");
  const made = await org.call({
    method: "POST",
    path: `/v1/orgs/${org.id}/kaps/${kap.id}/triggers`,
    body: { kind: "inbox", file_path: "main.ts" },
  });
  expect(made.status, made.text).toBe(201);

  let next = 0;
  let done = 0;
  let kills = 0;
  const killer = (async () => {
    for (let at = mailsPerKill; at <= mails - mailsPerKill / 2; at += mailsPerKill) {
      await until(() => done >= at, { timeoutMs: 240_000, what: `${at} mails` });
      await delay(Math.random() * 50);
      await kill();
      kills++;
      await start();
    }
  })();
  await Promise.all(
    Array.from({ length: senders }, async () => {
      while (next < mails) {
        await deliver(kap, next++);
        done++;
      }
    }),
  );
  await killer;
  expect(kills).toBeGreaterThanOrEqual(2);

  const { knex } = database.postgres;
  const runs = await until(
    async () => {
      // Waiting retries are brought forward; what a killed process held is found by the queue within half a minute.
      await knex.raw(
        "update kapstone_jobs._private_jobs set run_at = now() where run_at > now() and task_id in (select id from kapstone_jobs._private_tasks where identifier = 'mail-run')",
      );
      const rows: { id: string; status: string; outcome: string; attempts: number }[] = await knex("runs").where({ kap_id: kap.id });
      return rows.every((run) => run.status === "succeeded" || run.status === "failed") && rows;
    },
    { timeoutMs: 300_000, what: "the end of all runs" },
  );
  expect(runs).toHaveLength(mails);
  expect(runs.filter((run) => run.outcome !== "ok" && run.attempts < 3)).toEqual([]);
  const payloads: { subject: string }[] = await knex("run_payloads")
    .join("runs", "runs.id", "run_payloads.run_id")
    .where("runs.kap_id", kap.id)
    .select(knex.raw("payload->>'subject' as subject"));
  expect(new Set(payloads.map((payload) => payload.subject))).toEqual(new Set(Array.from({ length: mails }, (_, n) => `mail ${n}`)));
}, 900_000);
