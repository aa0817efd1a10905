import { readFileSync } from "node:fs";

const pageBytes = 4096;
/** Ticks a second in /proc/<pid>/stat: USER_HZ is 100 on every Linux that Node runs on. */
const ticksPerSecond = 100;

/** Resident memory of a process in bytes; 0 when it is gone or the system has no /proc. */
export function residentBytes(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/statm`, "latin1").split(" ")[1]) * pageBytes;
  } catch {
    return 0;
  }
}

/** CPU time that the main thread of a process has used, in milliseconds; null when it cannot be known. */
export function mainThreadCpuMs(pid: number): number | null {
  try {
    const stat = readFileSync(`/proc/${pid}/task/${pid}/stat`, "latin1");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return ((Number(fields[11]) + Number(fields[12])) * 1000) / ticksPerSecond;
  } catch {
    return null;
  }
}
