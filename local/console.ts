import { openSync, renameSync, statSync, writeSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { createLogger, type Logger } from "#platform/log.ts";

const keptBytes = 20 * 1024 * 1024;
const errorLevel = 50; // pino's number for "error"

/** The log of a laptop: JSON lines in `{dataDir}/log/kapstone.log`; of errors a short form is shown in the terminal too. */
export interface FileLog {
  log: Logger;
  path: string;
  /** Open for appending; child processes write their lines to it. */
  fd: number;
}

/** Opens the log. At 20 MB a start puts it aside as `.1`. */
export async function openFileLog(dataDir: string, level: string, show: (line: string) => void): Promise<FileLog> {
  const folder = join(dataDir, "log");
  await mkdir(folder, { recursive: true });
  const path = join(folder, "kapstone.log");
  if ((statSync(path, { throwIfNoEntry: false })?.size ?? 0) > keptBytes) renameSync(path, `${path}.1`);
  const fd = openSync(path, "a", 0o600);
  const write = (line: string): void => {
    writeSync(fd, line);
    const entry = JSON.parse(line) as { level: number; msg?: string; err?: { message?: string } };
    if (entry.level >= errorLevel) show(`error: ${entry.msg ?? ""}${entry.err?.message ? `: ${entry.err.message}` : ""}`);
  };
  return { log: createLogger("kapstone", { level, destination: { write } }), path, fd };
}
