import pg from "pg";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../test/harness/database.ts";
import { checkHardened, hardenDatabase } from "./harden-database.ts";
import { newId } from "./ids.ts";
import { dropKapDatabase, type KapDatabaseOptions, provisionKapDatabase } from "./kap-database.ts";

let database: TestDatabase;
const mine = optionsOf();
const other = optionsOf();
const open: pg.Client[] = [];

function optionsOf(): KapDatabaseOptions {
  const name = `kap_${newId().replaceAll("-", "")}`;
  return { schemaName: name, roleName: name, password: `secret-${newId()}`, databaseName: "", connectionLimit: 3 };
}

afterEach(() => Promise.all(open.splice(0).map((client) => client.end().catch(() => undefined))));

/** A session of a kap's role, as its runtime opens it; it ends with the test. */
async function login(options: KapDatabaseOptions): Promise<pg.Client> {
  const url = new URL(database.url);
  const client = new pg.Client({
    host: url.hostname,
    port: Number(url.port),
    database: options.databaseName,
    user: options.roleName,
    password: options.password,
  });
  client.on("error", () => undefined);
  open.push(client);
  await client.connect();
  return client;
}

beforeAll(async () => {
  database = await createTestDatabase();
  const databaseName = new URL(database.url).pathname.slice(1);
  mine.databaseName = databaseName;
  other.databaseName = databaseName;
  const admin = new pg.Client({ connectionString: database.superuserUrl });
  await admin.connect();
  await hardenDatabase(admin, { platformRole: new URL(database.url).username });
  await admin.end();
  for (const options of [mine, other]) await database.postgres.knex.transaction((trx) => provisionKapDatabase(trx, options));
});

afterAll(async () => {
  for (const options of [mine, other]) await dropKapDatabase(database.postgres.knex, options);
  await database.close();
});

test("a hardened database has nothing left open", async () => {
  // Other databases of the run's server are other tests'.
  const open = (await checkHardened(database.postgres.knex)).filter(
    (line) => (!/database (?!postgres|template1|test_)/.test(line) && !/database test_/.test(line)) || line.includes(mine.databaseName),
  );
  expect(open).toEqual([]);
});

test("a kap's login does DDL and DML in its own schema, found without a qualifier", async () => {
  const kap = await login(mine);
  await kap.query("create table notes (id serial primary key, text text not null)");
  await kap.query("create function twice(n int) returns int language sql as 'select n * 2'");
  await kap.query("create view shouts as select upper(text) as text from notes");
  await kap.query("insert into notes (text) values ('a')");
  expect((await kap.query("select twice(id) as n, (select text from shouts) as s from notes")).rows).toEqual([{ n: 2, s: "A" }]);
  const { rows } = await kap.query(
    "select table_schema, table_name from information_schema.tables where table_schema like 'kap\\_0%' order by 2",
  );
  expect(rows).toEqual([
    { table_schema: mine.schemaName, table_name: "notes" },
    { table_schema: mine.schemaName, table_name: "shouts" },
  ]);
});

test("its sessions start with their limits", async () => {
  const kap = await login(mine);
  const { rows } = await kap.query(
    "select current_setting('statement_timeout') st, current_setting('temp_file_limit') tf, current_setting('search_path') sp, current_setting('idle_in_transaction_session_timeout') it",
  );
  expect(rows).toEqual([{ st: "5s", tf: "2GB", sp: mine.schemaName, it: "10s" }]);
  await expect(kap.query("set temp_file_limit = -1")).rejects.toThrow(/permission denied/);
});

test("its connections are limited", async () => {
  const clients: pg.Client[] = [];
  const limited = { ...other, connectionLimit: 2 };
  await provisionKapDatabase(database.postgres.knex, limited);
  clients.push(await login(other), await login(other));
  await expect(login(other)).rejects.toThrow(/too many connections/);
  await Promise.all(clients.map((client) => client.end()));
});

