import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { chown, lstat, readdir } from "node:fs/promises";
import { join } from "node:path";
import { StartRefusal } from "./start-refusal.ts";

/** As whom PostgreSQL runs: a prefix for its command line, or another user's ids for the spawn; `uid` and `gid` also own the data folder. */
export interface PostgresUser {
  prefix: string[];
  spawnAs: { uid: number; gid: number } | null;
  owner: { uid: number; gid: number };
}

const userNamespace = ["unshare", "--user", "--map-user=1000", "--"];
const systemUsers = ["postgres", "nobody"];

/**
 * PostgreSQL refuses to run as root. An ordinary user runs it as it is. For root there are two ways: a user namespace in which root has another
 * number (nothing on disk changes hands), and where the machine forbids that, a system user who then owns the data folder and must be able to enter it.
 * `folder` exists. Throws `StartRefusal` where none of them works.
 */
export function choosePostgresUser(folder: string, programs: string[]): PostgresUser {
  const uid = process.getuid?.() ?? 0;
  const gid = process.getgid?.() ?? 0;
  if (uid !== 0 || process.platform === "win32") return { prefix: [], spawnAs: null, owner: { uid, gid } };
  const [command, ...args] = userNamespace;
  if (command !== undefined && spawnSync(command, [...args, "true"], { timeout: 10_000 }).status === 0) {
    return { prefix: userNamespace, spawnAs: null, owner: { uid: 0, gid: 0 } };
  }
  return systemUser(folder, programs);
}

function systemUser(folder: string, programs: string[]): PostgresUser {
  for (const name of systemUsers) {
    const ids = idsOf(name);
    if (ids === null) continue;
    const closed = [folder, ...programs].find(
      (path) => spawnSync("test", ["-x", path], { ...ids, cwd: "/", timeout: 10_000 }).status !== 0,
    );
    if (closed === undefined) return { prefix: [], spawnAs: ids, owner: ids };
    throw new StartRefusal(
      `PostgreSQL refuses to run as root, and the user ${name}, who would run it, cannot enter ${closed}: start as an ordinary user, or move the checkout and KAPSTONE_DATA_DIR to folders that every user may enter.`,
    );
  }
  throw new StartRefusal(
    "PostgreSQL refuses to run as root, and this machine has no user postgres or nobody to run it: start as an ordinary user.",
  );
}

function idsOf(name: string): { uid: number; gid: number } | null {
  const entry = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .map((line) => line.split(":"))
    .find((fields) => fields[0] === name);
  return entry === undefined ? null : { uid: Number(entry[2]), gid: Number(entry[3]) };
}

/** Gives a folder and all in it to `owner` where its root is someone else's: an earlier start may have used another way. Needs root; others are told. */
export async function giveFolder(folder: string, owner: { uid: number; gid: number }): Promise<void> {
  const { uid } = await lstat(folder);
  if (uid === owner.uid) return;
  if (process.getuid?.() !== 0) {
    throw new StartRefusal(
      `The data folder ${folder} belongs to user ${uid}: start as that user, give it away (chown -R), or set KAPSTONE_DATA_DIR to another folder.`,
    );
  }
  for (const entry of await readdir(folder, { recursive: true })) await chown(join(folder, entry), owner.uid, owner.gid);
  await chown(folder, owner.uid, owner.gid);
}
