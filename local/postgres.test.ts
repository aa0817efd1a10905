import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterEach, expect, test, vi } from "vitest";
import { createLogger } from "#platform/log.ts";
import { until } from "../test/harness/wait.ts";
import { type EmbeddedPostgres, startPostgres } from "./postgres.ts";
import { findPostgresBinaries } from "./postgres-binaries.ts";
import { spawnPostgres } from "./postgres-process.ts";
import { choosePostgresUser } from "./postgres-user.ts";

vi.setConfig({ testTimeout: 240_000 }); // a first start writes a whole cluster to the disk, and a killed server may need a minute to come back

const log = createLogger("test", { level: "silent" });
const homes: string[] = [];
const running: EmbeddedPostgres[] = [];

afterEach(async () => {
  await Promise.all(running.splice(0).map((server) => server.stop()));
  await Promise.all(homes.splice(0).map((home) => rm(home, { recursive: true, force: true })));
});

async function newHome(): Promise<string> {
  const home = await mkdtemp(join(tmpdir(), "kapstone-postgres-"));
  homes.push(home);
  return home;
}

async function start(home: string): Promise<EmbeddedPostgres> {
  const server = await startPostgres({ home, log });
  running.push(server);
  return server;
}

async function query(url: string, sql: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => undefined);
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}

const serverPid = async (home: string): Promise<number> =>
  Number((await readFile(join(home, "cluster/postmaster.pid"), "utf8")).split("\n")[0]);

test("the platform's login can make roles and is no superuser, commits reach the disk, and passwords are asked for and kept private", async () => {
  const home = await newHome();
  const { url } = await start(home);
  expect(await query(url, "select rolsuper, rolcreaterole from pg_roles where rolname = current_user")).toEqual([
    { rolsuper: false, rolcreaterole: true },
  ]);
  expect(
    await query(
      url,
      "select current_setting('fsync') as fsync, current_setting('data_checksums') as checksums, current_setting('listen_addresses') as hosts",
    ),
  ).toEqual([{ fsync: "on", checksums: "on", hosts: "127.0.0.1" }]);
  const wrong = new URL(url);
  wrong.password = "guess";
  await expect(query(wrong.href, "select 1")).rejects.toThrow(/password authentication failed/);
  for (const file of ["superuser.password", "kapstone.password"]) expect((await stat(join(home, file))).mode & 0o777).toBe(0o600);
});

test("a stopped server starts again with its rows, on its port, with its password", async () => {
  const home = await newHome();
  const first = await start(home);
  await query(first.url, "create table kept as select 42 as answer");
  await running.pop()?.stop();
  await expect(query(first.url, "select 1")).rejects.toThrow(/ECONNREFUSED/);
  const second = await start(home);
  expect(second.url).toBe(first.url);
  expect(await query(second.url, "select answer from kept")).toEqual([{ answer: 42 }]);
});

test("a server that is killed comes back by itself on the same address with everything it had acknowledged", async () => {
  const home = await newHome();
  const { url } = await start(home);
  await query(url, "create table kept as select 42 as answer");
  const killed = await serverPid(home);
  process.kill(killed, "SIGKILL");
  await until(async () => (await serverPid(home)) !== killed && (await query(url, "select 1")), { timeoutMs: 60_000 });
  expect(await query(url, "select answer from kept")).toEqual([{ answer: 42 }]);
});

test("a server that an earlier platform left running is ended, and a new one takes over its files", async () => {
  const home = await newHome();
  const { url, port } = await start(home);
  await query(url, "create table kept as select 42 as answer");
  await running.pop()?.stop();
  const binaries = await findPostgresBinaries();
  const user = choosePostgresUser(home, []);
  const leftover = await spawnPostgres(binaries, user, join(home, "cluster"), join(home, "leftover.log"), {
    port,
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
  });
  await until(() => query(url, "select 1"));
  const server = await start(home);
  await leftover.ended;
  expect(await query(server.url, "select answer from kept")).toEqual([{ answer: 42 }]);
});

test.runIf(process.platform === "linux")(
  "a postmaster.pid whose number belongs to another program by now does not keep the server from starting",
  async () => {
    const home = await newHome();
    await start(home);
    await running.pop()?.stop();
    await writeFile(join(home, "cluster/postmaster.pid"), `${process.pid}\n${join(home, "cluster")}\n1\n1\n\n127.0.0.1\n1 1\nready\n`);
    const server = await start(home);
    expect(await query(server.url, "select 1 as one")).toEqual([{ one: 1 }]);
  },
);