test.each([
  ["another kap's rows", () => `select * from ${other.schemaName}.secrets`],
  ["making a table in another kap's schema", () => `create table ${other.schemaName}.t (id int)`],
  ["the platform's tables", () => "select * from kapstone.kaps"],
  ["the queue", () => "select * from kapstone_jobs.jobs"],
  ["a table in public", () => "create table public.t (id int)"],
  ["a temporary table", () => "create temp table t (id int)"],
  ["a schema of its own making", () => "create schema elsewhere"],
  ["dropping its schema", () => `drop schema ${mine.schemaName} cascade`],
  [
    "opening its schema to others",
    () =>
      `with x as (select 1) select 1; grant usage on schema ${mine.schemaName} to public; select has_schema_privilege('${other.roleName}', '${mine.schemaName}', 'usage')::int / 0`,
  ],
  ["becoming the platform", () => "set role kapstone"],
  ["becoming another kap", () => `set role ${other.roleName}`],
  ["becoming the group", () => `set role kapstone_kaps`],
  ["a role", () => "create role evil login superuser"],
  ["another kap's password", () => `alter role ${other.roleName} password 'x'`],
  ["a database", () => "create database evil"],
  ["an extension", () => "create extension plpython3u"],
  ["server programs", () => "copy (select 1) to program 'id'"],
  ["server files", () => "select pg_read_file('/etc/passwd')"],
  ["large objects", () => "select lo_create(0)"],
  ["notifications by function", () => "select pg_notify('kapstone_events', 'x')"],
  ["advisory locks", () => "select pg_advisory_lock(4207011001)"],
  ["advisory locks of transactions", () => "select pg_try_advisory_xact_lock(1)"],
  ["sleeping", () => "select pg_sleep(1)"],
  ["ending sessions", () => "select pg_terminate_backend(pg_backend_pid())"],
  ["settings by function", () => "select set_config('statement_timeout', '0', false)"],
  ["SQL as text", () => "select query_to_xml('select 1', true, true, '')"],
  ["the list of schemas", () => "select nspname from pg_namespace"],
  ["the list of roles", () => "select rolname from pg_roles"],
  ["the list of tables", () => "select relname from pg_class"],
  ["the list of tables, by view", () => "select tablename from pg_tables"],
  ["other sessions", () => "select usename from pg_stat_activity"],
  ["other sessions, by function", () => "select pg_stat_get_activity(null)"],
  ["event triggers", () => "create event trigger e on ddl_command_start execute function pg_catalog.event_trigger_in()"],
  ["a publication", () => "create publication p for all tables"],
  ["a subscription", () => "create subscription s connection 'x' publication p"],
  ["a foreign server", () => "create foreign data wrapper f"],
  ["an untrusted language", () => "create function f() returns int language c as 'libc', 'getpid'"],
])("a kap's login is refused %s", async (_what, sql) => {
  const them = await login(other);
  await them.query("create table if not exists secrets (v text)");
  await them.end();
  const kap = await login(mine);
  await expect(kap.query(sql())).rejects.toThrow(
    /permission denied|must be|division by zero|schema that was not specified|no schema|not allowed|superuser|only the owner/i,
  );
  await kap.end();
});

test("no listing of information_schema names another kap or the platform", async () => {
  const them = await login(other);
  await them.query(`create type mood as enum ('good'); create domain small as int check (value < 9); create sequence s;
    create table everything (id int primary key, m mood, n small, r int references everything);
    create view v as select * from everything;
    create function f() returns trigger language plpgsql as 'begin return null; end';
    create trigger t after insert on everything for each row execute function f()`);
  await them.query(`create function g(a int) returns int language sql as 'select 1'`);
  const admin = new pg.Client({ connectionString: database.superuserUrl });
  await admin.connect();
  const { rows: views } = await admin.query(
    "select relname as name from pg_class where relnamespace = 'information_schema'::regnamespace and relkind in ('v', 'r')",
  );
  await admin.end();
  expect(views.length).toBeGreaterThan(50);
  const kap = await login(mine);
  const telling: string[] = [];
  for (const { name } of views) {
    const result = await kap.query(`select * from information_schema.${name}`).catch((error: unknown) => {
      expect(String(error)).toMatch(/permission denied/);
      return { rows: [] };
    });
    const text = JSON.stringify(result.rows);
    if (text.includes(other.schemaName) || /schema":"kapstone/.test(text)) telling.push(name);
  }
  expect(telling).toEqual([]);
});

