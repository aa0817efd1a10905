import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../test/harness/database.ts";
import { until } from "../test/harness/wait.ts";
import { type EventLog, openEventLog } from "./events.ts";
import { newId } from "./ids.ts";
import { createLogger } from "./log.ts";

let database: TestDatabase;
let events: EventLog;
const org = newId();

beforeAll(async () => {
  database = await createTestDatabase();
  events = openEventLog(database.postgres, createLogger("test", { level: "silent" }));
});
afterAll(async () => {
  await events.close();
  await database.close();
});

test("an event of a slow transaction, written before and committed after others, is not lost behind a reader's position", async () => {
  const start = await events.head();
  const slow = await database.postgres.knex.transaction();
  await events.publish(slow, { org_id: org, kind: "slow", payload: {} });
  await events.publish(database.postgres.knex, { org_id: org, kind: "fast", payload: {} });
  const first = await events.read({ org_id: org }, start, 10);
  expect(first.map((event) => event.kind)).toEqual(["fast"]);
  await slow.commit();
  const second = await events.read({ org_id: org }, first[0]!.position, 10);
  expect(second.map((event) => event.kind)).toEqual(["slow"]);
  expect(second[0]!.position).toBe(first[0]!.position + 1);
});

test("many writers and readers at once: every reader sees every event once, in one order, without gaps", async () => {
  const start = await events.head();
  const readers = Array.from({ length: 4 }, async () => {
    const seen: number[] = [];
    let position = start;
    while (seen.length < 200) {
      for (const event of await events.read({ org_id: org, kinds: ["load"] }, position, 50)) {
        position = event.position;
        seen.push(event.position);
      }
    }
    return seen;
  });
  const left = Array.from({ length: 200 }, (_, n) => n).values();
  // As many as there are connections: who waits for one for ten seconds is refused, which a slow machine is not to be blamed for.
  const writers = Array.from({ length: 8 }, async () => {
    for (const n of left)
      await database.postgres.knex.transaction((trx) => events.publish(trx, { org_id: org, kind: "load", payload: { n } }));
  });
  await Promise.all(writers);
  for (const seen of await Promise.all(readers)) expect(seen).toEqual(Array.from({ length: 200 }, (_, n) => start + 1 + n));
});

test("a rolled back event never appears, another organisation's neither, and filters narrow", async () => {
  const start = await events.head();
  await database.postgres.knex
    .transaction(async (trx) => {
      await events.publish(trx, { org_id: org, kind: "undone", payload: {} });
      throw new Error("undo");
    })
    .catch(() => undefined);
  await events.publish(database.postgres.knex, { org_id: newId(), kind: "other", payload: {} });
  await events.publish(database.postgres.knex, { org_id: org, kind: "a", subject: "agent-1", payload: {} });
  await events.publish(database.postgres.knex, { org_id: org, kind: "b", subject: "agent-2", payload: {} });
  expect((await events.read({ org_id: org }, start, 10)).map((event) => event.kind)).toEqual(["a", "b"]);
  expect((await events.read({ org_id: org, subjects: ["agent-2"] }, start, 10)).map((event) => event.kind)).toEqual(["b"]);
  expect((await events.read({ org_id: org, kinds: ["a"] }, start, 10)).map((event) => event.kind)).toEqual(["a"]);
});

test("listeners are woken by a commit, also after their connection was cut", async () => {
  let woken = 0;
  const stop = events.onChange(() => {
    woken += 1;
  });
  const before = woken;
  await events.publish(database.postgres.knex, { org_id: org, kind: "wake", payload: {} });
  await until(() => woken > before);
  await database.postgres.knex.raw(
    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'kapstone-events' and datname = current_database()",
  );
  await until(async () => {
    const { rows } = await database.postgres.knex.raw(
      "select count(*) as n from pg_stat_activity where application_name = 'kapstone-events' and datname = current_database() and query ~ '^(listen|select 1$)'",
    );
    return rows[0].n === 1;
  });
  const after = woken;
  await events.publish(database.postgres.knex, { org_id: org, kind: "wake", payload: {} });
  await until(() => woken > after);
  stop();
});

test("what is older than it is kept for goes, always from the front, and numbers go on where they were", async () => {
  const { knex } = database.postgres;
  for (const kind of ["old", "older-but-later", "young"]) await events.publish(knex, { org_id: org, kind, payload: {} });
  await events.head();
  const age = (kind: string, hours: number) =>
    knex.raw("update events set created_at = now() - make_interval(hours => ?) where kind = ?", [hours, kind] as never);
  await knex.raw("update events set created_at = now() - interval '3 days' where kind not in ('old', 'older-but-later', 'young')");
  await age("old", 25);
  await events.publish(knex, { org_id: org, kind: "late", payload: {} });
  const head = await events.head();
  await age("late", 30); // behind a young one: it stays until that one goes
  await age("older-but-later", 26);
  expect(await events.sweep(24)).toBeGreaterThanOrEqual(2);
  expect(await events.oldest()).toBe(head - 1);
  expect((await events.read({ org_id: org }, 0, 10)).map(({ kind }) => kind)).toEqual(["young", "late"]);
  await age("young", 25);
  expect(await events.sweep(24)).toBe(2);
  expect([await events.oldest(), await events.head()]).toEqual([head + 1, head]);
  await events.publish(knex, { org_id: org, kind: "next", payload: {} });
  expect((await events.read({ org_id: org }, head, 10)).map(({ position }) => position)).toEqual([head + 1]);
});
