import { readFileSync } from "node:fs";

/**
 * Whether the kernel has killed for memory since the last look: by the counter of this process's control group, which its children share (in a
 * pod: the container's), else by the system's.
 */
export class KernelKills {
  readonly #read: () => number | null;
  #seen: number | null;

  constructor(read: () => number | null = kernelKills) {
    this.#read = read;
    this.#seen = read();
  }

  /** False also where the system does not tell. */
  haveGrown(): boolean {
    const before = this.#seen;
    this.#seen = this.#read();
    return before !== null && this.#seen !== null && this.#seen > before;
  }
}

/** The count of kills for memory; null when no counter can be read. */
export function kernelKills(): number | null {
  for (const path of [...groupCounters(), "/proc/vmstat"]) {
    const found = /^oom_kill (\d+)$/m.exec(read(path));
    if (found) return Number(found[1]);
  }
  return null;
}

/** Files that count the kills of this process's group, version 2 and 1; inside a container the group's own path may be out of sight, and is the root. */
function groupCounters(): string[] {
  return read("/proc/self/cgroup")
    .split("\n")
    .flatMap((line) => {
      const [, id, controllers = "", path = ""] = /^(\d+):([^:]*):(.*)$/.exec(line) ?? [];
      const inside = path === "/" ? [""] : [path, ""];
      if (id === "0") return inside.map((folder) => `/sys/fs/cgroup${folder}/memory.events`);
      return controllers.split(",").includes("memory") ? inside.map((folder) => `/sys/fs/cgroup/memory${folder}/memory.oom_control`) : [];
    });
}

function read(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}
