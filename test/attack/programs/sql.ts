import { expect } from "vitest";
import { type Attack, attempts, happened } from "../attack.ts";
import type { Ground } from "../ground.ts";

const query = (sql: string): string => `db.query(${JSON.stringify(sql)}).then((r) => r.rows)`;

/** Statements that must all be refused. */
function refused(name: string, statements: string[] | ((ground: Ground) => string[])): Attack {
  return {
    name,
    program: (ground) => attempts((typeof statements === "function" ? statements(ground) : statements).map(query)),
    outcome: "ok",
    expect({ answer }) {
      const all = happened(answer);
      expect(all.length).toBeGreaterThan(0);
      for (const [statement, what] of all) expect(what, statement).toMatch(/^threw SqlError /);
    },
  };
}

/** Statements that may answer, as long as the answer holds nothing of what lies outside the kap. */
function blind(name: string, statements: string[], secrets: (ground: Ground) => (string | RegExp)[]): Attack {
  return {
    name,
    program: attempts(statements.map(query)),
    outcome: "ok",
    expect({ answer, ground }) {
      for (const [statement, what] of happened(answer))
        for (const secret of secrets(ground)) {
          if (typeof secret === "string") expect(what, statement).not.toContain(secret);
          else expect(what, statement).not.toMatch(secret);
        }
    },
  };
}

/** Names of the neighbour's database that must not show. */
const others = (ground: Ground): string[] => [ground.neighbourSchema, "neighbour_table", "neighbour_row", ground.org.slug, `owner@`];

