import { mkdtempSync, readdirSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const prefix = "kapstone-build-";

/** A fresh folder for the packages that one build process unpacks. Its name tells whose it is. */
export function makeUnpackFolder(): string {
  return realpathSync(mkdtempSync(join(tmpdir(), `${prefix}${process.pid}-`)));
}

/** Removes the unpack folders of API processes that ended without removing them (killed, or lost power). */
export function removeStaleFolders(): void {
  for (const name of readdirSync(tmpdir())) {
    const [, pid] = /^kapstone-build-(\d+)-/.exec(name) ?? [];
    if (pid !== undefined && !isRunning(Number(pid))) rmSync(join(tmpdir(), name), { recursive: true, force: true });
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