test("kap_catalog shows a kap its own things and PostgreSQL's, and nothing of another", async () => {
  const kap = await login(mine);
  const rows = async (sql: string): Promise<unknown[]> => (await kap.query(sql)).rows;
  expect(
    await rows("select relname from kap_catalog.pg_class where relname in ('notes', 'shouts', 'secrets', 'everything', 'kaps') order by 1"),
  ).toEqual([{ relname: "notes" }, { relname: "shouts" }]);
  expect(await rows("select nspname from kap_catalog.pg_namespace order by 1")).toEqual([
    { nspname: "information_schema" },
    { nspname: mine.schemaName },
    { nspname: "kap_catalog" },
    { nspname: "pg_catalog" },
  ]);
  expect(await rows("select typname from kap_catalog.pg_type where typname in ('mood', 'int4')")).toEqual([{ typname: "int4" }]);
  expect(
    await rows("select attname from kap_catalog.pg_attribute where attrelid = 'notes'::regclass and attnum > 0 order by attnum"),
  ).toEqual([{ attname: "id" }, { attname: "text" }]);
  // What is asked with a function that tells what it sees is told nothing of others either.
  await kap.query(
    "create function tell(n name) returns boolean language plpgsql cost 0.0001 as $$ begin raise notice '%', n; return true; end $$",
  );
  const told: string[] = [];
  kap.on("notice", (notice) => told.push(notice.message ?? ""));
  await kap.query("select count(*) from kap_catalog.pg_class where tell(relname)");
  expect(told).toContain("notes");
  expect(told).not.toContain("everything");
  const { rows: views } = await kap.query("select table_name from information_schema.views where table_schema = 'kap_catalog'");
  expect(views.length).toBeGreaterThan(20);
  for (const { table_name } of views) {
    expect([table_name, JSON.stringify(await rows(`select * from kap_catalog.${table_name}`))]).toEqual([
      table_name,
      expect.not.stringContaining(other.schemaName),
    ]);
  }
});

test("a kap's login cannot reach any other database of the server", async () => {
  const { rows } = await database.postgres.knex.raw("select datname from pg_database where datname in ('postgres', 'template1')");
  for (const { datname } of rows) await expect(login({ ...mine, databaseName: datname })).rejects.toThrow(/permission denied for database/);
});

test("the platform still works after hardening", async () => {
  const { knex } = database.postgres;
  await knex.raw("select pg_advisory_xact_lock(1), pg_notify('x', 'y'), set_config('work_mem', '8MB', true)");
  expect((await knex.raw("select count(*)::int as n from pg_class")).rows[0].n).toBeGreaterThan(100);
  expect((await knex.raw("select count(*)::int as n from pg_stat_activity")).rows[0].n).toBeGreaterThan(0);
});

test("provisioning is one with its transaction and safe to repeat; the password may change", async () => {
  const { knex } = database.postgres;
  const lost = { ...optionsOf(), databaseName: mine.databaseName };
  await expect(
    knex.transaction(async (trx) => {
      await provisionKapDatabase(trx, lost);
      throw new Error("the save failed");
    }),
  ).rejects.toThrow("the save failed");
  expect((await knex.raw("select from pg_roles where rolname = ?", [lost.roleName])).rows).toEqual([]);
  const changed = { ...mine, password: "another" };
  await provisionKapDatabase(knex, changed);
  await expect(login(mine)).rejects.toThrow(/password authentication failed/);
  expect((await (await login(changed)).query("select count(*)::int as n from notes")).rows).toEqual([{ n: 1 }]);
  await provisionKapDatabase(knex, mine);
});

