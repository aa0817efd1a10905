import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { probePort } from "../../local/free-port.ts";
import { type HttpClient, openHttpClient } from "../harness/http.ts";
import { until } from "../harness/wait.ts";
import { descendantsOf, environmentOf, isAlive, killProcess, type Role, type TreeProcess } from "./processes.ts";

const main = fileURLToPath(new URL("../../local/main.ts", import.meta.url));
const readyTimeoutMs = 120_000;
const goneTimeoutMs = 60_000;

/** `npm start` as a process tree of its own, which can be killed in part or whole and started again on the same ports and data folder. */
export interface Tree {
  dataDir: string;
  port: number;
  smtpPort: number;
  internalPort: number;
  http: HttpClient;
  /** Host header of a name in the deployment's domain. */
  host(name: string): string;
  /** Starts it and waits until it says that it is ready. Answers the milliseconds that took. */
  start(): Promise<number>;
  /** The exit code or signal of the present or last start, and what it printed. */
  ended(): Promise<{ code: number | string; output: string }>;
  isRunning(): boolean;
  /** Ctrl-C. Throws when it does not end well. */
  stop(): Promise<void>;
  /** SIGKILL of the main process (API, mail ingest, schedules) alone: the others find out by themselves. */
  killMain(): Promise<void>;
  /** SIGKILL of every process of the tree, the database's too. */
  killAll(): Promise<void>;
  processes(role?: Role): TreeProcess[];
  /** The supervisor of the runtime that listens at this control address. */
  supervisorAt(controlAddress: string): TreeProcess | null;
  /** A statement as the database's superuser, to look behind the platform. */
  query<Row extends pg.QueryResultRow>(text: string, values?: unknown[]): Promise<Row[]>;
  /** Ends everything and removes the data folder. */
  close(): Promise<void>;
}

const given = new Set<number>();

/** A port on which nobody listens, each one once, of those that no system gives away by itself: a platform that was killed finds its own free again. */
export async function freePort(): Promise<number> {
  for (;;) {
    const { port } = await probePort("127.0.0.1", 0);
    if (port === null || given.has(port)) continue;
    given.add(port);
    return port;
  }
}

/** A data folder that the database's user may enter. */
export async function newDataFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "kapstone-fault-"));
  await chmod(folder, 0o755);
  return folder;
}

/** Runs `node local/main.ts` with nothing but these settings in its environment. */
export function spawnMain(settings: Record<string, string>): { process: ChildProcess; output(): string; ended: Promise<number | string> } {
  const child = spawn(process.execPath, ["--no-node-snapshot", main], {
    env: { PATH: process.env.PATH ?? "", ...settings },
    stdio: ["ignore", "pipe", "pipe", "ipc"],
  });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) stream?.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
  const ended = once(child, "exit").then(([code, signal]) => (code ?? signal) as number | string);
  return { process: child, output: () => text, ended };
}

/** Prepares one on free ports and a new data folder, without starting it. */
export async function createTree(settings: Record<string, string> = {}): Promise<Tree> {
  const dataDir = await newDataFolder();
  const [port, smtpPort, internalPort] = [await freePort(), await freePort(), await freePort()];
  const http = openHttpClient(`http://127.0.0.1:${port}`);
  let running: ReturnType<typeof spawnMain> | undefined;
  const alive = (): boolean => running !== undefined && running.process.exitCode === null && running.process.signalCode === null;
  const processes = (role?: Role): TreeProcess[] => {
    const all = alive() ? descendantsOf(running?.process.pid as number) : [];
    return role === undefined ? all : all.filter((process) => process.role === role);
  };
  const gone = (left: TreeProcess[]): Promise<true> =>
    until(() => !left.some(isAlive), { timeoutMs: goneTimeoutMs, what: "the end of every process of the killed tree" });

  const tree: Tree = {
    dataDir,
    port,
    smtpPort,
    internalPort,
    http,
    host: (name) => `${name}.localhost:${port}`,
    async start() {
      const began = performance.now();
      const started = spawnMain({ ...treeSettings, KAPSTONE_DATA_DIR: dataDir, ...portsOf({ port, smtpPort, internalPort }), ...settings });
      running = started;
      await until(() => !alive() || started.output().includes("Kapstone is ready"), { timeoutMs: readyTimeoutMs, what: "the platform" });
      if (!alive()) throw new Error(`the platform ended instead of becoming ready:\n${started.output()}`);
      return Math.round(performance.now() - began);
    },
    async ended() {
      if (!running) throw new Error("it was never started");
      return { code: await running.ended, output: running.output() };
    },
    isRunning: alive,
    async stop() {
      const left = processes();
      running?.process.kill("SIGINT");
      const { code, output } = await tree.ended();
      if (code !== 0 || !output.includes("Stopped.")) throw new Error(`Ctrl-C ended it with ${code}:\n${output}`);
      await gone(left);
    },
    async killMain() {
      running?.process.kill("SIGKILL");
      await running?.ended;
    },
    async killAll() {
      const left = processes();
      running?.process.kill("SIGKILL");
      for (const process of left) killProcess(process);
      await running?.ended;
      await gone(left);
    },
    processes,
    supervisorAt: (address) =>
      processes("runtime supervisor").find(({ pid }) => environmentOf(pid, "KAPSTONE_RUNTIME_CONTROL") === address) ?? null,
    async query<Row extends pg.QueryResultRow>(text: string, values: unknown[] = []) {
      const [pgPort, password] = await Promise.all(
        ["port", "superuser.password"].map((name) => readFile(join(dataDir, "postgres", name), "utf8")),
      );
      const client = new pg.Client({
        connectionString: `postgres://postgres:${password}@127.0.0.1:${pgPort}/kapstone`,
        options: "-c search_path=kapstone,public",
        connectionTimeoutMillis: 10_000,
      });
      client.on("error", () => undefined); // a cut connection is told by the query's own failure
      await client.connect();
      try {
        return (await client.query<Row>(text, values)).rows;
      } finally {
        await client.end();
      }
    },
    async close() {
      await http.close();
      if (alive()) await tree.killAll();
      if (process.env.KAPSTONE_FAULT_KEEP && running) console.log(running.output());
      if (process.env.KAPSTONE_FAULT_KEEP) console.log(`kept for a look: ${dataDir}`);
      else await rm(dataDir, { recursive: true, force: true, maxRetries: 5, retryDelay: 500 }); // a backend forked last may still write
    },
  };
  return tree;
}

const portsOf = (ports: { port: number; smtpPort: number; internalPort: number }): Record<string, string> => ({
  KAPSTONE_PORT: String(ports.port),
  KAPSTONE_SMTP_PORT: String(ports.smtpPort),
  KAPSTONE_INTERNAL_PORT: String(ports.internalPort),
});

/** Limits that would slow a test are high; one runtime waits beside the one that serves. */
const treeSettings = {
  KAPSTONE_LOG_LEVEL: "info",
  KAPSTONE_WARM_RUNTIMES: "1",
  KAPSTONE_REQUESTS_PER_MINUTE: "1000000",
  KAPSTONE_CALLS_PER_MINUTE: "1000000",
  KAPSTONE_SIGNUPS_PER_MINUTE: "1000000",
  KAPSTONE_MAILS_PER_HOUR: "1000000",
};
