import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { newId } from "#platform/ids.ts";
import { dropKapDatabase, type KapDatabaseOptions, provisionKapDatabase } from "#platform/kap-database.ts";
import { createLogger } from "#platform/log.ts";
import { createTestDatabase, type TestDatabase } from "../../test/harness/database.ts";
import { defaultLimits } from "../fixture/test-runtime.ts";
import { DryDatabase } from "./dry-database.ts";
import type { HostCall } from "./host-call.ts";

let database: TestDatabase;
const name = `kap_${newId().replaceAll("-", "")}`;
const kap: KapDatabaseOptions = { schemaName: name, roleName: name, password: newId(), databaseName: "", connectionLimit: 5 };
/** So long that a loaded machine does not reach them; PostgreSQL's own lock_timeout of a kap's role stays as it is. */
const limits = { ...defaultLimits, request_wall_ms: 120_000 };
const loginOf = ({ hostname, port }: URL) => ({
  host: hostname,
  port: Number(port),
  database: kap.databaseName,
  user: name,
  password: kap.password,
});

beforeAll(async () => {
  database = await createTestDatabase();
  kap.databaseName = new URL(database.url).pathname.slice(1);
  await database.postgres.knex.transaction((trx) => provisionKapDatabase(trx, kap));
  const client = new pg.Client(loginOf(new URL(database.url)));
  await client.connect();
  await client.query("create table notes (id serial primary key, text text)");
  await client.end();
});
afterAll(async () => {
  await dropKapDatabase(database.postgres.knex, kap);
  await database.close();
});

/** A dry run's database as the supervisor of its runtime opens it. */
function openDryRun() {
  const dry = new DryDatabase({ ...loginOf(new URL(database.url)), schema: name }, limits, createLogger("test", { level: "silent" }));
  const call: HostCall = {
    op: "db.query",
    text: "",
    bytes: new Uint8Array(),
    run: { fetches: 0, abort: new AbortController(), streams: new Set(), dry: null },
    streamKey: String,
    remainingMs: 120_000,
  };
  return { query: (sql: string) => dry.query(call, { sql }), close: () => dry.close() };
}

test("a dry run that waits for what the open one of another runtime holds is refused by name in PostgreSQL's own time, and served once that has ended", async () => {
  const [first, second, third] = [openDryRun(), openDryRun(), openDryRun()];
  let isOver = false;
  try {
    await first.query("insert into notes (text) values ('of the first')");
    const refused = expect(second.query("select 1"))
      .rejects.toMatchObject({ name: "SqlError", code: "DRY_RUN_BUSY" })
      .finally(() => {
        isOver = true;
      });
    const working = (async () => {
      while (!isOver) {
        await first.query("select 1"); // it must not stand idle, however long the second one takes to begin
        await delay(100);
      }
    })();
    await Promise.all([refused, working]);
    expect((await first.query("select text from notes")).rows).toEqual([{ text: "of the first" }]);
    await first.close();
    expect((await third.query("select text from notes")).rows).toEqual([]);
  } finally {
    isOver = true;
    await Promise.all([first, second, third].map((run) => run.close()));
  }
});
