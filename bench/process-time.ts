import { readFileSync } from "node:fs";
import { processTree } from "./process-memory.ts";

const ticksPerSecond = 100;

/** The parts of a platform that a call passes through. */
export type Part = "gateway" | "supervisor" | "child";

function partOf(pid: number, root: number): Part | null {
  if (pid === root) return "gateway";
  const command = readFileSync(`/proc/${pid}/cmdline`, "latin1");
  return /runtime\/main\.[jt]s/.test(command) ? "supervisor" : /runtime\/child\.[jt]s/.test(command) ? "child" : null;
}

/** Processor time the parts of a platform have used so far, in seconds. Null where the system does not tell it. */
export function processorSeconds(root: number): Record<Part, number> | null {
  const seconds = { gateway: 0, supervisor: 0, child: 0 };
  try {
    for (const pid of processTree(root)) {
      const part = partOf(pid, root);
      if (!part) continue;
      const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
      const [user, system] = stat
        .slice(stat.lastIndexOf(")") + 2)
        .split(" ")
        .slice(11, 13);
      seconds[part] += (Number(user) + Number(system)) / ticksPerSecond;
    }
    return seconds;
  } catch {
    return null; // no /proc, or a process ended while it was read
  }
}