test("many kaps are made at the same time", async () => {
  const { knex } = database.postgres;
  const many = Array.from({ length: 12 }, () => ({ ...optionsOf(), databaseName: mine.databaseName }));
  await Promise.all(many.map((options) => knex.transaction((trx) => provisionKapDatabase(trx, options))));
  await Promise.all(many.map((options) => dropKapDatabase(knex, options)));
  const { rows } = await knex.raw("select from pg_roles where rolname = any(?)", [many.map((options) => options.roleName)]);
  expect(rows).toEqual([]);
});

test("dropping takes everything the kap made, thousands of tables, its sessions and its default privileges", async () => {
  const { knex } = database.postgres;
  const doomed = { ...optionsOf(), databaseName: mine.databaseName };
  await provisionKapDatabase(knex, doomed);
  const kap = await login(doomed);
  await kap.query("alter default privileges grant select on tables to public");
  await kap.query("create type mood as enum ('good')");
  await kap.query("create table parts (id int, m mood) partition by list (id); create table part1 partition of parts for values in (1)");
  await kap.query("create materialized view mv as select 1 as one; create sequence s; create view v as select * from mv");
  for (let i = 0; i < 450; i++) await kap.query(`create table t${i} (id int)`);
  await kap.query("begin; lock table t1");
  await dropKapDatabase(knex, doomed);
  await expect(kap.query("select 1")).rejects.toThrow();
  await dropKapDatabase(knex, doomed);
  expect((await knex.raw("select from pg_namespace where nspname = ?", [doomed.schemaName])).rows).toEqual([]);
  expect((await knex.raw("select from pg_roles where rolname = ?", [doomed.roleName])).rows).toEqual([]);
});

test("what the kap made is dropped one by one: a cascade over thousands of functions or types would need more locks than the server has", async () => {
  const { knex } = database.postgres;
  const doomed = { ...optionsOf(), databaseName: mine.databaseName };
  await provisionKapDatabase(knex, doomed);
  const kap = await login(doomed);
  await kap.query("create function one() returns int language sql return 1; create procedure two(n text) language sql as 'select 1'");
  await kap.query(
    "create type three as enum ('a'); create type four as (a int); create domain five as three; create type six as range (subtype = int)",
  );
  await kap.query("create sequence seven; create table identity (id int generated always as identity, serial serial)");
  await kap.query(
    "create table nine (id int) partition by list (id); create table eight (id int); create view ten as select id from eight",
  );
  await kap.query(
    "alter table nine attach partition eight for values in (1); create function eleven(nine) returns int language sql return one()",
  );
  const dropped: string[] = [];
  const listener = ({ sql }: { sql: string }): void => void (sql.startsWith("drop ") && dropped.push(sql));
  knex.on("query", listener);
  try {
    await dropKapDatabase(knex, doomed);
  } finally {
    knex.off("query", listener);
  }
  const of = (what: string): number => dropped.findIndex((sql) => sql.includes(`.${what}`));
  const made = ["one()", "two(text)", "three", "four", "five", "six", "seven", "identity", "eight", "nine", "ten", "eleven("];
  expect(made.filter((what) => of(what) === -1)).toEqual([]);
  expect(of("ten")).toBeLessThan(of("eight"));
  expect(of("eight")).toBeLessThan(of("nine ")); // its partition, although it is older
});

test("names that could break out of a statement are refused", async () => {
  await expect(provisionKapDatabase(database.postgres.knex, { ...mine, roleName: 'x"; drop table kaps; --' })).rejects.toThrow(
    /cannot name/,
  );
});
