import { afterAll, beforeAll, expect, test } from "vitest";
import { newId } from "#platform/ids.ts";
import { createTestDatabase, type TestDatabase } from "../../../test/harness/database.ts";
import { requeueStranded } from "./crash.ts";
import { beginAttemptSql, endAttempt } from "./finish.ts";

/** No workers are here: jobs stay where they are put. */
let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database?.close());

async function queuedMail(): Promise<string> {
  const id = newId();
  await database.postgres.knex("runs").insert({ id, kap_id: newId(), org_id: newId(), trigger_kind: "inbox", status: "queued" });
  return id;
}
const isBegun = async (id: string, attempt: number): Promise<boolean> =>
  (await database.postgres.hot.query(beginAttemptSql, [id, attempt])).rowCount === 1;
const end = (id: string, attempt: number, outcome: "ok" | "error") => endAttempt(database.postgres, { id, attempt, outcome, detail: null });
const runOf = (id: string) => database.postgres.knex("runs").where({ id }).first();
const attemptsInQueue = async (id: string): Promise<number[]> => {
  const { rows } = await database.postgres.knex.raw<{ rows: { attempt: number }[] }>(
    "select (payload->>'attempt')::int as attempt from kapstone_jobs._private_jobs where payload->>'run_id' = ? order by 1",
    [id],
  );
  return rows.map((row) => row.attempt);
};

test("an attempt is begun once, also when its job comes again after it has failed and before the next one", async () => {
  const id = await queuedMail();
  expect((await Promise.all([1, 2, 3].map(() => isBegun(id, 1)))).filter(Boolean)).toHaveLength(1);
  expect(await end(id, 1, "error")).toBe(true);
  expect(await isBegun(id, 1)).toBe(false);
  expect(await isBegun(id, 2)).toBe(true);
  expect(await isBegun(id, 2)).toBe(false);
  expect(await runOf(id)).toMatchObject({ status: "running", attempts: 2 });
});

test("an attempt fails once and puts one job for the next into the queue; the third is the run's end", async () => {
  const id = await queuedMail();
  for (const attempt of [1, 2, 3]) {
    expect(await isBegun(id, attempt)).toBe(true);
    const ends = await Promise.all([1, 2, 3].map(() => end(id, attempt, "error")));
    expect(ends.filter(Boolean)).toHaveLength(1);
    expect(await end(id, attempt - 1, "error")).toBe(false);
  }
  expect(await attemptsInQueue(id)).toEqual([2, 3]);
  expect(await runOf(id)).toMatchObject({ status: "failed", outcome: "error", attempts: 3 });
});

test("an attempt that was given up and did well after all has done well, and is not tried again", async () => {
  const id = await queuedMail();
  await isBegun(id, 1);
  await end(id, 1, "error");
  expect(await end(id, 1, "ok")).toBe(true);
  expect(await isBegun(id, 2)).toBe(false);
  expect(await runOf(id)).toMatchObject({ status: "succeeded", outcome: "ok" });
});

test("a queued run without a job is given one, for the attempt that it waits for", async () => {
  const [fresh, tried] = [await queuedMail(), await queuedMail()];
  await isBegun(tried, 1);
  await end(tried, 1, "error");
  const { knex } = database.postgres;
  await knex.raw("delete from kapstone_jobs._private_jobs");
  await knex("runs").update({ started_at: knex.raw("now() - interval '6 minutes'") });
  await requeueStranded(knex);
  expect([await attemptsInQueue(fresh), await attemptsInQueue(tried)]).toEqual([[1], [2]]);
});

test("that an attempt is begun is on the disk before anybody acts on it, though the pool's other commits are not", async () => {
  const id = await queuedMail();
  const client = await database.postgres.hot.connect();
  try {
    const waits = async (): Promise<string> => (await client.query("show synchronous_commit")).rows[0].synchronous_commit;
    await client.query("begin");
    expect(await waits()).toBe("off");
    expect((await client.query(beginAttemptSql, [id, 1])).rowCount).toBe(1);
    expect(await waits()).toBe("on");
    await client.query("rollback");
    expect(await waits()).toBe("off");
  } finally {
    client.release();
  }
});
