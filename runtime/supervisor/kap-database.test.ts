import pg from "pg";
import { afterAll, expect, test } from "vitest";
import { createLogger } from "#platform/log.ts";
import { createTestDatabase } from "../../test/harness/database.ts";
import { until } from "../../test/harness/wait.ts";
import { defaultLimits } from "../fixture/test-runtime.ts";
import type { HostCall } from "./host-call.ts";
import { KapDatabase } from "./kap-database.ts";

const database = await createTestDatabase();
const role = `kap_role_${Math.random().toString(36).slice(2)}`;
const password = "a-password-nobody-should-read";
const admin = new pg.Client({ connectionString: database.superuserUrl });
await admin.connect();
await admin.query(`create role ${role} login password '${password}'`);
afterAll(async () => {
  await admin.query(`drop role ${role}`);
  await admin.end();
  await database.close();
});

const { hostname, port, pathname } = new URL(database.url);
/** A host call of a run that goes on. */
const callOf = (op: string, input: object, remainingMs: number): HostCall => ({
  op,
  text: JSON.stringify(input),
  bytes: new Uint8Array(),
  run: { fetches: 0, abort: new AbortController(), streams: new Set(), dry: null },
  streamKey: String,
  remainingMs,
});
const credentials = { host: hostname, port: Number(port), database: pathname.slice(1), user: role, password, schema: role };

test("what a kap's database does wrong is logged at every level without what proves the connection", async () => {
  let log = "";
  const logger = createLogger("test", {
    level: "trace",
    destination: {
      write(line) {
        log += line;
      },
    },
  });
  /** Only what is meant to be cut short by it has little time: the rest must not be, on any machine. */
  const query = (kap: KapDatabase, sql: string, db_statement_ms = 20_000) =>
    kap
      .call(callOf("db.query", { sql }, 20_000), { ...defaultLimits, db_statement_ms })
      .catch((error: Error & { code?: string }) => `${error.name} ${error.code}`);

  const kap = new KapDatabase(credentials, logger);
  // An idle connection that the server ends.
  expect(await query(kap, "select 1 as n")).toMatchObject({ text: expect.stringContaining("1") });
  const ended = await admin.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = $1", [role]);
  expect(ended.rowCount).toBeGreaterThan(0);
  await until(() => log.includes("idle database connection"));
  // One that it ends while a statement is going on, and one that is cancelled.
  const counting = "select count(*) from generate_series(1, 1000000000)";
  const broken = query(kap, counting);
  const terminate = "select pg_terminate_backend(pid) from pg_stat_activity where usename = $1 and state = 'active' and query = $2";
  await until(async () => (await admin.query(terminate, [role, counting])).rowCount, { what: "the statement to be going on, and its end" });
  expect(await broken).toBe("SqlError DATABASE_UNAVAILABLE");
  expect(await query(kap, counting, 200)).toBe("SqlError STATEMENT_TIMEOUT");
  await kap.close();
  // A password that does not hold, and a server that is not there.
  for (const wrong of [{ password: `${password}-no-more` }, { port: 1 }]) {
    const unusable = new KapDatabase({ ...credentials, ...wrong }, logger);
    expect(await query(unusable, "select 1")).toBe("SqlError DATABASE_UNAVAILABLE");
    await unusable.close();
  }
  expect(log).toMatch(/could not be used/);
  expect(log).not.toMatch(/secretKey|"password"|processID|a-password-nobody/);
});

test("the first statement waits for the connection that was begun for it, and makes none beside it", async () => {
  const connections = async (): Promise<number> =>
    (await admin.query("select count(*)::int as n from pg_stat_activity where usename = $1", [role])).rows[0].n;
  await until(async () => (await connections()) === 0, { what: "the connections of the test before to be gone" });
  const kap = new KapDatabase(credentials, createLogger("test", { level: "silent" }));
  kap.open();
  expect(await kap.call(callOf("db.query", { sql: "select 1 as n" }, 10_000), defaultLimits)).toMatchObject({
    text: expect.stringContaining("1"),
  });
  expect(await connections()).toBe(1);
  await kap.close();
});

test.each(["db.query", "db.batch"])("of two programs that make their table at the same moment neither fails: %s", async (op) => {
  const name = op.replace(".", "_");
  const sql = `create table if not exists ${name} (n int)`;
  await admin.query(`create schema if not exists ${role} authorization ${role}`);
  const other = new pg.Client({ ...credentials, password });
  await other.connect();
  await other.query(`begin; create table ${role}.${name} (n int)`);
  const kap = new KapDatabase(credentials, createLogger("test", { level: "silent" }));
  const input = op === "db.query" ? { sql } : { statements: [{ sql }, { sql: `insert into ${name} values (1)` }] };
  const made = kap.call(callOf(op, input, 60_000), { ...defaultLimits, db_statement_ms: 60_000 });
  const waiting = "select 1 from pg_stat_activity where usename = $1 and query = $2 and wait_event_type = 'Lock'";
  await until(async () => (await admin.query(waiting, [role, sql])).rowCount, { what: "the program's statement to wait for the other" });
  await other.query("commit");
  expect(await made).toMatchObject({ text: expect.any(String) });
  expect((await admin.query(`select n from ${role}.${name}`)).rows).toEqual(op === "db.query" ? [] : [{ n: 1 }]);
  await kap.close();
  await other.end();
  await admin.query(`drop schema ${role} cascade`);
});
