import { readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";

/** After trimming so much of the budget is left free, so that it is not trimmed again at once. */
const keepShare = 0.8;

/**
 * Keeps pacote's content cache below `maxBytes` by removing the files that were written longest ago. A removed file is fetched again when
 * it is asked for; content is verified by its digest on every read, so neither this nor a crash can make it wrong.
 */
export async function trimPackageCache(folder: string, maxBytes: number): Promise<void> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return [];
    throw error;
  });
  const files: { path: string; bytes: number; writtenAt: number }[] = [];
  for (const entry of entries) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const found = await stat(path).catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return null;
      throw error;
    });
    if (found) files.push({ path, bytes: found.size, writtenAt: found.mtimeMs });
  }
  let bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  if (bytes <= maxBytes) return;
  for (const file of files.sort((a, b) => a.writtenAt - b.writtenAt)) {
    if (bytes <= maxBytes * keepShare) return;
    await rm(file.path, { force: true });
    bytes -= file.bytes;
  }
}
