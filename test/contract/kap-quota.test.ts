import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Answer } from "../harness/http.ts";
import { signUpOrg, type TestKap, type TestOrg } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";
import { until } from "../harness/wait.ts";

const limit = 2 * 1024 * 1024;
let platform: TestPlatform;
let org: TestOrg;
let kap: TestKap;
let data: string;

/** What does not compress: 300 rows of 1 KiB. */
const filling = `insert into notes (text) select (select string_agg(md5(random()::text || n || i), '') from generate_series(1, 32) as i) from generate_series(1, 300) as n`;

const program = `
import { db } from "kap";
const tried = async (action) => { try { return await action(); } catch (error) { return { message: error.message, code: error.code ?? null }; } };
export default async (request) => {
  const { sql, batch } = await request.json();
  return Response.json(await tried(() => batch ? db.batch(batch.map((sql) => ({ sql }))) : db.query(sql)));
};`;

beforeAll(async () => {
  platform = await startTestPlatform({ KAPSTONE_KAP_DATABASE_MB: "2", KAPSTONE_KAP_STORE_MB: "2" });
  org = await signUpOrg(platform);
  kap = await org.createKap(program);
  data = `/v1/orgs/${org.id}/kaps/${kap.id}`;
  for (const sql of [
    // Untouched by autovacuum, which adds maps of its own to a table's size whenever its minute comes.
    "create table notes (id serial primary key, text text) with (autovacuum_enabled = false)",
    "create function sneak() returns int language sql as $$ insert into notes (text) values ('sneaked') returning id $$",
    "create view sneaky as select sneak() as id",
  ])
    expect(await inProgram(sql)).not.toHaveProperty("code");
});
afterAll(() => platform?.close());

type Told = { rows?: Record<string, unknown>[]; row_count?: number; code?: string; message?: string };
const ask = async (body: object): Promise<Told> => (await kap.call({ method: "POST", body })).json<Told>();
const inProgram = (sql: string): Promise<Told> => ask({ sql });
const query = (sql: string): Promise<Answer> => org.call({ method: "POST", path: `${data}/db/query`, body: { sql } });
const codeOf = (answer: Answer): string =>
  `${answer.status} ${answer.status < 300 ? "" : answer.json<{ error: { code: string } }>().error.code}`;
const overHttp = (): Promise<unknown> =>
  until(async () => codeOf(await query("update notes set text = 'x' where false")) === "422 QUOTA_EXCEEDED");
const sizeOf = async (): Promise<number> => {
  const { rows } = await platform.database.postgres.knex.raw(
    "select coalesce(sum(pg_total_relation_size(c.oid)), 0)::float8 as bytes from pg_class c join kaps k on c.relnamespace = k.schema_name::regnamespace where k.id = ? and c.relkind in ('r', 'S')",
    [kap.id],
  );
  return rows[0].bytes;
};

test("a program fills its database up to its size and is then refused by name, with size, limit and what to do", async () => {
  const refused = await until(async () => {
    const told = await inProgram(filling);
    return told.code ? told : false;
  });
  expect(refused.code).toBe("QUOTA_EXCEEDED");
  expect(refused.message).toMatch(new RegExp(`holds \\d+ of ${limit} bytes: .*TRUNCATE.*VACUUM FULL`));
  expect(await sizeOf()).toBeGreaterThan(limit);
});

test.each([
  "insert into notes (text) values ('one more')",
  "update notes set text = 'other' where id = 1",
  "create table more (id int)",
  "create index on notes (text)",
  "select * into copied from notes",
  "with more as (insert into notes (text) values ('x') returning id) select * from more",
  "with more as (insert into notes (text) values ('x') returning id) delete from notes using more where notes.id = more.id",
  "select sneak()",
  "select id from sneaky",
  "explain analyze select sneak()",
  "select nextval('notes_id_seq')",
])("over its size a program is refused %s", async (sql) => {
  const before = await sizeOf();
  expect(await inProgram(sql)).toMatchObject({ code: "QUOTA_EXCEEDED" });
  expect(await ask({ batch: ["select 1 as one", sql] })).toMatchObject({ code: "QUOTA_EXCEEDED" });
  expect(await sizeOf()).toBe(before);
});

