import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../test/harness/database.ts";
import { DatabaseQuota } from "./database-quota.ts";
import { newId } from "./ids.ts";
import { dropKapDatabase, type KapDatabaseOptions, provisionKapDatabase } from "./kap-database.ts";
import type { SizeEffect } from "./sql-guard.ts";

const name = `kap_${newId().replaceAll("-", "")}`;
const kap: KapDatabaseOptions = { schemaName: name, roleName: name, password: "secret", databaseName: "", connectionLimit: 5 };
let database: TestDatabase;
let client: pg.Client;
/** Of the kap's role too: the measures that follow statements use it whenever they come. */
let pool: pg.Pool;

beforeAll(async () => {
  database = await createTestDatabase();
  kap.databaseName = new URL(database.url).pathname.slice(1);
  await database.postgres.knex.transaction((trx) => provisionKapDatabase(trx, kap));
  const url = new URL(database.url);
  const login = { host: url.hostname, port: Number(url.port), database: kap.databaseName, user: name, password: kap.password };
  client = new pg.Client(login);
  pool = new pg.Pool({ ...login, max: 1 });
  await client.connect();
  await client.query("create table notes (id int, text text)");
});
afterAll(async () => {
  await pool.end();
  await client.end();
  await dropKapDatabase(database.postgres.knex, kap);
  await database.close();
});

const failures: unknown[] = [];
const open = async (limitBytes: number, leastCeilingBytes?: number): Promise<DatabaseQuota> => {
  const quota = new DatabaseQuota(name, limitBytes, (error) => failures.push(error), leastCeilingBytes);
  await quota.measure(client);
  return quota;
};
const fill = (rows: number): Promise<unknown> =>
  client.query("insert into notes select n, repeat('x', 500) from generate_series(1, $1) n", [rows]);
const verdicts = async (quota: DatabaseQuota): Promise<unknown> => {
  const effects: SizeEffect[] = ["reads", "drops", "frees", "grows"];
  const found: unknown[] = [];
  for (const effect of effects) found.push(await quota.admit(effect, client).catch((error: { code: string }) => error.code));
  return found;
};
const anything = [false, false, false, false];

test("below its size a database takes everything, over it what reads, drops and frees, far over it what reads and drops", async () => {
  await fill(200); // more than 100 KB
  expect(await verdicts(await open(10_000_000))).toEqual(anything);
  expect(await verdicts(await open(50_000))).toEqual([true, false, false, "QUOTA_EXCEEDED"]);
  expect(await verdicts(await open(20_000, 30_000))).toEqual([true, false, "QUOTA_EXCEEDED", "QUOTA_EXCEEDED"]);
});

test("a trigger that writes when rows are deleted gets a database no further than to the ceiling", async () => {
  await client.query("truncate notes");
  await client.query(`create function regrow() returns trigger language plpgsql as $$
    begin insert into notes select n, repeat('x', 500) from generate_series(1, 100) n; return null; end $$`);
  await client.query("create trigger regrow after delete on notes for each statement execute function regrow()");
  await fill(50);
  const quota = await open(20_000, 200_000);
  let deletes = 0;
  for (; deletes < 20; deletes++) {
    const isTaken = await quota.admit("frees", client).then(
      () => true,
      () => false,
    );
    if (!isTaken) break;
    await client.query("delete from notes");
    quota.ran("frees", pool);
  }
  expect(deletes).toBeGreaterThan(0);
  expect(deletes).toBeLessThan(20);
  await client.query("drop trigger regrow on notes");
});

test("what was freed counts with the next statement; a measure that fails leaves what was known, and a transaction it stands in", async () => {
  await client.query("truncate notes");
  await fill(200);
  const quota = await open(50_000);
  await client.query("truncate notes");
  quota.ran("frees", pool);
  expect(await verdicts(quota)).toEqual(anything);
  await fill(200);
  await client.query("begin");
  await expect((await open(50_000)).admitWithin("grows", client)).rejects.toMatchObject({ code: "QUOTA_EXCEEDED" });
  const within = new DatabaseQuota("no_schema_of_this_name", 50_000, (error) => failures.push(error));
  await within.admitWithin("grows", client);
  expect(failures).toHaveLength(1);
  await client.query("commit");
});
