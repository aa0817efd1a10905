import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../test/harness/database.ts";
import { until } from "../test/harness/wait.ts";
import { addJob, releaseJobs, startJobWorkers } from "./jobs.ts";
import { createLogger } from "./log.ts";

let database: TestDatabase;
const log = createLogger("test", { level: "silent" });

beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.close());

const waiting = async (name: string): Promise<number> => {
  const { rows } = await database.postgres.knex.raw(
    "select count(*)::int as n from kapstone_jobs._private_jobs j join kapstone_jobs._private_tasks t on t.id = j.task_id where t.identifier = ?",
    [name],
  );
  return rows[0].n;
};

test("a job exists exactly when its transaction commits, and runs once", async () => {
  const ran: unknown[] = [];
  const workers = await startJobWorkers(database.postgres, { greet: async (payload) => void ran.push(payload) }, { concurrency: 2, log });
  await database.postgres.knex.transaction((trx) => addJob(trx, "greet", { n: 1 }));
  await database.postgres.knex
    .transaction(async (trx) => {
      await addJob(trx, "greet", { n: 2 });
      throw new Error("undo");
    })
    .catch(() => undefined);
  await addJob(database.postgres.knex, "greet", { n: 3 });
  await until(() => ran.length === 2);
  expect(ran).toEqual(expect.arrayContaining([{ n: 1 }, { n: 3 }]));
  await workers.close();
});

test("a job that throws is tried again", async () => {
  let attempts = 0;
  const workers = await startJobWorkers(
    database.postgres,
    {
      flaky: async (_payload, job) => {
        attempts = job.attempt;
        if (job.attempt < 2) throw new Error("not yet");
      },
    },
    { concurrency: 1, log },
  );
  await addJob(database.postgres.knex, "flaky", {});
  await until(() => attempts === 2, { timeoutMs: 20_000 });
  await workers.close();
});

test("jobs of a worker that was killed are given to others once it has been silent, not after hours", async () => {
  await addJob(database.postgres.knex, "orphan", {}, { key: "orphan" });
  await database.postgres.knex.raw(
    `update kapstone_jobs._private_jobs set locked_by = 'pool-that-was-killed', locked_at = now() - interval '31 s', attempts = 1 where key = 'orphan'`,
  );
  let ran = false;
  const workers = await startJobWorkers(
    database.postgres,
    {
      orphan: async () => {
        ran = true;
      },
    },
    { concurrency: 1, log },
  );
  await until(() => ran, { timeoutMs: 20_000 });
  await workers.close();
});

test("a job that takes longer than many heartbeats is carried out once, whoever else is there", async () => {
  const options = { concurrency: 2, log, heartbeatMs: 20 };
  const { knex } = database.postgres;
  const carriedOut: number[] = [];
  const lastBeat = async (id: string): Promise<number | undefined> => {
    const { rows } = await knex.raw(
      "select w.seen_at from kapstone_jobs._private_jobs j join kapstone_jobs.live_workers w on w.worker_id = j.locked_by where j.id = ?",
      [id],
    );
    return rows[0]?.seen_at.getTime();
  };
  const long = async (_payload: unknown, job: { id: string; attempt: number }): Promise<void> => {
    carriedOut.push(job.attempt);
    // As if it had begun an hour ago: its process has said since then that it lives, twice, so that a beat under way at the begin is over.
    for (let beats = 0; beats < 2; beats += 1) {
      const before = await lastBeat(job.id);
      await until(async () => (await lastBeat(job.id)) !== before);
    }
    await knex.raw("update kapstone_jobs._private_jobs set locked_at = now() - interval '1 hour' where id = ?", [job.id]);
    await delay(1_500);
  };
  const both = [await startJobWorkers(database.postgres, { long }, options), await startJobWorkers(database.postgres, { long }, options)];
  await addJob(database.postgres.knex, "long", {});
  await until(async () => carriedOut.length > 0 && (await waiting("long")) === 0);
  expect(carriedOut).toEqual([1]);
  await Promise.all(both.map((workers) => workers.close()));
});

test("a job that somebody has just taken is his, though he has not said yet that he lives", async () => {
  await addJob(database.postgres.knex, "held", {}, { key: "held" });
  await database.postgres.knex.raw(
    `update kapstone_jobs._private_jobs set locked_by = 'pool-that-starts', locked_at = now() where key = 'held'`,
  );
  let ran = false;
  const held = async (): Promise<void> => {
    ran = true;
  };
  const workers = await startJobWorkers(database.postgres, { held }, { concurrency: 1, log, heartbeatMs: 20 });
  await delay(1_500);
  expect(ran).toBe(false);
  await releaseJobs(database.postgres.knex);
  await until(() => ran);
  await workers.close();
});

test("a job that was taken and never came is given out again", async () => {
  const { knex } = database.postgres;
  const ran: unknown[] = [];
  const workers = await startJobWorkers(
    database.postgres,
    { stray: async (payload) => void ran.push(payload) },
    { concurrency: 1, log, heartbeatMs: 20 },
  );
  const alive: string[] = [];
  await until(async () => alive.push(...(await knex("kapstone_jobs.live_workers").pluck("worker_id"))));
  expect(alive).toHaveLength(1);
  await addJob(knex, "stray", {}, { key: "stray", queue: "strays", runAt: new Date(Date.now() + 3_600_000) });
  await knex.raw(
    `with taken as (
       update kapstone_jobs._private_jobs set run_at = now(), attempts = 1, locked_at = now() - interval '31 s', locked_by = ?
       where key = 'stray' returning job_queue_id, locked_at, locked_by)
     update kapstone_jobs._private_job_queues q set locked_at = taken.locked_at, locked_by = taken.locked_by from taken where q.id = taken.job_queue_id`,
    alive,
  );
  await until(() => ran.length > 0);
  await workers.close();
});

test("a job key makes a waiting job one of a kind: the later replaces the earlier", async () => {
  const later = new Date(Date.now() + 3_600_000);
  await addJob(database.postgres.knex, "keyed", { n: 1 }, { key: "k", runAt: later });
  await addJob(database.postgres.knex, "keyed", { n: 2 }, { key: "k", runAt: later });
  const { rows } = await database.postgres.knex.raw("select payload from kapstone_jobs._private_jobs where key = 'k'");
  expect(rows).toEqual([{ payload: { n: 2 } }]);
});
