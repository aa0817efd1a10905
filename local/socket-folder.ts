import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeSecret } from "./kept-secret.ts";

/** Longest path of a Unix socket that every system takes (macOS: 104 bytes with the final NUL). */
const longestSocketPath = 103;
const longestName = "/kapstone-XXXXXX/0123456789abcdef.control".length;

/** A folder of this user alone for sockets, with a path short enough for them; a data folder's own path may be too long. */
export interface SocketFolder {
  path: string;
  remove(): Promise<void>;
}

/** Makes one. Its path is noted in the data folder, so that the next start removes what a killed one left. */
export async function makeSocketFolder(dataDir: string): Promise<SocketFolder> {
  const note = join(dataDir, "sockets");
  const earlier = await readFile(note, "utf8").catch(() => "");
  if (/\/kapstone-[^/]{6}$/.test(earlier)) await rm(earlier, { recursive: true, force: true });
  const base = Buffer.byteLength(tmpdir()) + longestName <= longestSocketPath ? tmpdir() : "/tmp";
  const path = await mkdtemp(join(base, "kapstone-"));
  await writeSecret(note, path);
  return { path, remove: () => rm(path, { recursive: true, force: true }) };
}