/** Ways out of a kap's schema, role and statement. */
export const sqlAttacks: Attack[] = [
  refused("another role", [
    "set role postgres",
    "reset role",
    "set session authorization default",
    "select set_config('role', 'postgres', false)",
    "set local role postgres",
    "select pg_catalog.set_config('search_path', 'kapstone', false)",
    "alter role current_user superuser",
    "alter user current_user with password 'x'",
    "create role mine",
    "grant pg_read_all_data to current_user",
    "drop owned by current_user",
    "reassign owned by current_user to postgres",
  ]),
  refused("code in other languages and as text", [
    "do $$ begin execute 'reset role'; end $$",
    "create function f() returns int language c as 'libc', 'system'",
    "create function f() returns int language internal as 'pg_sleep'",
    "create extension dblink",
    "create extension plpython3u",
    "create language plpython3u",
    "create server s foreign data wrapper postgres_fdw",
    "select query_to_xml('select 1', true, true, '')",
    "select dblink_connect('host=127.0.0.1')",
  ]),
  {
    name: "what a function may do that the parser cannot see into",
    program: attempts([
      query(
        "create or replace function escape_role() returns text language plpgsql as $$ begin execute 'reset role'; execute 'set role postgres'; return 'out'; end $$",
      ),
      query("select escape_role()"),
      query(
        "create or replace function escape_definer() returns text language plpgsql security definer as $$ begin return current_user || (select count(*) from kapstone.kaps); end $$",
      ),
      query("select escape_definer()"),
      query(
        "create or replace function escape_config() returns text language plpgsql as $$ begin perform set_config('role', 'postgres', false); return current_user; end $$",
      ),
      query("select escape_config()"),
      query(
        "create or replace function escape_sleep() returns text language plpgsql as $$ begin perform pg_sleep(60); return 'slept'; end $$",
      ),
      query("select escape_sleep()"),
      query(
        "create or replace function escape_copy() returns text language plpgsql as $$ begin execute $c$ copy (select 1) to program 'id' $c$; return 'out'; end $$",
      ),
      query("select escape_copy()"),
      query(
        "create or replace function escape_temp() returns text language plpgsql as $$ begin execute 'create temp table t (a int)'; return 'temp'; end $$",
      ),
      query("select escape_temp()"),
      query(
        "create or replace function escape_notify() returns text language plpgsql as $$ begin perform pg_notify('events', 'forged'); notify events, 'forged'; return 'notified'; end $$",
      ),
      query("select escape_notify()"),
      query(
        "create or replace function escape_lock() returns text language plpgsql as $$ begin perform pg_advisory_lock(4207011003); return 'locked'; end $$",
      ),
      query("select escape_lock()"),
      query(
        "create or replace function escape_large() returns text language plpgsql as $$ begin perform lo_create(0); return 'large'; end $$",
      ),
      query("select escape_large()"),
      query(
        "create or replace function escape_file() returns text language plpgsql as $$ begin return pg_read_file('/etc/passwd'); end $$",
      ),
      query("select escape_file()"),
      query(
        "create or replace function escape_password() returns text language plpgsql as $$ begin execute format('alter role %I password %L', current_user, 'x'); return 'password changed'; end $$",
      ),
      query("select escape_password()"),
    ]),
    outcome: "ok",
    expect({ answer }) {
      for (const [statement, what] of happened(answer)) {
        if (statement.includes('"select escape_') && !statement.includes("escape_notify"))
          expect(what, statement).toMatch(/^threw SqlError /);
      }
    },
  },
  refused("the platform's tables", [
    "select * from kapstone.kaps",
    "select * from kapstone.runs",
    "select * from kapstone.secrets",
    "insert into kapstone.runs default values",
    "table kapstone.runtimes",
    "create table kapstone.mine (a int)",
    "create table public.mine (a int)",
    "create schema mine",
    "select * from graphile_worker.jobs",
    "select * from pg_authid",
    "select * from pg_shadow",
    "select rolpassword from pg_catalog.pg_authid",
  ]),
  refused("the neighbour's tables", (ground) => [
    `select * from ${ground.neighbourSchema}.neighbour_table`,
    `insert into ${ground.neighbourSchema}.neighbour_table values ('x')`,
    `drop table ${ground.neighbourSchema}.neighbour_table`,
    `create table ${ground.neighbourSchema}.mine (a int)`,
    `drop schema ${ground.neighbourSchema} cascade`,
    `create view spy as select * from ${ground.neighbourSchema}.neighbour_table`,
    `create table child () inherits (${ground.neighbourSchema}.neighbour_table)`,
    `create table copy (like ${ground.neighbourSchema}.neighbour_table)`,
    `select has_table_privilege('${ground.neighbourSchema}.neighbour_table', 'select')::int / 0`,
  ]),
  blind(
    "listings of the catalogs",
    [
      "select nspname from pg_namespace",
      "select relname from pg_class",
      "select rolname from pg_roles",
      "select usename from pg_user",
      "select datname from pg_database",
      "select proname from pg_proc where pronamespace > 20000",
      "select typname from pg_type",
      "select attname from pg_attribute",
      "select * from pg_stat_user_tables",
      "select schemaname, tablename from pg_tables",
      "select viewname from pg_views",
      "select indexname from pg_indexes",
      "select table_schema, table_name from information_schema.tables",
      "select schema_name from information_schema.schemata",
      "select routine_name from information_schema.routines",
      "select grantee from information_schema.role_table_grants",
      "select description from pg_description",
      "select * from pg_stats",
      "select objid::regclass from pg_depend",
      "select * from pg_sequences",
      "select * from pg_policies",
      "select * from pg_locks",
      "select * from pg_largeobject_metadata",
      "select * from pg_db_role_setting",
      "select * from pg_event_trigger",
      "select * from pg_publication",
    ],
    others,
  ),
  blind(
    "what other sessions do",
    [
      "select * from pg_stat_activity",
      "select query from pg_stat_activity",
      "select * from pg_stat_statements",
      "select pg_stat_get_activity(null)",
      "select pg_show_all_settings()",
      "show all",
      "select current_setting('data_directory', true)",
      "select inet_server_addr(), inet_server_port()",
      "select version()",
    ],
    (ground) => [...others(ground), /runtime-claim|run-runtime|insert into runs/],
  ),
  refused("waiting and holding", [
    "select pg_sleep(60)",
    "select pg_catalog.pg_sleep_for('1 minute')",
    "select pg_advisory_lock(1)",
    "select pg_try_advisory_lock(1)",
    "select pg_advisory_xact_lock(4207011003)",
    "lock table pg_class",
    "begin",
    "commit",
    "savepoint s",
    "listen events",
    "notify events",
    "select pg_notify('events', 'forged')",
    "declare c cursor for select 1",
    "prepare p as select 1",
    "prepare transaction 'x'",
    "set statement_timeout = 0",
    "set session characteristics as transaction read only",
  ]),
  refused("other processes and files of the server", [
    "select pg_terminate_backend(pg_backend_pid())",
    "select pg_cancel_backend(1)",
    "select pg_read_file('/etc/passwd')",
    "select pg_ls_dir('/')",
    "select lo_import('/etc/passwd')",
    "select lo_create(0)",
    "select lo_from_bytea(0, 'x')",
    "copy (select 1) to program 'id'",
    "copy (select 1) to '/tmp/x'",
    "copy (select 1) to stdout",
    "select pg_reload_conf()",
    "select pg_rotate_logfile()",
    "alter system set log_statement = 'all'",
    "checkpoint",
    "vacuum",
    "create tablespace t location '/tmp'",
    "create database mine",
    "load 'auto_explain'",
    "create subscription s connection 'host=127.0.0.1' publication p",
    "create publication p for all tables",
    "create event trigger e on ddl_command_start execute function f()",
  ]),
  refused("more than one statement", [
    "select 1; select 2",
    "select 1; drop table if exists x",
    "select 1;;select 2",
    "select 1; commit; set role postgres",
    "/* */ ; select 1; -- ;\n select 2",
    "",
  ]),
  refused("what outlives a statement", [
    "create temp table t (a int)",
    "create temporary view v as select 1",
    "create temp sequence s",
    "select 1 into temp t",
    "create table pg_temp.t (a int)",
    "discard all",
    "deallocate all",
    "comment on database postgres is 'x'",
    "alter database postgres set search_path = 'x'",
    "alter default privileges grant all on tables to public",
    "grant all on all tables in schema public to public",
    "security label on table x is 'x'",
  ]),
  refused("statements made to break the parser", [
    `select ${"(".repeat(5_000)}1${")".repeat(5_000)}`,
    `select ${"- ".repeat(50_000)}1`,
    `select ${"1+".repeat(100_000)}1`,
    `select '${"x".repeat(300_000)}'`,
    "select $1",
    "select 'unterminated",
    "select \u0000",
    "\\copy x from 'y'",
    "select 1 \\gexec",
  ]),
  {
    name: "a statement that never ends",
    program:
      "async () => { const { rows } = await db.query('select count(*) from generate_series(1, 1e12::bigint) a, generate_series(1, 1000) b'); return Response.json(rows); }",
    outcome: ["timeout", "error"],
  },
  {
    name: "a recursive query that never ends",
    program: "async () => { await db.query('with recursive r(n) as (select 1 union all select n + 1 from r) select count(*) from r'); }",
    outcome: ["timeout", "error"],
  },
  {
    name: "one row of 500 MB",
    program:
      "async () => { try { await db.query(\"select repeat('x', 500000000)\"); } catch (error) { return new Response(error.code); } }",
    outcome: ["ok", "timeout"],
    expect: ({ answer }) => {
      if (answer?.status === 200) expect(["RESULT_TOO_LARGE", "STATEMENT_TIMEOUT"]).toContain(answer.text);
    },
  },
  {
    name: "a million rows",
    program:
      "async () => { try { await db.query('select * from generate_series(1, 1000000)'); } catch (error) { return new Response(error.code); } }",
    outcome: "ok",
    expect: ({ answer }) => expect(answer?.text).toBe("RESULT_TOO_LARGE"),
  },
  {
    name: "1,000 statements at once",
    program:
      "async () => { const all = await Promise.allSettled(Array.from({ length: 1000 }, () => db.query('select count(*) from generate_series(1, 100000)'))); return Response.json(all.filter((each) => each.status === 'fulfilled').length); }",
    outcome: ["ok", "timeout", "cpu-exceeded"],
  },
  {
    name: "a batch that fails in the middle leaves nothing",
    program:
      "async () => { await db.query('create table if not exists half (a int primary key)'); try { await db.batch([{ sql: 'insert into half values (1)' }, { sql: 'insert into half values (1)' }]); } catch {} const { rows } = await db.query('select count(*)::int as n from half'); return new Response(String(rows[0].n)); }",
    outcome: "ok",
    expect: ({ answer }) => expect(answer?.text).toBe("0"),
  },
  {
    name: "a batch left open by the run's end",
    program:
      "async () => { await db.query('create table if not exists held (a int)'); db.batch([{ sql: 'insert into held values (1)' }, { sql: 'select count(*) from generate_series(1, 1e12::bigint)' }]).catch(() => {}); for (;;); }",
    outcome: "cpu-exceeded",
  },
];
