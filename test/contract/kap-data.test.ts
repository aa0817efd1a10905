import { once } from "node:events";
import { existsSync } from "node:fs";
import { readdir, readlink } from "node:fs/promises";
import { connect } from "node:net";
import { Readable } from "node:stream";
import pg from "pg";
import { extract } from "tar-stream";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createTestDatabase } from "../harness/database.ts";
import { signUpOrg, type TestKap, type TestOrg } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";
import { until } from "../harness/wait.ts";

let platform: TestPlatform;
let org: TestOrg;
let other: TestOrg;
let kap: TestKap;
let base: string;

beforeAll(async () => {
  platform = await startTestPlatform();
  [org, other] = await Promise.all([signUpOrg(platform), signUpOrg(platform)]);
  kap = await org.createKap("export default () => new Response('ok')");
  base = `/v1/kaps/${kap.id}`;
});
afterAll(() => platform.close());

async function query(sql: string, params: unknown[] = []) {
  return org.call({ method: "POST", path: `${base}/db/query`, body: { sql, params } });
}
async function rows(sql: string, params: unknown[] = []) {
  const answer = await query(sql, params);
  if (answer.status !== 200) throw new Error(`${sql} answered ${answer.status} ${answer.text}`);
  return answer.json<{ rows: Record<string, unknown>[] }>().rows;
}

describe("POST /db/query", () => {
  test.each([
    ["bool", true, true],
    ["int2", -32768, -32768],
    ["int4", 2147483647, 2147483647],
    ["int8", 9007199254740991, 9007199254740991],
    ["int8", "9223372036854775807", "9223372036854775807"],
    ["float4", 1.5, 1.5],
    ["float8", 0.1, 0.1],
    ["float8", "NaN", "NaN"],
    ["text", "ü😀'\"\\", "ü😀'\"\\"],
    ["varchar", "v", "v"],
    ["name", "n", "n"],
    ["uuid", "00000000-0000-7000-8000-000000000000", "00000000-0000-7000-8000-000000000000"],
    ["json", { a: [1, null] }, { a: [1, null] }],
    ["jsonb", ["x", { y: "z" }], ["x", { y: "z" }]],
    ["jsonb", "a string", "a string"],
    ["text", null, null],
    ["text::numeric", "12345678901234567890.5", "12345678901234567890.5"],
    ["text::date", "2024-02-29", "2024-02-29"],
    ["text::timestamp", "2024-02-29 01:02:03.5", "2024-02-29 01:02:03.5"],
    ["text::int[]", "{1,NULL,3}", "{1,NULL,3}"],
    ["text::interval", "1 day", "1 day"],
  ])("a parameter of type %s goes in as %j and comes back as %j", async (type, given, expected) => {
    expect(await rows(`select $1::${type} as v`, [given])).toEqual([{ v: expected }]);
  });

  test("bytea comes back as base64url", async () => {
    expect(await rows("select '\\xfffefd'::bytea as v")).toEqual([{ v: "__79" }]);
  });

  test.each([
    ["select 1 as a, 2 as a", "DUPLICATE_COLUMN_NAMES"],
    ["select 1; select 2", "MULTIPLE_STATEMENTS"],
    ["begin", "INVALID_SQL"],
    ["set role postgres", "INVALID_SQL"],
    ["do $$ begin end $$", "INVALID_SQL"],
    ["copy x from stdin", "INVALID_SQL"],
    ["listen x", "INVALID_SQL"],
    ["selec 1", "INVALID_SQL"],
    ["select * from nowhere", "INVALID_SQL"],
    ["select 1/0 as v", "INVALID_SQL"],
    ["select g from generate_series(1, 10001) g", "RESULT_TOO_LARGE"],
    ["select repeat('x', 9000000) as v", "RESULT_TOO_LARGE"],
  ])("%s is refused as 422 %s", async (sql, code) => {
    const answer = await query(sql);
    expect([answer.status, answer.json<{ error: { code: string } }>().error.code]).toEqual([422, code]);
  });

  test("one trailing semicolon is one statement; 10,000 rows are a complete result; an INSERT counts its rows", async () => {
    expect(await rows("select 1 as one;")).toEqual([{ one: 1 }]);
    expect((await query("select g from generate_series(1, 10000) g")).json()).toMatchObject({ row_count: 10000 });
    await query("create table counted (a int)");
    expect((await query("insert into counted select generate_series(1, 3)")).json()).toEqual({ rows: [], row_count: 3 });
  });

  test("a statement longer than five seconds is refused as STATEMENT_TIMEOUT, and the next one works", async () => {
    const slow = await query("select count(*) as n from generate_series(1, 10000000000) g");
    expect([slow.status, slow.json<{ error: { code: string } }>().error.code]).toEqual([422, "STATEMENT_TIMEOUT"]);
    expect(await rows("select 1 as one")).toEqual([{ one: 1 }]);
  });
});

