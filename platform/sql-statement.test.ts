import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import pg from "pg";
import { afterAll, expect, test } from "vitest";
import { createTestDatabase } from "../test/harness/database.ts";
import { loadSqlGuard } from "./sql-guard.ts";
import { runStatement, type SqlResult } from "./sql-statement.ts";

await loadSqlGuard();
const database = await createTestDatabase();
const pool = new pg.Pool({ connectionString: database.url, max: 2 });
pool.on("error", () => undefined);
afterAll(async () => {
  await pool.end();
  await database.close();
});

const limits = { rows: 10_000, bytes: 8 * 1024 * 1024 };

async function run(sql: string, params: unknown[] = [], caps = limits): Promise<SqlResult> {
  const client = await pool.connect();
  try {
    return await runStatement(client, sql, params, caps);
  } finally {
    client.release();
  }
}

/** The one value of a one-value result. */
const value = async (sql: string, params: unknown[] = []): Promise<unknown> => Object.values((await run(sql, params)).rows[0] ?? {})[0];

test.each([
  ["null::int", null],
  ["true", true],
  ["1::int2", 1],
  ["'-2147483648'::int4", -2147483648],
  ["9007199254740991::int8", 9007199254740991],
  ["9007199254740992::int8", "9007199254740992"],
  ["'-9223372036854775808'::int8", "-9223372036854775808"],
  ["1.5::float4", 1.5],
  ["0.1::float8", 0.1],
  ["'NaN'::float8", "NaN"],
  ["'-Infinity'::float8", "-Infinity"],
  ["1.10::numeric", "1.10"],
  ["'NaN'::numeric", "NaN"],
  ["'a'::varchar", "a"],
  ["'0197e1b4-0000-7000-8000-000000000000'::uuid", "0197e1b4-0000-7000-8000-000000000000"],
  [`'{"a":[1,null]}'::jsonb`, { a: [1, null] }],
  ["'null'::json", null],
  ["'2026-01-02'::date", "2026-01-02"],
  ["'2026-01-02 03:04:05'::timestamp", "2026-01-02 03:04:05"],
  ["'1 day'::interval", "1 day"],
  ["array[1,2]", "{1,2}"],
  ["'\\xfbff00'::bytea", "-_8A"],
])("%s is read as %j", async (sql, expected) => {
  expect(await value(`select ${sql} as v`)).toEqual(expected);
});

test("timestamptz comes back as text", async () => {
  expect(await value("select '2026-01-02T03:04:05Z'::timestamptz as v")).toMatch(/^2026-01-02 \d\d:04:05/);
});

test.each([
  ["$1::int4", 5, 5],
  ["$1::int8", "9223372036854775807", "9223372036854775807"],
  ["$1::text", 5, "5"],
  ["$1::text", true, "true"],
  ["$1::bool", true, true],
  ["$1::float8", 0.5, 0.5],
  ["$1::jsonb", "text", "text"],
  ["$1::jsonb", [1, "a"], [1, "a"]],
  ["$1::jsonb", { a: 1 }, { a: 1 }],
  ["$1::jsonb", 5, 5],
  ["$1::text::numeric", "1.230", "1.230"],
  ["$1::int[]", [1, 2, null], "{1,2,NULL}"],
  ["$1::text[]", ['a"b', "c\\d", "e,f"], '{"a\\"b","c\\\\d","e,f"}'],
  ["$1::bytea", { $bytes: "+/8A" }, "-_8A"],
  ["$1::text", null, null],
])("a parameter %s of %j arrives as %j", async (sql, parameter, expected) => {
  expect(await value(`select ${sql} as v`, [parameter])).toEqual(expected);
});

test.each([
  ["select $1::int4", [1.5], /expects an integer/],
  ["select $1::int2", [40_000], /does not fit/],
  ["select $1::int4", [true], /boolean/],
  ["select $1::int4", ["abc"], /invalid input syntax/],
  ["select $1::text", ["a\0b"], /NUL/],
  ["select $1::int4, $2::int4 as b", [1], /2 parameters, but 1/],
  ["select 1", [1], /0 parameters, but 1/],
  ["select nowhere", [], /does not exist/],
])("%s with %j is refused with its reason, and the connection works on", async (sql, params, message) => {
  await expect(run(sql, params)).rejects.toMatchObject({ code: "INVALID_SQL", message: expect.stringMatching(message) });
  expect(await value("select 1 as one")).toBe(1);
});

