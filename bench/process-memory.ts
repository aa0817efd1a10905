import { readdirSync, readFileSync } from "node:fs";

/** A process and all it started, parents first. */
export function processTree(pid: number): number[] {
  const parents = new Map<number, number>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "latin1");
      parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]));
    } catch {
      // It ended while the list was read.
    }
  }
  const tree = [pid];
  for (const at of tree) for (const [child, parent] of parents) if (parent === at) tree.push(child);
  return tree;
}

/** Proportional memory (PSS) of some processes in MB; null where the system does not tell it. */
export function proportionalMb(pids: number[]): number | null {
  try {
    const kilobytes = pids.map((pid) => Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "latin1"))?.[1] ?? 0));
    return kilobytes.reduce((sum, each) => sum + each, 0) / 1024;
  } catch {
    return null;
  }
}
