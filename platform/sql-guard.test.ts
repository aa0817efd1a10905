import { beforeAll, expect, test } from "vitest";
import { checkStatement, loadSqlGuard, SqlRefusal } from "./sql-guard.ts";

beforeAll(() => loadSqlGuard());

function codeOf(sql: string): string {
  try {
    checkStatement(sql);
    return "ok";
  } catch (error) {
    if (error instanceof SqlRefusal) return error.code;
    throw error;
  }
}

test.each([
  "select 1",
  "select 1;",
  "  -- a comment\n select 1 ; -- another",
  "with gone as (delete from t returning *) select count(*) from gone",
  "insert into t(a) values ($1) on conflict do nothing returning a",
  "create table if not exists t(id int primary key, at timestamptz default now())",
  "alter table t add column b text",
  "create function f() returns int language sql as 'select 1'",
  "explain analyze select * from t",
  "select ';' as semicolon",
  "merge into t using s on t.id = s.id when matched then delete",
  "show timezone",
  "vacuum t",
  "vacuum (full, analyze) t",
  "analyze t",
])("allows %s", (sql) => {
  expect(codeOf(sql)).toBe("ok");
});

test.each([
  ["select 1; select 2", "MULTIPLE_STATEMENTS"],
  ["begin", "INVALID_SQL"],
  ["commit;", "INVALID_SQL"],
  ["savepoint a", "INVALID_SQL"],
  ["set role postgres", "INVALID_SQL"],
  ["reset role", "INVALID_SQL"],
  ["set local statement_timeout = 0", "INVALID_SQL"],
  ["select set_config('role', 'postgres', false)", "INVALID_SQL"],
  ["select PG_CATALOG.set_config('a.b', 'c', false)", "INVALID_SQL"],
  ["select * from (select pg_sleep(100)) as s", "INVALID_SQL"],
  ["select pg_advisory_lock(1)", "INVALID_SQL"],
  ["insert into t select pg_try_advisory_xact_lock(1)", "INVALID_SQL"],
  ["listen a", "INVALID_SQL"],
  ["notify a", "INVALID_SQL"],
  ["copy t to stdout", "INVALID_SQL"],
  ["copy t to program 'id'", "INVALID_SQL"],
  ["do $$ begin perform 1; end $$", "INVALID_SQL"],
  ["prepare p as select 1", "INVALID_SQL"],
  ["declare c cursor for select 1", "INVALID_SQL"],
  ["create temp table t(a int)", "INVALID_SQL"],
  ["create temporary view v as select 1", "INVALID_SQL"],
  ["select 1 into temp t", "INVALID_SQL"],
  ["create schema s", "INVALID_SQL"],
  ["grant select on t to public", "INVALID_SQL"],
  ["create role r", "INVALID_SQL"],
  ["explain analyze execute p", "INVALID_SQL"],
  ["lock table t", "INVALID_SQL"],
  ["vacuum", "INVALID_SQL"],
  ["vacuum (parallel 8) t", "INVALID_SQL"],
  ["analyze", "INVALID_SQL"],
  ["select lo_import('/etc/passwd')", "INVALID_SQL"],
  ["alter system set a = 1", "INVALID_SQL"],
  ["", "INVALID_SQL"],
  [";", "INVALID_SQL"],
  ["selec 1", "INVALID_SQL"],
  ["select '\0'", "INVALID_SQL"],
])("refuses %s", (sql, code) => {
  expect(codeOf(sql)).toBe(code);
});

test.each([
  ["select * from t where a in (select b from s)", "reads"],
  ["show timezone", "reads"],
  ["explain select * from t", "reads"],
  ["drop table t", "drops"],
  ["delete from t", "frees"],
  ["truncate t", "frees"],
  ["vacuum full t", "frees"],
  ["with gone as (delete from t returning *) select count(*) from gone", "frees"],
  ["with gone as (delete from t returning *) insert into s select * from gone", "grows"],
  ["with more as (insert into s values (1) returning a) delete from t using more", "grows"],
  ["with more as (update s set a = 1 returning a) select * from more", "grows"],
  ["select * into s from t", "grows"],
  ["explain analyze insert into t values (1)", "grows"],
  ["create table s as select 1", "grows"],
  ["merge into t using s on t.id = s.id when matched then delete", "grows"],
  ["call p()", "grows"],
  ["create function f() returns int language sql as 'select 1'", "grows"],
])("%s: the most it can do to the size is %s", (sql, effect) => {
  expect(checkStatement(sql)).toBe(effect);
});

test("a hostile text is refused and the parser works on", () => {
  expect(codeOf(`select ${"(".repeat(100_000)}1${")".repeat(100_000)}`)).toBe("INVALID_SQL");
  for (const text of [
    `select ${"1+".repeat(50_000)}1`,
    `select ${"not ".repeat(50_000)}true`,
    `select ${"case when true then ".repeat(10_000)}1${" end".repeat(10_000)}`,
    `select ${"- ".repeat(100_000)}1`,
  ])
    expect(["ok", "INVALID_SQL"]).toContain(codeOf(text));
  expect(codeOf("select 42")).toBe("ok");
  expect(codeOf("select 'x' as again")).toBe("ok");
});

test("a refusal names the fix", () => {
  expect(() => checkStatement("begin")).toThrow(/db\.batch/);
  expect(() => checkStatement("select 1; select 2")).toThrow(/2 statements.*db\.batch/);
});