test("any JSON value survives a jsonb column, any text a text column, any safe integer an int8 one", async () => {
  await run("create table kept (j jsonb, t text, n int8)");
  await fc.assert(
    fc.asyncProperty(
      fc
        .jsonValue()
        .filter(
          (item) => !JSON.stringify(item).includes("\\u0000") && JSON.stringify(item) === JSON.stringify(JSON.parse(JSON.stringify(item))),
        ),
      fc.string({ unit: "grapheme" }).filter((text) => !text.includes("\0")),
      fc.maxSafeInteger(),
      async (json, text, number) => {
        const { rows } = await run("insert into kept values ($1, $2, $3) returning *", [json, text, number]);
        // jsonb has no negative zero.
        expect({ ...rows[0] }).toEqual({ j: JSON.parse(JSON.stringify(json)), t: text, n: Object.is(number, -0) ? 0 : number });
      },
    ),
    { numRuns: 60 },
  );
});

test("duplicate column names are refused before anything is changed", async () => {
  await run("create table twice (a int)");
  await expect(run("insert into twice values (1) returning a, a")).rejects.toMatchObject({ code: "DUPLICATE_COLUMN_NAMES" });
  expect(await value("select count(*)::int as n from twice")).toBe(0);
});

test("results are capped by rows and by bytes, also within one row, and the pool works on", async () => {
  await expect(run("select generate_series(1, 10001) as n")).rejects.toMatchObject({ code: "RESULT_TOO_LARGE" });
  expect((await run("select generate_series(1, 10000) as n")).row_count).toBe(10_000);
  await expect(run("select repeat('x', 1000) as t from generate_series(1, 9000)")).rejects.toMatchObject({ code: "RESULT_TOO_LARGE" });
  await expect(run("select repeat('x', 200000000) as t")).rejects.toMatchObject({ code: "RESULT_TOO_LARGE" });
  expect(await value("select 1 as one")).toBe(1);
});

test("row_count tells what a change touched; a column may have any name", async () => {
  await run("create table counted (a int)");
  expect(await run("insert into counted select generate_series(1, 3)")).toEqual({ rows: [], row_count: 3 });
  expect((await run("update counted set a = 0 where a > 1")).row_count).toBe(2);
  expect((await run("create index on counted (a)")).row_count).toBe(0);
  expect(JSON.stringify((await run(`select 1 as "__proto__", 2 as "constructor"`)).rows)).toBe('[{"__proto__":1,"constructor":2}]');
});

test("a table that changes between two uses of a text is read as it is", async () => {
  await run("create table changing (a int)");
  await run("insert into changing values ($1)", [1]);
  await run("alter table changing alter column a type jsonb using to_jsonb(a)");
  await run("insert into changing values ($1)", [2]);
  expect((await run("select a from changing order by a")).rows.map((row) => row.a)).toEqual([1, 2]);
});

test("PostgreSQL's own words come with SQLSTATE and place", async () => {
  await run("create table once_only (a int primary key)");
  await run("insert into once_only values (1)");
  await expect(run("insert into once_only values (1)")).rejects.toMatchObject({
    code: "INVALID_SQL",
    details: { sqlstate: "23505", constraint: "once_only_pkey" },
  });
  await expect(run("select missing from once_only")).rejects.toMatchObject({ details: { sqlstate: "42703", position: 8 } });
});

test("long statements leave nothing behind: thousands of them are not remembered", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const heldMb = (): number => {
    collect();
    return process.memoryUsage().heapUsed / 1_048_576;
  };
  await run("select 1");
  const before = heldMb();
  for (let index = 0; index < 150; index++) await run(`select ${index} -- ${"x".repeat(200_000)}`);
  expect(heldMb() - before).toBeLessThan(12); // 30 MB of text
});
