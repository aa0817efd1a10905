import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import type { Logger } from "#platform/log.ts";
import type { RuntimeCandidate, RuntimePool } from "../api/gateway/pool.ts";
import { control } from "../api/gateway/runtime-client.ts";
import { type RuntimeProgram, runtimeNodeFlags, runtimeProgram } from "./runtime-program.ts";

export interface ProcessPoolOptions {
  /** Warm runtimes that wait for a claim. */
  size: number;
  /** Folder of the sockets, short enough for them. */
  socketFolder: string;
  /** Public half of the key that signs assignments (SPKI, base64). */
  claimPublicKey: string;
  /** Further environment of the runtimes. */
  env: Record<string, string>;
  /** File descriptor that runtimes write their log lines to. */
  logFd: number;
  log: Logger;
}

/** The runtime pool of a laptop: child processes. */
export interface ProcessPool extends RuntimePool {
  /** Settles when a runtime can be claimed. Throws after a minute with what the runtimes' log will tell more about. */
  warmed(): Promise<void>;
  /** Ends all runtimes, claimed ones too: they finish what they serve, at most `drainMs`. */
  close(drainMs: number): Promise<void>;
}

type Member = RuntimeCandidate & { process: ChildProcess; state: "starting" | "warm" | "taken" | "ending" };

const warmPollMs = 25;
const warmTimeoutMs = 60_000;
const endTimeoutMs = 5_000;
/** A successor starts a moment after a claim, so that it does not take the processor from the first call of the kap that claimed. */
const successorDelayMs = 250;
const slowestRetryMs = 10_000;

/**
 * Keeps `size` generic runtimes warm as child processes on Unix sockets, replaces those that were claimed or died, and ends the ones that are
 * given up. A runtime that cannot start is tried again, ever slower up to ten seconds.
 */
export function createProcessPool(options: ProcessPoolOptions): ProcessPool {
  const { log } = options;
  const members = new Map<string, Member>();
  const program = runtimeProgram(log);
  let isClosed = false;
  let failures = 0;
  let refill: NodeJS.Timeout | undefined;

  const waiting = (): number => [...members.values()].filter((member) => member.state === "starting" || member.state === "warm").length;

  const fill = (afterMs: number): void => {
    if (isClosed) return;
    clearTimeout(refill);
    refill = setTimeout(() => {
      void program.then((made) => {
        while (!isClosed && waiting() < options.size) start(made);
      });
    }, afterMs);
  };

  const start = ({ entry, endWithParent }: RuntimeProgram): void => {
    const id = randomBytes(8).toString("hex");
    const paths = [join(options.socketFolder, `${id}.data`), join(options.socketFolder, `${id}.control`)] as const;
    const child = spawn(process.execPath, [...runtimeNodeFlags, "--import", pathToFileURL(endWithParent).href, entry], {
      env: {
        PATH: process.env.PATH ?? "",
        ...options.env,
        KAPSTONE_RUNTIME_DATA: `unix:${paths[0]}`,
        KAPSTONE_RUNTIME_CONTROL: `unix:${paths[1]}`,
        KAPSTONE_CLAIM_PUBLIC_KEY: options.claimPublicKey,
      },
      stdio: ["ignore", options.logFd, options.logFd, "ipc"],
    });
    const member: Member = { id, data: `unix:${paths[0]}`, control: `unix:${paths[1]}`, process: child, state: "starting" };
    members.set(member.control, member);
    const gone = (cause: string): void => {
      if (!members.delete(member.control)) return;
      void Promise.all(paths.map((path) => rm(path, { force: true })));
      if (member.state === "starting") failures += 1;
      if (member.state !== "ending") log.warn({ runtime: id, state: member.state, cause }, "a runtime ended by itself");
      fill(failures === 0 ? 0 : Math.min(slowestRetryMs, 100 * 2 ** failures));
    };
    child.once("error", (error) => gone(error.message));
    child.once("exit", (code, signal) => gone(signal ?? `exit ${code}`));
    becomeWarm(member).catch((error: unknown) => {
      if (member.state !== "starting") return;
      log.error({ err: error, runtime: id }, "a runtime did not become ready");
      end(member);
    });
  };

  const becomeWarm = async (member: Member): Promise<void> => {
    const until = Date.now() + warmTimeoutMs;
    while (member.state === "starting" && members.has(member.control)) {
      const answer = await control(member.control, "GET", "/readyz", undefined, 2_000).catch(() => null);
      if (answer?.status === 200) {
        if (member.state === "starting") member.state = "warm";
        failures = 0;
        return;
      }
      if (Date.now() > until) throw new Error(`not ready after ${warmTimeoutMs} ms`);
      await delay(warmPollMs);
    }
  };

  /** Asks it to end, and makes it end when it does not. A failed start counts as one, so that a runtime that never gets ready is not respawned in a circle. */
  const end = (member: Member): void => {
    if (member.state === "starting") failures += 1;
    member.state = "ending";
    member.process.kill("SIGTERM");
    const kill = setTimeout(() => member.process.kill("SIGKILL"), endTimeoutMs);
    member.process.once("exit", () => clearTimeout(kill));
  };

  fill(0);
  return {
    async candidates() {
      const warm = [...members.values()].filter((member) => member.state === "warm");
      return warm.reverse().map(({ id, data, control: address }) => ({ id, data, control: address }));
    },
    taken(address) {
      const member = members.get(address);
      if (!member) return;
      member.state = "taken";
      fill(successorDelayMs);
    },
    discard(address) {
      const member = members.get(address);
      if (!member || member.state === "ending") return;
      end(member);
      fill(0);
    },
    async warmed() {
      const until = Date.now() + warmTimeoutMs;
      while (![...members.values()].some((member) => member.state === "warm")) {
        if (Date.now() > until) throw new Error(`no runtime became ready within ${warmTimeoutMs / 1000} s: the log says why`);
        await delay(warmPollMs);
      }
    },
    async close(drainMs) {
      isClosed = true;
      clearTimeout(refill);
      const all = [...members.values()];
      const gone = all.map(
        (member) =>
          new Promise<void>((resolve) => {
            if (member.process.exitCode !== null || member.process.signalCode !== null) resolve();
            else member.process.once("exit", () => resolve());
          }),
      );
      for (const member of all) {
        member.state = "ending";
        member.process.kill("SIGTERM");
      }
      const kill = setTimeout(() => {
        for (const member of all) member.process.kill("SIGKILL");
      }, drainMs);
      await Promise.all(gone);
      clearTimeout(kill);
    },
  };
}
