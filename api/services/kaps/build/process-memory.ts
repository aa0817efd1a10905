import { readFileSync } from "node:fs";

const pageBytes = 4096;

/**
 * Resident memory in bytes of a process and all its descendants, as Linux counts it (shared pages count in each). Zero where there is no
 * /proc: there the heap limits and the deadline are the only caps.
 */
export function residentBytes(pid: number): number {
  try {
    const pages = Number(readFileSync(`/proc/${pid}/statm`, "utf8").split(" ")[1]);
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean);
    return pages * pageBytes + children.reduce((sum, child) => sum + residentBytes(Number(child)), 0);
  } catch (error) {
    // The process ended between the two looks, or this is no Linux.
    if (["ENOENT", "ESRCH"].includes((error as NodeJS.ErrnoException).code ?? "")) return 0;
    throw error;
  }
}
