import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../test/harness/database.ts";
import { networkTo } from "../test/harness/network.ts";
import { createLogger } from "./log.ts";
import { connectPostgres, type Postgres } from "./postgres.ts";

let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.close());

test("a statement on a connection whose packets are dropped fails, the next has another connection, and all that is logged is JSON", async () => {
  const network = await networkTo(database.url);
  const lines: string[] = [];
  const log = createLogger("test", { destination: { write: (line) => lines.push(line) } });
  const postgres: Postgres = connectPostgres({ url: network.url, applicationName: "postgres-test", max: 2, log, silenceMs: 3_000 });
  try {
    await Promise.all([postgres.knex.raw("select 1"), postgres.hot.query("select 1")]);
    network.swallow();
    await expect(postgres.knex.raw("select 2")).rejects.toThrow(/said nothing for 3 seconds/);
    await expect(postgres.hot.query("select 2")).rejects.toThrow(/timeout/);
    expect((await postgres.knex.raw("select 3 as n")).rows).toEqual([{ n: 3 }]);
    expect((await postgres.hot.query("select 3 as n")).rows).toEqual([{ n: 3 }]);
    const said = lines.map((line) => JSON.parse(line) as { said?: string });
    expect(said.some((line) => /Connection Error/.test(line.said ?? ""))).toBe(true);
  } finally {
    await postgres.close();
    network.close();
  }
});

test("a transaction that works for longer than silence is borne goes on where nothing is silent for so long", async () => {
  const log = createLogger("test", { level: "silent" });
  const postgres = connectPostgres({ url: database.url, applicationName: "postgres-test", max: 1, log, silenceMs: 4_000 });
  try {
    await postgres.knex.transaction(async (trx) => {
      for (let step = 0; step < 10; step++) await trx.raw("select pg_sleep(0.5)");
    });
  } finally {
    await postgres.close();
  }
});

test("where statements may take any time, a silent one is waited for", async () => {
  const log = createLogger("test", { level: "silent" });
  const postgres = connectPostgres({ url: database.url, applicationName: "postgres-test", max: 1, log, silenceMs: null });
  try {
    expect((await postgres.knex.raw("select 1 as n from pg_sleep(1)")).rows).toEqual([{ n: 1 }]);
  } finally {
    await postgres.close();
  }
});

test("a connection that is cut while somebody holds it fails its holder's next statement, not the process", async () => {
  const log = createLogger("test", { level: "silent" });
  const postgres: Postgres = connectPostgres({ url: database.url, applicationName: "postgres-test", max: 2, log });
  try {
    const held = await postgres.hot.connect();
    const { rows } = await held.query<{ pid: number }>("select pg_backend_pid() as pid");
    const ended = new Promise((resolve) => held.once("end", resolve));
    await postgres.hot.query("select pg_terminate_backend($1)", [rows[0]?.pid]);
    await ended;
    await expect(held.query("select 1")).rejects.toThrow();
    held.release(true);
    expect((await postgres.hot.query("select 1 as n")).rows).toEqual([{ n: 1 }]);
  } finally {
    await postgres.close();
  }
});
