import { type ChildProcess, type ChildProcessByStdio, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";

/**
 * Holds a pipe to this process, is told of every group that starts and ends, and ends those that are left when the pipe breaks: on any end of
 * the bench, a kill included.
 */
const sweeper = `
left=" "
while read -r what group; do
  case "$what" in
    started) left="$left$group " ;;
    ended) left="\${left%% $group *} \${left#* $group }" ;;
  esac
done
for group in $left; do kill -s KILL -- "-$group" 2>/dev/null; done
`;

/** How long the measures get after an interruption to tidy up behind themselves. */
const tidyMs = 5_000;

const running = new Set<ChildProcess>();
let sweep: ChildProcessByStdio<Writable, null, null> | undefined;
let isInterrupted = false;

/** Starts a command in a process group of its own, which ends as a whole: tools that npm brings are scripts that start the real program. */
export function spawnWatched(command: string[], env: NodeJS.ProcessEnv): ChildProcessByStdio<null, Readable, null> {
  if (isInterrupted) throw new Error("the bench was interrupted");
  sweep ??= startSweep();
  const { stdin } = sweep;
  const child = spawn(command[0] as string, command.slice(1), { env, stdio: ["ignore", "pipe", "inherit"], detached: true });
  running.add(child);
  stdin.write(`started ${child.pid}\n`);
  child.once("exit", () => {
    running.delete(child);
    endGroup(child);
    stdin.write(`ended ${child.pid}\n`);
  });
  return child;
}

function startSweep(): ChildProcessByStdio<Writable, null, null> {
  const started = spawn("sh", ["-c", sweeper], { stdio: ["pipe", "ignore", "ignore"], detached: true });
  started.unref();
  (started.stdin as Writable & { unref(): void }).unref();
  return started;
}

function endGroup(child: ChildProcess): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** On the first signal ends what is measured, so that the measure fails and tidies up; on a second one, or when that takes long, just ends. */
export function endOnSignals(): void {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.once(signal, () => {
      if (isInterrupted) process.exit(130);
      isInterrupted = true;
      process.exitCode = 130;
      for (const child of running) endGroup(child);
      setTimeout(() => process.exit(130), tidyMs).unref();
    });
  }
}
