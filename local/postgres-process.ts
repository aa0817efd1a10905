import { spawn } from "node:child_process";
import { once } from "node:events";
import { open, readFile, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { PostgresBinaries } from "./postgres-binaries.ts";
import type { PostgresUser } from "./postgres-user.ts";

/** A running PostgreSQL server. */
export interface PostgresProcess {
  /** Settles when the server has ended, whatever the reason. */
  ended: Promise<void>;
  hasEnded(): boolean;
  /** Fast shutdown: sessions are ended, everything is written. After 30 s the server is ended at once; it recovers at the next start. */
  stop(): Promise<void>;
}

const fastShutdownMs = 30_000;
const immediateShutdownMs = 10_000;
const logKeptBytes = 10 * 1024 * 1024;

/**
 * The server's parent: it holds the other end of a pipe to the platform, and when that breaks – on purpose or because the platform was killed –
 * it shuts the server down. So nobody is left behind, and a Ctrl-C in the terminal does not end the database before those who use it.
 */
const guard = `
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
( read -r _ <&3; kill -INT "$server" ) 2>/dev/null &
reader=$!
trap '' INT TERM HUP
wait "$server"
code=$?
kill -KILL "$reader" 2>/dev/null
exit "$code"
`;

/** Starts the server on `folder` under its guard. What it says goes to `logFile`, of which 10 MB and one predecessor are kept. */
export async function spawnPostgres(
  binaries: PostgresBinaries,
  user: PostgresUser,
  folder: string,
  logFile: string,
  settings: Record<string, string | number>,
): Promise<PostgresProcess> {
  const size = await stat(logFile).then(
    (found) => found.size,
    () => 0,
  );
  if (size > logKeptBytes) await rename(logFile, `${logFile}.1`);
  const log = await open(logFile, "a", 0o600);
  try {
    const server = [
      ...user.prefix,
      binaries.postgres,
      "-D",
      folder,
      ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]),
    ];
    const child = spawn("sh", ["-c", guard, "postgres-guard", ...server], {
      ...user.spawnAs,
      cwd: "/",
      detached: true,
      stdio: ["pipe", log.fd, log.fd],
      env: { PATH: process.env.PATH ?? "", LC_ALL: "C", TZ: "UTC" },
    });
    await once(child, "spawn");
    const lifeline = child.stdin;
    if (lifeline === null) throw new Error("the PostgreSQL guard has no standard input");
    lifeline.on("error", () => undefined); // the guard has ended, which `ended` tells
    const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
    return {
      ended,
      hasEnded: () => child.exitCode !== null || child.signalCode !== null,
      async stop() {
        lifeline.end();
        if (await endsWithin(ended, fastShutdownMs)) return;
        await signalServer(folder, "SIGQUIT");
        if (await endsWithin(ended, immediateShutdownMs)) return;
        await signalServer(folder, "SIGKILL");
        await ended;
      },
    };
  } finally {
    await log.close();
  }
}

async function endsWithin(ended: Promise<void>, timeoutMs: number): Promise<boolean> {
  const abort = new AbortController();
  const late = delay(timeoutMs, false, { signal: abort.signal }).catch(() => false);
  const inTime = await Promise.race([ended.then(() => true), late]);
  abort.abort();
  return inTime;
}

/**
 * Ends a server that a killed platform left on `folder`: a data folder has one server, and ours must be our child. Its files are then ready for a new
 * one. A number in `postmaster.pid` that by now belongs to some other program (the machine was restarted) is no server: the file is removed,
 * which PostgreSQL itself would not dare.
 */
export async function endLeftoverServer(folder: string): Promise<boolean> {
  const pid = await serverPid(folder);
  if (pid === null || !isAlive(pid)) return false;
  if (!(await isServerOf(pid, folder))) {
    await rm(join(folder, "postmaster.pid"), { force: true });
    return false;
  }
  for (const [signal, patienceMs] of [
    ["SIGINT", fastShutdownMs],
    ["SIGQUIT", immediateShutdownMs],
    ["SIGKILL", immediateShutdownMs],
  ] as const) {
    await signalServer(folder, signal);
    const until = Date.now() + patienceMs;
    while (isAlive(pid) && Date.now() < until) await delay(50);
    if (!isAlive(pid)) return true;
  }
  throw new Error(`PostgreSQL's process ${pid} of an earlier start does not end`);
}

async function serverPid(folder: string): Promise<number | null> {
  const text = await readFile(join(folder, "postmaster.pid"), "utf8").catch(() => "");
  const pid = Number(text.split("\n")[0]);
  return Number.isInteger(pid) && pid > 1 ? pid : null;
}

async function signalServer(folder: string, signal: NodeJS.Signals): Promise<void> {
  const pid = await serverPid(folder);
  if (pid !== null && isAlive(pid)) process.kill(pid, signal);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}

/** Whether a live process is a server on `folder`, by its command line. Where that cannot be read (no /proc) it is taken for one, as PostgreSQL would. */
async function isServerOf(pid: number, folder: string): Promise<boolean> {
  const commandLine = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => null);
  return commandLine === null || commandLine.split("\0").includes(folder);
}
