import { fork } from "node:child_process";
import { rm } from "node:fs/promises";
import { entryFile } from "#platform/program-files.ts";
import type { ChildSettings, FromChild, ToChild } from "./build-child.ts";
import type { BuildInput, BuildResult } from "./build-contract.ts";
import { codeCacheFlags } from "./code-cache.ts";
import type { BuildPhase } from "./compile.ts";
import { residentBytes } from "./process-memory.ts";
import { makeUnpackFolder } from "./unpack-folder.ts";

export interface ProcessLimits {
  /** Longest time in milliseconds for each step that works on the program, and for the one that waits for the registry. */
  compileMs: number;
  fetchMs: number;
  /** Of the process and esbuild under it, resident. */
  memoryBytes: number;
  /** Of the process's own JavaScript heap (the type checker has its own). */
  heapMib: number;
}

/** How a build ended: with a result, by our hand (too long, too large, or it brought the process down), or by a fault of ours. */
export type ProcessOutcome =
  | { kind: "result"; result: BuildResult; unpackedBytes: number }
  | { kind: "stopped"; reason: "time" | "memory" | "crash"; phase: BuildPhase }
  | { kind: "fault"; message: string };

/** One resident build process. After any outcome but a result it is gone. */
export interface BuildProcess {
  /** Resolves when it can take a build at full speed; rejects when it ended before. */
  ready: Promise<void>;
  isAlive(): boolean;
  /** Resident bytes of it and its children. */
  memory(): number;
  build(input: BuildInput): Promise<ProcessOutcome>;
  end(): Promise<void>;
}

export const fetchPhase: BuildPhase = "fetching packages";
/** How often memory is looked at while a build runs. */
const memoryWatchMs = 50;
/** Longest start in milliseconds, warming up included, on a machine that is busy. */
const maxStartMs = 60_000;
/** What the process may see of the environment: nothing that only other parts of the platform need. */
const passedVariables =
  /^(?:PATH|HOME|PREFIX|TMPDIR|TZ|LANG|ESBUILD_BINARY_PATH|NODE_EXTRA_CA_CERTS|SSL_CERT_FILE|SSL_CERT_DIR|https?_proxy|no_proxy|noproxy|npm_config_.*)$/i;

/** The part of an environment that a build process gets: paths, proxies, certificates and npm's own settings. */
export function buildEnvironment(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return { ...Object.fromEntries(Object.entries(env).filter(([name]) => passedVariables.test(name))), NODE_ENV: "production" };
}

/** Starts a build process in a process group of its own, so that ending it ends esbuild too. */
export function startBuildProcess(given: Omit<ChildSettings, "unpackFolder">, limits: ProcessLimits, env: NodeJS.ProcessEnv): BuildProcess {
  const unpackFolder = makeUnpackFolder();
  const settings: ChildSettings = { ...given, unpackFolder };
  const child = fork(entryFile("api/services/kaps/build/build-child"), [JSON.stringify(settings)], {
    env: buildEnvironment(env),
    execArgv: [...codeCacheFlags, `--max-old-space-size=${limits.heapMib}`, "--disable-warning=ExperimentalWarning"],
    serialization: "advanced",
    detached: true,
    stdio: ["ignore", "ignore", "pipe", "ipc"],
  });
  let lastWords = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    lastWords = (lastWords + text).slice(-4_000);
  });
  const gone = new Promise<void>((resolve) => {
    child.once("exit", () => resolve());
    child.once("error", () => resolve());
  });
  const isAlive = () => child.exitCode === null && child.signalCode === null && child.connected;
  const memory = () => (child.pid === undefined ? 0 : residentBytes(child.pid));

  const ready = new Promise<void>((resolve, reject) => {
    const onMessage = (message: FromChild) => {
      if (message.kind !== "ready") return;
      child.off("message", onMessage);
      resolve();
    };
    child.on("message", onMessage);
    child.once("error", reject);
    gone.then(() => reject(new Error(`A build process ended while starting: ${lastWords || "no output"}`)));
  });
  const late = setTimeout(() => void end(), maxStartMs);
  ready.catch(() => undefined).finally(() => clearTimeout(late));

  async function end(): Promise<void> {
    if (child.pid !== undefined) {
      try {
        process.kill(-child.pid, "SIGKILL");
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ESRCH") child.kill("SIGKILL");
      }
      await gone;
    }
    await rm(unpackFolder, { recursive: true, force: true });
  }

  return {
    ready,
    isAlive,
    memory,
    end,
    async build(input) {
      let phase: BuildPhase = "reading imports";
      const outcome = await new Promise<ProcessOutcome>((resolve) => {
        const finish = (result: ProcessOutcome) => {
          clearTimeout(deadline);
          clearInterval(watch);
          child.off("message", onMessage);
          resolve(result);
        };
        const expire = () => finish({ kind: "stopped", reason: "time", phase });
        let deadline = setTimeout(expire, limits.compileMs);
        const watch = setInterval(() => {
          if (memory() > limits.memoryBytes) finish({ kind: "stopped", reason: "memory", phase });
        }, memoryWatchMs);
        const onMessage = (message: FromChild) => {
          if (message.kind === "phase") {
            phase = message.phase;
            clearTimeout(deadline);
            deadline = setTimeout(expire, phase === fetchPhase ? limits.fetchMs : limits.compileMs);
          }
          if (message.kind === "result") finish(message);
          // esbuild's process ends of programs that are nested too deeply; that is the program's doing.
          if (message.kind === "fault")
            finish(
              /The service (?:is no longer running|was stopped)/.test(message.message)
                ? { kind: "stopped", reason: "crash", phase }
                : message,
            );
        };
        gone.then(() => finish({ kind: "stopped", reason: /heap out of memory|heap limit/i.test(lastWords) ? "memory" : "crash", phase }));
        child.on("message", onMessage);
        child.send({ kind: "build", input } satisfies ToChild, (error) => {
          if (error) finish({ kind: "stopped", reason: "crash", phase });
        });
      });
      if (outcome.kind !== "result") await end();
      return outcome;
    },
  };
}