test("over its size it still reads, alone and in batches, and deletes", async () => {
  expect((await inProgram("select count(*)::int as n from notes")).rows?.[0]?.n).toBeGreaterThan(1_000);
  expect(await ask({ batch: ["select 1 as one", "select 2 as two"] })).toHaveLength(2);
  expect(await inProgram("delete from notes where id = 2")).toMatchObject({ row_count: 1 });
  expect(await ask({ batch: ["delete from notes where id = 3", "select 1 as one"] })).toMatchObject([{ row_count: 1 }, { row_count: 1 }]);
});

test("over its size the data routes refuse what grows and take what does not", async () => {
  await overHttp();
  const insert = await query("insert into notes (text) values ('x')");
  expect(codeOf(insert)).toBe("422 QUOTA_EXCEEDED");
  expect(insert.json<{ error: { details: unknown } }>().error.details).toEqual({ used_bytes: expect.any(Number), limit_bytes: limit });
  const rows = `${data}/db/tables/notes/rows`;
  expect(codeOf(await org.call({ method: "POST", path: rows, body: { text: "x" } }))).toBe("422 QUOTA_EXCEEDED");
  expect(codeOf(await org.call({ method: "PUT", path: `${rows}/1`, body: { text: "x" } }))).toBe("422 QUOTA_EXCEEDED");
  expect(codeOf(await query("select sneak()"))).toBe("422 QUOTA_EXCEEDED");
  expect((await query("select count(*) as n from notes")).status).toBe(200);
  expect((await org.call({ path: `${rows}/1` })).status).toBe(200);
  expect((await org.call({ method: "DELETE", path: `${rows}/4` })).status).toBe(200);
});

test("a dry run of a database that is over its size reads and writes nothing", async () => {
  const { triggers } = (await org.call({ path: `${data}/triggers` })).json<{ triggers: { id: string }[] }>();
  const told = async (sql: string): Promise<unknown> => {
    const answer = await org.call({
      method: "POST",
      path: `${data}/triggers/${triggers[0]?.id}/dry-run`,
      body: { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ sql }) },
    });
    return JSON.parse(answer.json<{ http: { body: string } }>().http.body);
  };
  expect(await told("insert into notes (text) values ('x')")).toMatchObject({ code: "QUOTA_EXCEEDED" });
  expect(await told("select sneak()")).toMatchObject({ code: "QUOTA_EXCEEDED" });
  expect(await told("select 1 as one")).toMatchObject({ rows: [{ one: 1 }] });
});

test("an archive with a database over the size is refused and makes no kap", async () => {
  // One statement that is let in because the database is still small, and makes it half as large again as it may be.
  const large = await org.createKap(program);
  for (const sql of [
    "create table notes (id serial primary key, text text)",
    filling.replace("generate_series(1, 300)", "generate_series(1, 3000)"),
  ])
    expect((await large.call({ method: "POST", body: { sql } })).json<Told>()).not.toHaveProperty("code");
  const archive = await org.call({ path: `/v1/orgs/${org.id}/kaps/${large.id}/export` });
  expect(archive.status).toBe(200);
  const kaps = async (): Promise<number> => (await org.call({ path: `/v1/orgs/${org.id}/kaps` })).json<{ kaps: unknown[] }>().kaps.length;
  const before = await kaps();
  const imported = await org.call({
    method: "POST",
    path: `/v1/orgs/${org.id}/kaps/import`,
    headers: { "content-type": "application/x-tar" },
    body: archive.bytes,
  });
  expect(codeOf(imported), imported.text).toBe("422 QUOTA_EXCEEDED");
  expect(await kaps()).toBe(before);
});

