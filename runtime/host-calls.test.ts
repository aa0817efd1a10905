import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import pg from "pg";
import { afterAll, expect, test } from "vitest";
import { createTestDatabase } from "../test/harness/database.ts";
import { defaultLimits, TestRuntime, until } from "./fixture/test-runtime.ts";

const database = await createTestDatabase();
const role = `kap_role_${Math.random().toString(36).slice(2)}`;
const admin = new pg.Client({ connectionString: database.superuserUrl });
await admin.connect();
await admin.query(`create role ${role} login password 'kap-password'`);
await admin.query(`create schema ${role} authorization ${role}`);
await admin.query(`alter role ${role} set search_path = ${role}`);

const upstream = createServer((request, response) => {
  const path = request.url ?? "/";
  if (path === "/redirect-home") response.writeHead(302, { location: `http://localhost:${port + 1}/` }).end();
  else if (path === "/redirect") response.writeHead(302, { location: "/hello" }).end();
  else if (path === "/huge") {
    const piece = Buffer.alloc(64 * 1024);
    const write = (): void => {
      while (!response.destroyed && response.write(piece));
    };
    response.on("drain", write);
    write();
  } else if (path === "/slow") setTimeout(() => response.end("slow"), 5_000);
  else {
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => response.end(`${request.method} ${path} ${Buffer.concat(pieces).toString("utf8")}`));
  }
});
await new Promise<void>((resolve) => upstream.listen(0, "127.0.0.1", resolve));
const { port } = upstream.address() as AddressInfo;

const runtime = await TestRuntime.start({ KAPSTONE_RUNTIME_EGRESS_ALLOW: `127.0.0.1:${port},localhost:${port}` });
afterAll(async () => {
  await runtime.close();
  upstream.closeAllConnections();
  upstream.close();
  await admin.query(`drop schema ${role} cascade`);
  await admin.query(`drop role ${role}`);
  await admin.end();
  await database.close();
});

const { hostname, port: databasePort, pathname } = new URL(database.url);
const program = `
  const { db, store, secrets } = globalThis[Symbol.for("kap")];
  const tried = async (action) => { try { return await action(); } catch (error) { return { name: error.name, message: error.message, code: error.code }; } };
  const fetched = (url, init) => tried(async () => { const r = await fetch(url, init); return { status: r.status, text: await r.text(), url: r.url, redirected: r.redirected }; });
  exports.default = {
    async fetch(request) {
      const { op, args } = await request.json();
      const ops = { query: (...a) => db.query(...a), batch: (list) => db.batch(list), fetched, secret: (name) => secrets.get(name),
        put: (key, text) => store.put(key, text, { contentType: "text/plain" }), get: async (key) => { const r = await store.get(key); return r && { type: r.headers.get("content-type"), size: (await r.arrayBuffer()).byteLength }; },
        list: (options) => store.list(options), remove: (key) => store.delete(key),
        manyFetches: async (url) => { for (let i = 0; i < 5; i++) await (await fetch(url)).text(); },
        upload: (url) => fetched(url, { method: "POST", duplex: "half", body: new ReadableStream({ start(c) { c.enqueue(new TextEncoder().encode("in ")); c.enqueue(new TextEncoder().encode("parts")); c.close(); } }) }),
      };
      return Response.json((await tried(() => ops[op](...args))) ?? null);
    },
  };
`;

/** Claims the runtime, or brings it a revision that changes nothing but how long a statement may take. */
const claimWith = ({ db_statement_ms }: { db_statement_ms: number }): Promise<void> =>
  runtime.claim(program, {
    secrets: { NAME: "a value" },
    database: {
      host: hostname,
      port: Number(databasePort),
      database: pathname.slice(1),
      user: role,
      password: "kap-password",
      schema: role,
    },
    limits: { ...defaultLimits, db_statement_ms, fetches: 4, fetch_bytes: 300_000, request_wall_ms: 8_000 },
  });
/** Above every pause of a busy machine; the other ends what would never end. */
const [longStatements, shortStatements] = [{ db_statement_ms: 8_000 }, { db_statement_ms: 500 }];
await claimWith(longStatements);

async function ask(op: string, ...args: unknown[]): Promise<unknown> {
  const reply = await runtime.call("/", { method: "POST", body: JSON.stringify({ op, args }) });
  expect(reply.status).toBe(200);
  return JSON.parse(reply.text);
}

test("a program has its own tables, as its own role", async () => {
  expect(await ask("query", "select current_user as me")).toEqual({ rows: [{ me: role }], row_count: 1 });
  await ask("query", "create table hits(path text, n int8)");
  expect(await ask("query", "insert into hits values ($1, $2)", ["/a", 5])).toEqual({ rows: [], row_count: 1 });
  expect(await ask("query", "select * from hits")).toEqual({ rows: [{ path: "/a", n: 5 }], row_count: 1 });
});

test("a batch is one transaction", async () => {
  await ask("query", "create table one(a int primary key)");
  expect(await ask("batch", [{ sql: "insert into one values ($1)", params: [1] }, { sql: "select a from one" }])).toEqual([
    { rows: [], row_count: 1 },
    { rows: [{ a: 1 }], row_count: 1 },
  ]);
  expect(await ask("batch", [{ sql: "insert into one values (2)" }, { sql: "insert into one values (1)" }])).toMatchObject({
    code: "23505",
  });
  expect(await ask("query", "select count(*)::int as n from one")).toMatchObject({ rows: [{ n: 1 }] });
});

