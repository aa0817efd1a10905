import { readdirSync, readFileSync } from "node:fs";

/** What a process of a platform's tree is there for. */
export type Role = "runtime supervisor" | "runtime child" | "postmaster" | "postgres backend" | "postgres guard" | "build" | "other";

/** A live process below another. */
export interface TreeProcess {
  pid: number;
  parent: number;
  /** Clock ticks from the machine's start to its own: the pid is the same process only while this is. */
  startedAt: number;
  role: Role;
}

/** All live descendants of `root` (not itself), from /proc: so nothing is ever killed that a test did not start. Parents come first. */
export function descendantsOf(root: number): TreeProcess[] {
  const all = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => readProcess(Number(name)) ?? []);
  const found: TreeProcess[] = [];
  for (let parents = new Set([root]); parents.size > 0; ) {
    const children = all.filter((process) => parents.has(process.parent));
    found.push(...children);
    parents = new Set(children.map((child) => child.pid));
  }
  return found;
}

/** Whether it is still the same process, and no zombie. */
export function isAlive(process: TreeProcess): boolean {
  return readProcess(process.pid)?.startedAt === process.startedAt;
}

/** SIGKILL, if it still is that process. Answers whether it was. */
export function killProcess(target: TreeProcess): boolean {
  if (!isAlive(target)) return false;
  try {
    process.kill(target.pid, "SIGKILL");
    return true;
  } catch {
    return false; // it ended between the look and the kill
  }
}

/** A variable of the environment a process was started with. */
export function environmentOf(pid: number, name: string): string | null {
  try {
    const entry = readFileSync(`/proc/${pid}/environ`, "utf8")
      .split("\0")
      .find((line) => line.startsWith(`${name}=`));
    return entry?.slice(name.length + 1) ?? null;
  } catch {
    return null;
  }
}

function readProcess(pid: number): TreeProcess | null {
  try {
    // The name in parentheses may hold anything; the fields after it do not: state, parent, … start time (the 22nd of all).
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    if (fields[0] === "Z") return null;
    return { pid, parent: Number(fields[1]), startedAt: Number(fields[19]), role: roleOf(readFileSync(`/proc/${pid}/cmdline`, "utf8")) };
  } catch {
    return null; // it has ended
  }
}

function roleOf(commandLine: string): Role {
  if (commandLine.includes("postgres-guard")) return "postgres guard";
  if (/^postgres: kapstone|^postgres: kap_/.test(commandLine)) return "postgres backend";
  if (/\/postgres\0-D\0/.test(commandLine)) return "postmaster";
  if (/runtime\/main\.[jt]s/.test(commandLine)) return "runtime supervisor";
  if (/runtime\/child\.[jt]s/.test(commandLine)) return "runtime child";
  if (commandLine.includes("build/build-child.ts")) return "build";
  return "other";
}