test("after a TRUNCATE the very next insert works, in the program and over HTTP; an import then notes its size", async () => {
  expect(await inProgram("truncate notes")).not.toHaveProperty("code");
  expect(await inProgram("insert into notes (text) values ('again')")).toMatchObject({ row_count: 1 });
  await until(async () => (await query("insert into notes (text) values ('again')")).status === 200);
  const archive = await org.call({ path: `${data}/export` });
  const imported = await org.call({
    method: "POST",
    path: `/v1/orgs/${org.id}/kaps/import`,
    headers: { "content-type": "application/x-tar" },
    body: archive.bytes,
  });
  expect(imported.status, imported.text).toBe(201);
  const id = imported.json<{ kap: { id: string } }>().kap.id;
  const { usage } = (await org.call({ path: `/v1/orgs/${org.id}/usage` })).json<{ usage: { kap_id: string; db_bytes: number }[] }>();
  expect(usage.find((day) => day.kap_id === id)?.db_bytes).toBeGreaterThan(0);
});

test("deleted rows give their space back with VACUUM FULL, from which on it works again", async () => {
  await until(async () => (await inProgram(filling)).code === "QUOTA_EXCEEDED");
  await overHttp();
  expect(await inProgram("delete from notes where id % 10 > 0")).not.toHaveProperty("code");
  expect(await inProgram(filling)).toMatchObject({ code: "QUOTA_EXCEEDED" });
  expect(await inProgram("vacuum full notes")).not.toHaveProperty("code");
  expect(await inProgram("insert into notes (text) values ('again')")).toMatchObject({ row_count: 1 });
  await until(async () => (await query("insert into notes (text) values ('again')")).status === 200);
});

describe("the file store", () => {
  /** A put that tells its body's length, or, chunked, does not; answers as `codeOf` does. */
  async function put(key: string, bytes: number, isChunked = false): Promise<string> {
    const path = `${data}/store/files/object?key=${key}`;
    if (!isChunked) return codeOf(await org.call({ method: "PUT", path, body: Buffer.alloc(bytes) }));
    const headers = { host: platform.host(org.slug), authorization: `Bearer ${org.session}`, "x-service-client": "tests" };
    const sent = request({ host: "127.0.0.1", port: platform.platform.port, method: "PUT", path, headers });
    sent.write(Buffer.alloc(bytes));
    sent.end();
    const [answer] = (await once(sent, "response")) as [IncomingMessage];
    const body = await text(answer);
    return `${answer.statusCode} ${answer.statusCode === 200 ? "" : JSON.parse(body).error.code}`;
  }
  const keys = async (): Promise<string[]> =>
    (await org.call({ path: `${data}/store/files` })).json<{ files: { key: string }[] }>().files.map(({ key }) => key);

  const refusal = "422 QUOTA_EXCEEDED";

  test("is filled to its size, by a body that tells its length and one that does not; one byte more is 422 QUOTA_EXCEEDED and leaves nothing", async () => {
    expect(await put("half", limit / 2)).toBe("200 ");
    for (const isChunked of [false, true]) expect(await put("more", limit / 2 + 1, isChunked)).toBe(refusal);
    expect(await keys()).toEqual(["half"]);
    expect(await put("other", limit / 2, true)).toBe("200 ");
    for (const isChunked of [false, true]) expect(await put("more", 1, isChunked)).toBe(refusal);
  });

  test("full, takes a file in place of one as large, and at once what a delete has made room for", async () => {
    expect(await put("half", limit / 2)).toBe("200 ");
    expect(await put("other", limit / 2, true)).toBe("200 ");
    expect(await put("half", limit / 2 + 1)).toBe(refusal);
    expect((await org.call({ method: "DELETE", path: `${data}/store/files/object?key=half` })).status).toBe(200);
    expect(await put("third", limit / 2)).toBe("200 ");
    expect(await keys()).toEqual(["other", "third"]);
  });
});