describe("tables and rows", () => {
  beforeAll(async () => {
    await query(`create table "It""em" (id serial primary key, name text not null default 'new', size int, meta jsonb)`);
    await query("create table keyless (a int)");
    await query("create table pairs (a int, b int, primary key (a, b))");
  });
  const path = (key = "") => `${base}/db/tables/${encodeURIComponent('It"em')}/rows${key}`;

  test("tables are listed with their columns", async () => {
    const { tables } = (await org.call({ path: `${base}/db/tables` })).json<{ tables: { name: string; columns: unknown[] }[] }>();
    expect(tables.find((table) => table.name === 'It"em')?.columns[1]).toEqual({
      name: "name",
      type: "text",
      nullable: false,
      default: "'new'::text",
    });
  });

  test("a row is inserted with defaults for what is omitted, read by key, changed with an explicit null, deleted, and then 404", async () => {
    const inserted = await org.call({ method: "POST", path: path(), body: { size: 3, meta: { a: 1 } } });
    expect([inserted.status, inserted.json()]).toEqual([201, { rows: [{ id: 1, name: "new", size: 3, meta: { a: 1 } }], row_count: 1 }]);
    expect((await org.call({ method: "POST", path: path(), body: {} })).json()).toMatchObject({ rows: [{ id: 2, name: "new" }] });
    expect((await org.call({ path: path("/1") })).json()).toEqual({ id: 1, name: "new", size: 3, meta: { a: 1 } });
    const changed = await org.call({ method: "PUT", path: path("/1"), body: { size: null, name: "x" } });
    expect([changed.status, changed.json()]).toEqual([200, { id: 1, name: "x", size: null, meta: { a: 1 } }]);
    expect((await org.call({ path: path() })).json()).toMatchObject({ row_count: 2 });
    expect((await org.call({ method: "DELETE", path: path("/1") })).json()).toMatchObject({ id: 1, name: "x" });
    for (const method of ["GET", "DELETE"]) expect((await org.call({ method, path: path("/1") })).status).toBe(404);
    expect((await org.call({ method: "PUT", path: path("/1"), body: { size: 1 } })).status).toBe(404);
  });

  test("a key that is not of the key's type names no row; no single-column key is 409; no such table 404; no column 422", async () => {
    expect((await org.call({ path: path("/abc") })).status).toBe(404);
    expect((await org.call({ path: path("/99999999999999999999") })).status).toBe(404);
    for (const table of ["keyless", "pairs"]) {
      const answer = await org.call({ path: `${base}/db/tables/${table}/rows/1` });
      expect([answer.status, answer.json<{ error: { code: string } }>().error.code]).toEqual([409, "NO_SINGLE_COLUMN_KEY"]);
    }
    expect((await org.call({ path: `${base}/db/tables/nowhere/rows` })).status).toBe(404);
    expect((await org.call({ method: "PUT", path: path("/2"), body: {} })).status).toBe(422);
    expect((await org.call({ method: "POST", path: path(), body: { nope: 1 } })).status).toBe(422);
    expect((await org.call({ method: "POST", path: path(), body: [1] })).status).toBe(422);
  });

  test("a value that is not of its column's type is 422 naming it, also beside a key that is there; beside one that is not, 404", async () => {
    const { id } = (await rows(`insert into "It""em" (size) values (1) returning id`))[0] as { id: number };
    for (const body of [{ size: "many" }, { size: "99999999999" }]) {
      const answer = await org.call({ method: "PUT", path: path(`/${id}`), body });
      expect(answer.status, answer.text).toBe(422);
      expect(answer.json<{ error: { message: string } }>().error.message).toContain(body.size);
    }
    for (const key of ["/0", "/abc"]) expect((await org.call({ method: "PUT", path: path(key), body: { size: "many" } })).status).toBe(404);
    await org.call({ method: "DELETE", path: path(`/${id}`) });
  });

  test("a primary key of one column is one although its index includes others", async () => {
    await query("create table covered (id int, size int, primary key (id) include (size))");
    await query("insert into covered values (1, 2)");
    const covered = `${base}/db/tables/covered/rows/1`;
    expect((await org.call({ path: covered })).json()).toEqual({ id: 1, size: 2 });
    expect((await org.call({ method: "PUT", path: covered, body: { size: 3 } })).json()).toEqual({ id: 1, size: 3 });
  });

  test("names that try to leave the statement stay names", async () => {
    expect((await org.call({ path: `${base}/db/tables/${encodeURIComponent('pairs"; drop table pairs; --')}/rows` })).status).toBe(404);
    expect((await org.call({ method: "POST", path: path(), body: { 'name") values (1); drop table pairs; --': 1 } })).status).toBe(422);
    expect((await org.call({ path: `${base}/db/tables/pairs/rows` })).status).toBe(200);
  });

  test("the export is an attachment that loads into an empty database, views and their kin included", async () => {
    await query('create view named as select name from "It""em"');
    await query("create materialized view counted_pairs as select count(*) as n from pairs");
    await query("create function twice(x int) returns int language sql immutable return x * 2");
    await query("create index on pairs (twice(a))");
    const dump = await org.call({ path: `${base}/db/export` });
    expect([dump.status, dump.headers["content-type"], dump.headers["content-disposition"]]).toEqual([
      200,
      "application/sql",
      'attachment; filename="store.sql"',
    ]);
    const empty = await createTestDatabase();
    const client = new pg.Client({ connectionString: empty.url, options: "-c search_path=public" });
    await client.connect();
    await client.query("create schema loaded");
    await client.query("set search_path = loaded");
    await client.query(dump.text);
    expect((await client.query("select name from named")).rows).toEqual([{ name: "new" }]);
    expect((await client.query("select n from counted_pairs")).rows).toEqual([{ n: "0" }]);
    await client.end();
    await empty.close();
  });
});

