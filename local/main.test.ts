import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { finished } from "node:stream/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, afterEach, expect, test } from "vitest";
import { until } from "../test/harness/wait.ts";
import { probePort } from "./free-port.ts";

const main = fileURLToPath(new URL("./main.ts", import.meta.url));
const endTimeoutMs = 60_000;
const cleanUpMs = 10_000;
const running: Start[] = [];
const folders: string[] = [];

/** One `npm start`, from the point where the platform's Node takes over. */
interface Start {
  process: ChildProcess;
  /** Everything printed so far. */
  output: () => string;
  /** Its exit code or signal. */
  ended: Promise<number | string>;
}

afterEach(async () => {
  for (const { process: child, ended } of running.splice(0)) {
    child.kill("SIGINT");
    await ended;
  }
});
afterAll(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true }))));

async function newFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "kapstone-main-"));
  folders.push(folder);
  return folder;
}

async function freePort(): Promise<string> {
  return String((await probePort("127.0.0.1", 0)).port);
}

async function settingsFor(dataDir: string): Promise<Record<string, string>> {
  return { KAPSTONE_DATA_DIR: dataDir, KAPSTONE_PORT: await freePort(), KAPSTONE_SMTP_PORT: await freePort(), KAPSTONE_WARM_RUNTIMES: "1" };
}

function start(settings: Record<string, string>): Start {
  const child = spawn(process.execPath, ["--no-node-snapshot", main], {
    env: { PATH: process.env.PATH ?? "", ...settings },
    stdio: ["ignore", "pipe", "pipe", "ipc"],
  });
  let text = "";
  const outputs = [child.stdout, child.stderr].map(async (stream) => {
    stream?.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
    });
    if (stream) await finished(stream);
  });
  // A process that says that it ends but hangs in Node's own clean-up is ended by who started it, as `npm start` does.
  let said: number | undefined;
  child.on("message", (message: { ends?: number }) => {
    said = message.ends;
    const hung = setTimeout(() => child.kill("SIGKILL"), cleanUpMs);
    child.once("exit", () => clearTimeout(hung));
  });
  // Not "close", which a child whose channel was closed from here never emits.
  const ended = Promise.all([once(child, "exit"), ...outputs]).then(([[code, signal]]) => (said ?? code ?? signal) as number | string);
  const started = { process: child, output: () => text, ended };
  running.push(started);
  return started;
}

async function ready(started: Start): Promise<void> {
  const isReady = () => started.output().includes("Kapstone is ready");
  await until(() => started.process.exitCode !== null || isReady(), { timeoutMs: 100_000, what: "the platform" });
  if (!isReady()) throw new Error(`it ended: ${started.output()}`);
}

const sh = async (script: string): Promise<string> => (await promisify(execFile)("sh", ["-c", script], { timeout: 60_000 })).stdout;

/** A process that runs, told from a later one of its number by its command. */
interface Running {
  pid: number;
  parent: number;
  command: string;
}
const allProcesses = async (): Promise<Running[]> =>
  (await promisify(execFile)("ps", ["-A", "-o", "pid=,ppid=,command="], { maxBuffer: 16 * 1024 * 1024 })).stdout
    .split("\n")
    .flatMap((line) => {
      const [, pid, parent, command = ""] = /^ *(\d+) +(\d+) (.*)$/.exec(line) ?? [];
      return pid ? [{ pid: Number(pid), parent: Number(parent), command }] : [];
    });
/** A process's children, theirs, and so on. */
const below = (pid: number, all: Running[]): Running[] =>
  all.filter(({ parent }) => parent === pid).flatMap((child) => [child, ...below(child.pid, all)]);

