import { type ChildProcess, execFileSync } from "node:child_process";
import { createServer } from "node:net";
import { cpus } from "node:os";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { spawnWatched } from "./leftovers.ts";
import type { LoadOptions, LoadResult } from "./load.ts";

/** The core that what is measured runs on, the one for the load and PostgreSQL, and all there are. */
export const cores = { measured: "0", rest: "1", all: `0-${cpus().length - 1}` };

const hasTaskset = ((): boolean => {
  try {
    execFileSync("taskset", ["-c", "0", "true"]);
    return true;
  } catch {
    return false;
  }
})();

/** Whether processes can be pinned to cores here; without it figures of one core are those of the machine. */
export const isPinned = hasTaskset;

/** Puts this process, which takes the runtimes' reports, beside the load: what is measured has its core alone. */
export function leaveMeasuredCore(): void {
  if (hasTaskset) execFileSync("taskset", ["-apc", cores.rest, String(process.pid)], { stdio: "ignore" });
}

/** Moves this process to the core for the rest, and with it whatever it starts without naming a core: PostgreSQL. */
export function moveToRest(): void {
  if (hasTaskset) execFileSync("taskset", ["-a", "-c", "-p", cores.rest, String(process.pid)]);
}

/** The command that runs another on some cores only, where that can be said. */
export function onCores(core: string, command: string[]): string[] {
  return hasTaskset ? ["taskset", "-c", core, ...command] : command;
}

/** Starts a TypeScript file of this folder, or any command, on one core, and waits for its first line. */
export async function startOn(
  core: string,
  command: string[],
  env: Record<string, string> = {},
): Promise<{ process: ChildProcess; firstLine: string }> {
  const child = spawnWatched(onCores(core, command), { ...process.env, ...env });
  const firstLine = await new Promise<string>((resolve, reject) => {
    createInterface({ input: child.stdout as NodeJS.ReadableStream }).once("line", resolve);
    child.once("exit", (code) => reject(new Error(`${command.join(" ")} ended with ${code} before it said anything`)));
  });
  return { process: child, firstLine };
}

/** The command that runs a TypeScript file of this folder. */
export function script(name: string, ...args: string[]): string[] {
  return [process.execPath, "--no-node-snapshot", fileURLToPath(new URL(name, import.meta.url)), ...args];
}

/** Ends a process and waits until it has; what is left of its group goes with it. */
export async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  const kill = setTimeout(() => child.kill("SIGKILL"), 15_000);
  await ended;
  clearTimeout(kill);
}

/** One load run in a process of its own on the other core. */
export async function load(options: LoadOptions): Promise<LoadResult> {
  const { process: child, firstLine } = await startOn(cores.rest, script("load.ts", JSON.stringify(options)));
  await end(child);
  return JSON.parse(firstLine) as LoadResult;
}

/** The median of some numbers. */
export function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? (sorted[middle] ?? 0) : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
}

/** A port nobody listens on now. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") throw new Error("no port is free");
  return address.port;
}
