import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { createTestDatabase, type TestDatabase } from "../test/harness/database.ts";
import { networkTo } from "../test/harness/network.ts";
import { until } from "../test/harness/wait.ts";
import { openEventLog } from "./events.ts";
import { newId } from "./ids.ts";
import { addJob, startJobWorkers } from "./jobs.ts";
import { createLogger } from "./log.ts";

vi.setConfig({ testTimeout: 180_000 });

let database: TestDatabase;
const log = createLogger("test", { level: "silent" });
const pulse = { askMs: 300, answerMs: 2_000 };

beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.close());

/** Sessions of an application that wait for notifications, by the server's process; one that was cut off is there until the server finds out. */
async function listening(application: string): Promise<number[]> {
  const { rows } = await database.postgres.knex.raw<{ rows: { pid: number }[] }>(
    `select pid from pg_stat_activity where application_name = ? and datname = current_database() and state = 'idle' and query ~* '^(listen|select 1$)'`,
    [application],
  );
  return rows.map(({ pid }) => pid);
}
/** The one that is not among `before`; none is seen while it is being asked. */
const newer = (application: string, before: number[]): Promise<number> =>
  until(async () => (await listening(application)).find((pid) => !before.includes(pid)), { timeoutMs: 50_000, what: "another connection" });

test("the event log listens on another connection once the packets of its own are dropped, and closes while they are", async () => {
  const network = await networkTo(database.url);
  const events = openEventLog({ url: network.url, knex: database.postgres.knex }, log, pulse);
  try {
    const before = await newer("kapstone-events", []);
    network.swallow();
    await newer("kapstone-events", [before]);
    await events.publish(database.postgres.knex, { org_id: newId(), kind: "wake", payload: {} });
    network.swallow();
  } finally {
    await events.close();
    network.close();
  }
});

test("a connection that answers is left alone, however often it is asked", async () => {
  await until(async () => (await listening("kapstone-events")).length === 0, { what: "the end of the connections that were cut off" });
  const events = openEventLog(database.postgres, log, { ...pulse, answerMs: 20_000 });
  try {
    const pid = await newer("kapstone-events", []);
    const asked = async (): Promise<Date | undefined> => {
      const { rows } = await database.postgres.knex.raw("select query_start from pg_stat_activity where pid = ? and query = 'select 1'", [
        pid,
      ] as never);
      return rows[0]?.query_start;
    };
    const first = await until(asked);
    await until(async () => ((await asked())?.getTime() ?? 0) > first.getTime() + 1_500); // some five questions later
    const now = await until(async () => {
      const all = await listening("kapstone-events");
      return all.length > 0 && all;
    });
    expect(now).toEqual([pid]);
  } finally {
    await events.close();
  }
});

test("workers whose every connection is swallowed, mid-statement or listening, take jobs again over others", async () => {
  const network = await networkTo(database.url);
  const ran: unknown[] = [];
  const handlers = { note: async (payload: unknown) => void ran.push(payload) };
  const workers = await startJobWorkers({ url: network.url }, handlers, { concurrency: 2, log, pulse });
  try {
    await addJob(database.postgres.knex, "note", { n: 1 });
    await until(() => ran.length === 1);
    network.swallow();
    await addJob(database.postgres.knex, "note", { n: 2 });
    // At worst a delivery was swallowed: then the job is given out again after half a minute.
    await until(() => ran.some((payload) => (payload as { n: number }).n === 2), { timeoutMs: 100_000, what: "the job after the fault" });
  } finally {
    await workers.close();
    network.close();
  }
});