test("the walls of SQL name what they refuse", async () => {
  expect(await ask("query", "begin")).toMatchObject({ code: "INVALID_SQL" });
  expect(await ask("query", "select 1; select 2")).toMatchObject({ code: "MULTIPLE_STATEMENTS" });
  expect(await ask("query", "select generate_series(1, 10001) as n")).toMatchObject({ code: "RESULT_TOO_LARGE" });
  expect(await ask("query", "select 1 as a, 2 as a")).toMatchObject({ code: "DUPLICATE_COLUMN_NAMES" });
  await claimWith(shortStatements);
  expect(await ask("query", "select count(*) from generate_series(1, 1000000000)")).toMatchObject({ code: "STATEMENT_TIMEOUT" });
  await claimWith(longStatements);
  expect(await ask("query", "select 1 as again")).toMatchObject({ rows: [{ again: 1 }] });
});

test("a run that ends takes its statement with it", async () => {
  const runId = "22222222-2222-4222-8222-222222222222";
  const body = JSON.stringify({ op: "query", args: ["select count(*) as abandoned from generate_series(1, 1000000000)"] });
  await claimWith(shortStatements);
  await runtime.call("/", { method: "POST", body, headers: { "x-kapstone-run": runId } });
  await claimWith(longStatements);
  await runtime.ended(runId);
  await until(async () => {
    const { rows } = await admin.query(`select 1 from pg_stat_activity where usename = $1 and state = 'active'`, [role]);
    return rows.length === 0;
  }, "the statement to end");
});

test("fetch reaches what the deployment allows, follows redirects there, and sends bodies", async () => {
  const base = `http://127.0.0.1:${port}`;
  expect(await ask("fetched", `${base}/hello`)).toEqual({ status: 200, text: "GET /hello ", url: `${base}/hello`, redirected: false });
  expect(await ask("fetched", `${base}/redirect`)).toMatchObject({ text: "GET /hello ", url: `${base}/hello`, redirected: true });
  expect(await ask("fetched", `${base}/post`, { method: "POST", body: "full" })).toMatchObject({ text: "POST /post full" });
  expect(await ask("upload", `${base}/post`)).toMatchObject({ text: "POST /post in parts" });
  expect(await ask("fetched", `http://localhost:${port}/hello`)).toMatchObject({ status: 200 });
});

test("a redirect to a place that is not allowed fails, as does a request to it", async () => {
  expect(await ask("fetched", `http://127.0.0.1:${port}/redirect-home`)).toMatchObject({
    name: "TypeError",
    message: expect.stringMatching(/refused/),
  });
  for (const url of [
    "http://127.0.0.1:1/",
    "http://2130706433:1/",
    "http://0x7f.1:1/",
    "http://[::ffff:127.0.0.1]:1/",
    "http://169.254.169.254/latest",
    "http://localhost:1/",
    "http://10.0.0.1/",
    "file:///etc/passwd",
  ])
    expect(await ask("fetched", url)).toMatchObject({ name: "TypeError" });
});

test("fetches are counted and capped", async () => {
  const base = `http://127.0.0.1:${port}`;
  expect(await ask("manyFetches", `${base}/hello`)).toMatchObject({ name: "TypeError", message: expect.stringMatching(/4 times/) });
  expect(await ask("fetched", `${base}/huge`)).toMatchObject({ name: "TypeError", message: expect.stringMatching(/300000 bytes/) });
});

test("files are stored, listed, read and removed through the api", async () => {
  expect(await ask("get", "a/b.txt")).toBeNull();
  await ask("put", "a/b.txt", "content");
  await ask("put", "a/large", "x".repeat(200_000));
  expect(await ask("get", "a/b.txt")).toEqual({ type: "text/plain", size: 7 });
  expect(await ask("get", "a/large")).toMatchObject({ size: 200_000 });
  expect(await ask("list", { prefix: "a/" })).toMatchObject({
    objects: [
      { key: "a/b.txt", size: 7 },
      { key: "a/large", size: 200_000 },
    ],
  });
  await ask("remove", "a/b.txt");
  expect(await ask("get", "a/b.txt")).toBeNull();
  expect(await ask("secret", "NAME")).toBe("a value");
});

test("time and bytes of host calls are on the run's account", async () => {
  const reply = await runtime.call("/", {
    method: "POST",
    body: JSON.stringify({ op: "query", args: ["select pg_size_pretty(1::int8) as s"] }),
  });
  const end = await runtime.ended(reply.runId);
  expect(end.db_ms).toBeGreaterThan(0);
  expect(end.phases.host_ms).toBeGreaterThanOrEqual(end.db_ms);
  const fetching = await runtime.call("/", {
    method: "POST",
    body: JSON.stringify({ op: "fetched", args: [`http://127.0.0.1:${port}/hello`] }),
  });
  expect((await runtime.ended(fetching.runId)).egress_bytes).toBeGreaterThan(0);
});
