import { existsSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(import.meta.url);

/**
 * The folder all of this program's files lie under: the one with package.json. Run from its sources that is the repository; a bundle (an image's, or
 * that of a laptop's runtimes) brings a package.json and keeps every file that is read or started by its path where the sources have it.
 */
const root = findRoot(dirname(here));

function findRoot(folder: string): string {
  if (existsSync(join(folder, "package.json"))) return folder;
  const above = dirname(folder);
  if (above === folder) throw new Error(`no package.json above ${here}: this program has been taken out of its folder`);
  return findRoot(above);
}

/** The path of a file that is read as it is, by its place in the sources: `web/pages.css`. */
export function programFile(path: string): string {
  return join(root, path);
}

/** The path of a module that is started as a process or thread of its own, by its place in the sources without extension: `runtime/child`. */
export function entryFile(path: string): string {
  return join(root, path + extname(here));
}