describe("the file store", () => {
  const object = (key: string) => `${base}/store/files/object?key=${encodeURIComponent(key)}`;

  test.each(["plain.txt", "a/b/c", "a//b", "ü/😀 x", "%2F", "with space", "x".repeat(1024)])(
    "%s is stored, listed, read with its type, and deleted",
    async (key) => {
      const put = await org.call({
        method: "PUT",
        path: object(key),
        headers: { "content-type": "text/x-test; charset=utf-8" },
        body: Buffer.from([0, 255, 10]),
      });
      expect([put.status, put.json()]).toEqual([200, { stored: true, key }]);
      const got = await org.call({ path: object(key) });
      expect([got.status, got.headers["content-type"], [...got.bytes]]).toEqual([200, "text/x-test; charset=utf-8", [0, 255, 10]]);
      expect(got.headers["content-disposition"]).toMatch(/^attachment; /);
      const { files } = (await org.call({ path: `${base}/store/files` })).json<{ files: { key: string; size: number; etag: string }[] }>();
      expect(files.find((file) => file.key === key)).toMatchObject({ size: 3, etag: expect.any(String) });
      expect((await org.call({ method: "DELETE", path: object(key) })).json()).toEqual({ deleted: true, key });
      expect((await org.call({ path: object(key) })).status).toBe(404);
      expect((await org.call({ method: "DELETE", path: object(key) })).status).toBe(404);
    },
  );

  test.each(["", "/a", "a/../b", "..", "a\0b", "x".repeat(1025)])("the key %j is refused with 422", async (key) => {
    expect((await org.call({ method: "PUT", path: object(key), headers: { "content-type": "text/plain" }, body: "x" })).status).toBe(422);
  });

  test("30 MiB are stored, one byte more is 413 and leaves nothing", async () => {
    const most = 30 * 1024 * 1024;
    const put = (key: string, size: number) =>
      org.call({ method: "PUT", path: object(key), headers: { "content-type": "application/octet-stream" }, body: Buffer.alloc(size, 7) });
    expect((await put("most", most)).status).toBe(200);
    expect((await put("more", most + 1)).status).toBe(413);
    expect((await org.call({ path: object("more") })).status).toBe(404);
    const range = await org.call({ path: object("most"), headers: { range: "bytes=-2" } });
    expect([range.status, range.headers["content-range"], range.bytes.length]).toEqual([206, `bytes ${most - 2}-${most - 1}/${most}`, 2]);
    expect((await org.call({ path: object("most"), headers: { range: `bytes=${most}-` } })).status).toBe(416);
    await org.call({ method: "DELETE", path: object("most") });
  });

  test("a key that is no UTF-8 is 400, and not the key of another", async () => {
    for (const key of ["%ff", "a%c3", "%ed%a0%80"]) {
      const answer = await org.call({ method: "PUT", path: `${base}/store/files/object?key=${key}`, body: "x" });
      expect([answer.status, answer.json<{ error: { code: string } }>().error.code]).toEqual([400, "BAD_REQUEST"]);
    }
  });

  test.each(["content-length: 41943040", "transfer-encoding: chunked"])(
    "who sends too much without pausing reads the 413, %s",
    async (framing) => {
      const socket = connect(platform.platform.port, "127.0.0.1");
      const broken = new Promise<string>((resolve) => socket.once("error", (error) => resolve(error.message)));
      const answered = new Promise<string>((resolve) => socket.once("data", (data) => resolve(data.toString())));
      const fields = ["PUT", object("much"), "HTTP/1.1\r\nhost:", platform.host(org.slug), "\r\nauthorization: Bearer", org.session];
      socket.write(`${fields.join(" ")}\r\nx-service-client: tests\r\n${framing}\r\n\r\n`);
      const part = Buffer.concat([Buffer.from("100000\r\n"), Buffer.alloc(1024 * 1024), Buffer.from("\r\n")]);
      // The answer is read after all has been written, as by a client that does one after the other.
      socket.pause();
      for (let sent = 0; sent < 39 && !socket.destroyed; sent++) {
        // A process that stands still, the server's, has not read the rest away meanwhile.
        if (sent === 36) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_500);
        if (!socket.write(part)) await Promise.race([once(socket, "drain"), broken]);
      }
      socket.resume();
      expect(await Promise.race([answered, broken])).toMatch(/^HTTP\/1\.1 413 /);
      socket.destroy();
    },
  );

  test("all files come as one tar that any tar reads, in order, with their bytes", async () => {
    const keys = Array.from({ length: 30 }, (_, n) => `tar/${String(n).padStart(2, "0")}-${"é".repeat(n * 4)}`);
    for (const key of keys)
      await org.call({ method: "PUT", path: object(key), headers: { "content-type": "text/plain" }, body: key.repeat(50) });
    const answer = await org.call({ path: `${base}/store/files/export` });
    expect([answer.status, answer.headers["content-type"], answer.headers["content-disposition"]]).toEqual([
      200,
      "application/x-tar",
      'attachment; filename="files.tar"',
    ]);
    const entries: [string, string][] = [];
    const reader = extract();
    reader.on("entry", async (header, stream, next) => {
      const chunks: Buffer[] = [];
      for await (const chunk of stream) chunks.push(chunk as Buffer);
      entries.push([header.name, Buffer.concat(chunks).toString("utf8")]);
      next();
    });
    Readable.from([answer.bytes]).pipe(reader);
    await once(reader, "finish");
    expect(entries).toEqual(keys.map((key) => [key, key.repeat(50)]));
  });
});

