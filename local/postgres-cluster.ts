import { execFile } from "node:child_process";
import { access, chown, mkdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { keptSecret, writeSecret } from "./kept-secret.ts";
import type { PostgresBinaries } from "./postgres-binaries.ts";
import { giveFolder, type PostgresUser } from "./postgres-user.ts";
import { StartRefusal } from "./start-refusal.ts";

/** The login of the server itself, used to make the platform's own and by tests that look behind it. */
export const superuser = "postgres";

/** The files of one PostgreSQL server on disk. */
export interface PostgresCluster {
  /** PGDATA. */
  folder: string;
  superuserPassword: string;
}

const initdbTimeoutMs = 120_000;

/**
 * Makes the server's files in `{home}/cluster` on the first call, and finds them on every later one. `initdb` works beside and the result is
 * renamed, so that a start killed in the middle begins anew. Passwords only (SCRAM), checksums on, UTF-8 ordered by code point.
 */
export async function openCluster(home: string, binaries: PostgresBinaries, user: PostgresUser): Promise<PostgresCluster> {
  const folder = join(home, "cluster");
  const superuserPassword = await keptSecret(join(home, "superuser.password"));
  if (await exists(join(folder, "PG_VERSION"))) {
    await giveFolder(folder, user.owner);
    return { folder, superuserPassword };
  }
  const unfinished = join(home, "cluster.new");
  const passwordFile = join(home, "initdb.password");
  await rm(unfinished, { recursive: true, force: true });
  await mkdir(unfinished, { mode: 0o700 });
  await writeSecret(passwordFile, superuserPassword);
  try {
    if (user.spawnAs !== null) {
      for (const path of [unfinished, passwordFile]) await chown(path, user.owner.uid, user.owner.gid);
    }
    await initdb(unfinished, passwordFile, binaries, user);
  } finally {
    await rm(passwordFile, { force: true });
  }
  await rename(unfinished, folder);
  return { folder, superuserPassword };
}

async function initdb(folder: string, passwordFile: string, binaries: PostgresBinaries, user: PostgresUser): Promise<void> {
  const [command = binaries.initdb, ...args] = [
    ...user.prefix,
    binaries.initdb,
    `--pgdata=${folder}`,
    `--username=${superuser}`,
    `--pwfile=${passwordFile}`,
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
  ];
  try {
    await promisify(execFile)(command, args, {
      ...user.spawnAs,
      cwd: "/",
      timeout: initdbTimeoutMs,
      env: { PATH: process.env.PATH ?? "", LC_ALL: "C", TZ: "UTC" },
    });
  } catch (error) {
    const said = error instanceof Error && "stderr" in error ? String(error.stderr).trim().split("\n").at(-1) : String(error);
    throw new StartRefusal(`PostgreSQL cannot make its files in ${folder}: ${said}`);
  }
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
