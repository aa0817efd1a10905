import { chown, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { type AddressInfo, connect, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import type { DatabaseTls } from "#platform/assignment.ts";
import { databaseTls } from "#platform/database-tls.ts";
import { createLogger } from "#platform/log.ts";
import { type EmbeddedPostgres, startPostgres } from "../../local/postgres.ts";
import { testCertificate as another } from "../../mail-ingest/test-certificate.ts";
import { defaultLimits } from "../../runtime/fixture/test-runtime.ts";
import { KapDatabase, type KapLogin } from "../../runtime/supervisor/kap-database.ts";
import { signUpOrg } from "../harness/org.ts";
import { startTestPlatform } from "../harness/platform.ts";
import { until } from "../harness/wait.ts";

vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 }); // a server of its own, whose files are written first

/** Of 127.0.0.1 from 2020 to 2120 and its own CA, for tests alone: its key is public. */
const certificate = `-----BEGIN CERTIFICATE-----
MIIBWzCCAQCgAwIBAgIBATAKBggqhkjOPQQDAjATMREwDwYDVQQDDAhkYXRhYmFz
ZTAgFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowEzERMA8GA1UEAwwI
ZGF0YWJhc2UwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARKzYw3bHVL5tK32BZU
RixfAjhHUxThR9RJpZbEwkOsTqSXyD3Xy/VcsP19kD57iH/X1O1YAe4GU0CJzQ/i
h2K0o0MwQTAPBgNVHRMBAf8EBTADAQH/MA8GA1UdEQQIMAaHBH8AAAEwHQYDVR0O
BBYEFItBTsXNaJ8WpZS+iTWktp+/WWS7MAoGCCqGSM49BAMCA0kAMEYCIQDnDdyC
S/hBhAytGBJyR1B3BHaRVxJz5qJiGepLRUywvQIhAN3IrfNHFUXNvprmypaHFrDh
+yggfokvpwaIwG9z0S3u
-----END CERTIFICATE-----
`;
const key = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgSXLmJKWfG6WRvV5a
19zD2Xg0teNoCVO2swR/odzskoihRANCAARKzYw3bHVL5tK32BZURixfAjhHUxTh
R9RJpZbEwkOsTqSXyD3Xy/VcsP19kD57iH/X1O1YAe4GU0CJzQ/ih2K0
-----END PRIVATE KEY-----
`;

const home = await mkdtemp(join(tmpdir(), "kapstone-tls-"));
const caFile = join(home, "ca.crt");
await writeFile(caFile, certificate);

let server: EmbeddedPostgres;
/** A network between kaps and the server that notes how each connection begins. */
let wire: Server;
const beginnings: number[] = [];

/** A server that admits nobody without TLS. */
beforeAll(async () => {
  server = await startPostgres({ home, isDurable: false, log: createLogger("test", { level: "warn" }) });
  const folder = join(home, "cluster");
  const { uid, gid } = await stat(folder);
  for (const [name, content] of Object.entries({ "server.crt": certificate, "server.key": key })) {
    await writeFile(join(folder, name), content, { mode: 0o600 });
    await chown(join(folder, name), uid, gid);
  }
  await writeFile(join(folder, "pg_hba.conf"), "hostssl all all 127.0.0.1/32 scram-sha-256\n");
  const admin = new pg.Client({ connectionString: server.superuserUrl });
  await admin.connect();
  await admin.query("alter system set ssl = on");
  await admin.query("select pg_reload_conf()");
  await admin.end();
  await until(() => refusal(server.url).then((message) => message?.includes("no encryption")), { timeoutMs: 60_000 });
  wire = createServer((near) => {
    const far = connect(server.port, "127.0.0.1");
    near.once("data", (bytes: Buffer) => beginnings.push(bytes.readInt32BE(4)));
    near.pipe(far).pipe(near);
    near.on("error", () => far.destroy());
    far.on("error", () => near.destroy());
  });
  await new Promise<void>((resolve) => wire.listen(0, "127.0.0.1", resolve));
});
afterAll(async () => {
  wire?.close();
  await server?.stop();
  await rm(home, { recursive: true, force: true });
});

/** Why a URL cannot be connected to. */
async function refusal(url: string): Promise<string | undefined> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => undefined);
  const refused = await client.connect().then(
    () => undefined,
    (error: Error) => error.message,
  );
  await client.end();
  return refused;
}

test.each<[string, DatabaseTls | undefined]>([
  ["", undefined],
  ["sslmode=disable", undefined],
  ["sslmode=prefer", { verify: "full" }],
  ["sslmode=require", { verify: "full" }],
  ["sslmode=verify-ca", { verify: "full" }],
  ["sslmode=verify-full", { verify: "full" }],
  ["ssl=true", { verify: "full" }],
  ["sslmode=no-verify", { verify: "none" }],
  ["sslmode=verify-full&sslrootcert=CA", { verify: "full", ca: certificate }],
  ["uselibpqcompat=true&sslmode=require", { verify: "none" }],
  ["uselibpqcompat=true&sslmode=verify-ca&sslrootcert=CA", { verify: "ca", ca: certificate }],
])("kaps are told of '%s' what pg 8 makes of it", (query, tls) => {
  const url = `postgres://kapstone:secret@db.example:5432/kapstone?${query.replace("=CA", `=${caFile}`)}`;
  expect(databaseTls(url)).toEqual(tls);
});