describe.skipIf(!existsSync("/proc/self/fd"))("files of the store that are open", () => {
  const opened = async (): Promise<string[]> => {
    const links = (await readdir("/proc/self/fd")).map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => ""));
    return (await Promise.all(links)).filter((path) => path.includes(`/kap-${kap.id.replaceAll("-", "")}/`));
  };
  test("are closed again when nobody reads the tar they are for: a HEAD, and a download that its client leaves", async () => {
    const path = `/v1/kaps/${kap.id}/store/files`;
    for (const name of ["one", "two"])
      await org.call({ method: "PUT", path: `${path}/object?key=open/${name}`, body: Buffer.alloc(8 * 1024 * 1024) });
    for (let n = 0; n < 20; n++) expect((await org.call({ method: "HEAD", path: `${path}/export` })).status).toBe(200);
    for (const download of [`${path}/export`, `/v1/kaps/${kap.id}/export`, `${path}/object?key=open/one`]) {
      const socket = connect(platform.platform.port, "127.0.0.1");
      socket.write(`GET ${download} HTTP/1.1\r\nhost: ${platform.host(org.slug)}\r\nauthorization: Bearer ${org.session}\r\n\r\n`);
      await once(socket, "data");
      socket.destroy();
    }
    await until(async () => (await opened()).length === 0, { what: "the files being closed" });
  });
});

