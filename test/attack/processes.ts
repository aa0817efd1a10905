import { readdirSync, readFileSync } from "node:fs";

const pageBytes = 4096;

function read(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return ""; // the process is gone, or not ours to read
  }
}

const pids = (): number[] =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number);

const parentOf = (pid: number): number => {
  const stat = read(`/proc/${pid}/stat`);
  return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1] ?? 0);
};

/** The supervisor whose control listener has this address, by the environment it was started with. Throws when there is none. */
export function supervisorAt(controlAddress: string): number {
  const found = pids().find((pid) => read(`/proc/${pid}/environ`).split("\0").includes(`KAPSTONE_RUNTIME_CONTROL=${controlAddress}`));
  if (found === undefined) throw new Error(`no process listens as ${controlAddress}`);
  return found;
}

/** The processes a supervisor has started: the serving child and the spare. */
export const childrenOf = (pid: number): number[] => pids().filter((other) => parentOf(other) === pid);

/** Resident memory in MiB; 0 for a process that is gone. */
export const residentMb = (pid: number): number => (Number(read(`/proc/${pid}/statm`).split(" ")[1] ?? 0) * pageBytes) / 1_048_576;

export function openFiles(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}
