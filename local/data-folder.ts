import { existsSync } from "node:fs";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { StartRefusal } from "./start-refusal.ts";

/** A data folder that this process has to itself. */
export interface DataFolder {
  path: string;
  /** Lets others have it. The lock also ends with the process, however that ends. */
  release(): void;
}

/**
 * Makes the folder where it is missing, checks that it can be written, and takes it: two platforms on one folder would undo each other's files. The lock
 * is the operating system's, through SQLite, because Node has no other way to one. Throws `StartRefusal`.
 */
export async function takeDataFolder(given: string): Promise<DataFolder> {
  const path = resolve(given);
  try {
    await makeFolder(path);
    const probe = join(path, ".writable");
    await writeFile(probe, "");
    await rm(probe);
  } catch (error) {
    const cause = error instanceof Error && "code" in error ? String(error.code) : String(error);
    throw new StartRefusal(
      `Cannot write to the data folder ${path} (${cause}): make it writable for this user, or set KAPSTONE_DATA_DIR to a folder that is.`,
    );
  }
  const pidFile = join(path, "kapstone.pid");
  const lock = new DatabaseSync(join(path, "kapstone.lock"), { timeout: 0 });
  try {
    lock.exec("pragma locking_mode = exclusive; begin exclusive");
  } catch (error) {
    lock.close();
    if (!(error instanceof Error && "errcode" in error && error.errcode === 5)) throw error; // 5: SQLITE_BUSY
    const holder = await readFile(pidFile, "utf8").catch(() => "unknown");
    throw new StartRefusal(
      `Another Kapstone (process ${holder}) uses the data folder ${path}: stop it, or set KAPSTONE_DATA_DIR to another folder.`,
    );
  }
  await writeFile(pidFile, String(process.pid));
  return { path, release: () => lock.close() };
}

/** Makes a folder and what is missing above it, step by step: Node's own recursive `mkdir` never ends where the file system refuses with ENOENT, as `/proc` does. */
async function makeFolder(path: string): Promise<void> {
  const missing: string[] = [];
  for (let at = path; !existsSync(at) && dirname(at) !== at; at = dirname(at)) missing.push(at);
  for (const folder of missing.reverse()) {
    await mkdir(folder).catch((error: unknown) => {
      if (!existsSync(folder)) throw error; // another start may have made it meanwhile
    });
  }
}