test("a file of a CA that is not there is said", () => {
  expect(() => databaseTls("postgres://db.example/kapstone?sslmode=verify-full&sslrootcert=/not/there.crt")).toThrow(/ENOENT.*not.there/);
});

test("a whole platform works on a server that admits TLS only: its own tables, a kap's statements, batches and dry runs, and its data over HTTP", async () => {
  const platform = await startTestPlatform({
    KAPSTONE_DATABASE_URL: `${server.url}?sslmode=verify-full&sslrootcert=${caFile}`,
    KAPSTONE_KAP_DATABASE_HOST: `127.0.0.1:${(wire.address() as AddressInfo).port}`,
  });
  try {
    const org = await signUpOrg(platform);
    const kap = await org.createKap(`
      import { db } from "kap";
      export default async () => {
        const [, , { rows }] = await db.batch([
          { sql: "create table if not exists notes (text text)" }, { sql: "insert into notes values ('one')" }, { sql: "select text from notes" }]);
        return Response.json([rows, (await db.query("select count(*)::int as n from notes")).rows]);
      };`);
    const answer = await kap.call();
    expect(answer.text).toBe('[[{"text":"one"}],[{"n":1}]]');
    const base = `/v1/orgs/${org.id}/kaps/${kap.id}`;
    const { triggers } = (await org.call({ path: `${base}/triggers` })).json<{ triggers: { id: string }[] }>();
    const dry = await org.call({ method: "POST", path: `${base}/triggers/${triggers[0]?.id}/dry-run` });
    expect(dry.json<{ http: { body: string } }>().http.body).toBe('[[{"text":"one"},{"text":"one"}],[{"n":2}]]');
    const read = await org.call({ method: "POST", path: `${base}/db/query`, body: { sql: "select text from notes" } });
    expect(read.json()).toMatchObject({ rows: [{ text: "one" }] });
  } finally {
    await platform.close();
  }
});

/** One statement of a kap, and what its runtime logs. */
async function ask(login: Partial<KapLogin>, sql: string, db_statement_ms = 60_000): Promise<{ answer: unknown; log: string }> {
  let log = "";
  const { username, password, pathname } = new URL(server.url);
  const place = { host: "127.0.0.1", port: server.port, database: pathname.slice(1), user: username, password, schema: "public" };
  const write = (line: string): void => {
    log += line;
  };
  const database = new KapDatabase({ ...place, ...login }, createLogger("test", { level: "info", destination: { write } }));
  const run = { fetches: 0, abort: new AbortController(), streams: new Set<string>(), dry: null };
  const call = { op: "db.query", text: JSON.stringify({ sql }), bytes: new Uint8Array(), run, streamKey: String, remainingMs: 60_000 };
  const answer = await database.call(call, { ...defaultLimits, db_statement_ms }).catch((error: unknown) => error);
  await database.close();
  return { answer, log };
}

const served = { text: expect.stringContaining('"n":1') };
const quiet = /^(?!.*could not be (?:used|cancelled))/s;
const unavailable = { name: "SqlError", code: "DATABASE_UNAVAILABLE" };

test.each<[string, Partial<KapLogin>, object, RegExp]>([
  ["of the CA and the name it should have", { tls: { verify: "full", ca: certificate } }, served, quiet],
  [
    "of another CA",
    { tls: { verify: "full", ca: another.cert } },
    unavailable,
    /DEPTH_ZERO_SELF_SIGNED_CERT.*the kap's database could not be used/,
  ],
  ["of no well-known CA", { tls: { verify: "full" } }, unavailable, /DEPTH_ZERO_SELF_SIGNED_CERT/],
  ["of another name", { tls: { verify: "full", ca: certificate }, host: "localhost" }, unavailable, /ERR_TLS_CERT_ALTNAME_INVALID/],
  ["of another name, where only its CA counts", { tls: { verify: "ca", ca: certificate }, host: "localhost" }, served, quiet],
  ["of whatever CA and name, where none counts", { tls: { verify: "none" }, host: "localhost" }, served, quiet],
])("a server with a certificate %s", async (_, login, told, logged) => {
  const { answer, log } = await ask(login, "select 1 as n");
  expect(answer).toMatchObject(told);
  expect(log).toMatch(logged);
});

test("a statement is cancelled on a connection that is encrypted too: nothing of a kap goes in plain text", async () => {
  const { port } = wire.address() as AddressInfo;
  const endless = "select count(*) from generate_series(1, 100000000000)";
  const { answer, log } = await ask({ port, tls: { verify: "full", ca: certificate } }, endless, 2_000);
  expect(answer).toMatchObject({ code: "STATEMENT_TIMEOUT" });
  expect(log).toMatch(quiet);
  expect(beginnings.length).toBeGreaterThanOrEqual(2);
  expect(new Set(beginnings)).toEqual(new Set([80_877_103])); // PostgreSQL protocol, "SSLRequest"
});