test("the three printed lines work as they are, and what they made outlives Ctrl-C and the death of the whole tree", {
  timeout: 240_000,
}, async () => {
  const dataDir = await newFolder();
  const settings = await settingsFor(dataDir);
  const first = start(settings);
  await ready(first);
  const lines = first
    .output()
    .split("\n")
    .filter((line) => /^(TOKEN=|KAP=|curl )/.test(line));
  expect(lines).toHaveLength(3);
  const call = `${lines[2]}`;
  const kept = join(dataDir, "kept.sh");
  expect(JSON.parse(await sh(`${lines[0]}\n${lines[1]}\nprintf "KAP='%s'\\n" "$KAP" > '${kept}'\n${call}`))).toEqual({ visits: 1 });
  const again = `. '${kept}'\n${call}`;
  expect(JSON.parse(await sh(again))).toEqual({ visits: 2 });

  first.process.kill("SIGINT");
  expect(await first.ended).toBe(0);
  expect(first.output()).toMatch(/Stopping …\nStopped\.\n$/);

  const second = start(settings);
  await ready(second);
  expect(second.output()).not.toMatch(/three lines/);
  expect(JSON.parse(await sh(again))).toEqual({ visits: 3 });
  const server = Number((await readFile(join(dataDir, "postgres/cluster/postmaster.pid"), "utf8")).split("\n")[0]);
  process.kill(server, "SIGKILL");
  second.process.kill("SIGKILL");
  expect(await second.ended).toBe("SIGKILL");

  const third = start(settings);
  await ready(third);
  expect(JSON.parse(await sh(again))).toEqual({ visits: 4 });
});

test("nobody outlives a platform that was killed", { timeout: 240_000 }, async () => {
  const dataDir = await newFolder();
  const started = start(await settingsFor(dataDir));
  await ready(started);
  const tree = below(started.process.pid as number, await allProcesses());
  for (const part of [`-D ${dataDir}/`, "/runtime/main.", "/runtime/child.", "/kaps/build/build-child."])
    expect(tree.filter(({ command }) => command.includes(part))).not.toEqual([]);
  started.process.kill("SIGKILL");
  await started.ended;
  const left = async () => {
    const all = await allProcesses();
    return tree.filter(({ pid, command }) => all.some((other) => other.pid === pid && other.command === command));
  };
  await until(async () => (await left()).length === 0, { timeoutMs: endTimeoutMs, what: "the end of its children" });
});

test("a platform whose parent is gone stops by itself", { timeout: 240_000 }, async () => {
  const started = start(await settingsFor(await newFolder()));
  await ready(started);
  started.process.disconnect();
  expect(await started.ended).toBe(0);
});

test("a second platform on the same data folder is refused in one line and does the first no harm", { timeout: 240_000 }, async () => {
  const dataDir = await newFolder();
  await ready(start(await settingsFor(dataDir)));
  const other = start(await settingsFor(dataDir));
  expect(await other.ended).toBe(1);
  expect(other.output()).toMatch(
    /^Another Kapstone \(process \d+\) uses the data folder .*: stop it, or set KAPSTONE_DATA_DIR to another folder\.\n$/,
  );
});

test("a taken port, a folder that cannot be written and a bad setting are each told in words that name the variable", {
  timeout: 120_000,
}, async () => {
  const dataDir = await newFolder();
  const taken = createServer().listen(0, "127.0.0.1");
  await once(taken, "listening");
  const port = String((taken.address() as { port: number }).port);
  const refused = async (settings: Record<string, string>): Promise<string> => {
    const started = start({ ...(await settingsFor(dataDir)), ...settings });
    expect(await started.ended).toBe(1);
    return started.output();
  };
  const file = join(dataDir, "file");
  await writeFile(file, "");
  await chmod(file, 0o444);
  expect(await refused({ KAPSTONE_PORT: port })).toBe(
    `Port ${port} is taken by another program: stop it, or set KAPSTONE_PORT to another port.\n`,
  );
  expect(await refused({ KAPSTONE_SMTP_PORT: port })).toBe(
    `Port ${port} is taken by another program: stop it, or set KAPSTONE_SMTP_PORT to another port.\n`,
  );
  expect(await refused({ KAPSTONE_DATA_DIR: join(file, "data") })).toMatch(
    /^Cannot write to the data folder .* \(ENOTDIR\): .*KAPSTONE_DATA_DIR.*\n$/,
  );
  expect(await refused({ KAPSTONE_PORT: "eighty" })).toMatch(/KAPSTONE_PORT: must be a whole number/);
  taken.close();
});