describe("who may", () => {
  test("both bases answer; another organisation's kap is 404 on both; no credential is 401", async () => {
    for (const path of [
      `/v1/kaps/${kap.id}/db/tables`,
      `/v1/kaps/${kap.slug}/db/tables`,
      `/v1/orgs/${org.id}/kaps/${kap.id}/db/tables`,
      `/v1/orgs/${org.slug}/kaps/${kap.slug}/db/tables`,
    ]) {
      expect((await org.call({ path })).status, path).toBe(200);
      expect((await other.call({ path, host: platform.host("api") })).status, path).toBe(404);
      expect((await platform.http.call({ path, host: platform.host(org.slug) })).status, path).toBe(401);
    }
  });

  test("a store token reaches what its scopes name, on the /v1/kaps base of its own kap only, and nothing after it is revoked", async () => {
    const mint = async (scopes: string[]) =>
      (
        await org.call({
          method: "POST",
          path: `/v1/orgs/${org.id}/kaps/${kap.id}/store-tokens`,
          body: { name: "t", scopes, expires_in_hours: 1 },
        })
      ).json<Record<string, { id: string; token: string } & string>>();
    const reader = await mint(["db.read"]);
    const token = (reader.token ?? reader.store_token?.token) as string;
    const id = (reader.id ?? reader.store_token?.id) as string;
    expect(token).toMatch(/^kst1_/);
    const as = (path: string, extra: object = {}) =>
      platform.http.call({
        host: platform.host("api"),
        path,
        headers: { authorization: `Bearer ${token}`, "x-service-client": "t" },
        ...extra,
      });
    expect((await as(`/v1/kaps/${kap.id}/db/tables`)).status).toBe(200);
    expect((await as(`/v1/kaps/${kap.id}/store/files`)).status).toBe(403);
    expect((await as(`/v1/kaps/${kap.id}/db/query`, { method: "POST", body: { sql: "select 1 as one" } })).json()).toMatchObject({
      row_count: 1,
    });
    expect((await as(`/v1/kaps/${kap.id}/db/query`, { method: "POST", body: { sql: "create table sneaky (a int)" } })).status).toBe(422);
    expect((await as(`/v1/orgs/${org.id}/kaps/${kap.id}/db/tables`)).status).toBe(401);
    expect((await as(`/v1/kaps/${kap.id}`)).status).toBeGreaterThanOrEqual(401);
    const second = await org.createKap("export default () => new Response('other')");
    expect((await as(`/v1/kaps/${second.id}/db/tables`)).status).toBe(404);
    expect((await org.call({ method: "DELETE", path: `/v1/orgs/${org.id}/kaps/${kap.id}/store-tokens/${id}` })).status).toBeLessThan(300);
    expect((await as(`/v1/kaps/${kap.id}/db/tables`)).status).toBe(401);
  });
});
