import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { programFile } from "#platform/program-files.ts";
import type { ChildSettings } from "./build-child.ts";
import { type BuildInput, type BuildResult, fileError } from "./build-contract.ts";
import { type BuildProcess, fetchPhase, type ProcessLimits, type ProcessOutcome, startBuildProcess } from "./build-process.ts";
import { createFairQueue } from "./fair-queue.ts";
import { fileListProblems } from "./file-paths.ts";
import { trimPackageCache } from "./packages/package-cache.ts";
import { createProcessPool } from "./process-pool.ts";
import { removeStaleFolders } from "./unpack-folder.ts";

export interface BuilderOptions {
  /** Folder of the package cache; it survives restarts and may be shared by processes. */
  cacheDir: string;
  /** Builds at the same time, 1 or 2; one more process waits warm as the spare. */
  concurrency?: number;
  maxQueued?: number;
  /** Milliseconds for each step that works on the program (its type check has its own, shorter), and for fetching packages. */
  compileMs?: number;
  typeCheckMs?: number;
  fetchMs?: number;
  /** MiB: resident memory of a build process with esbuild, its own heap, the type checker's heap. */
  memoryMib?: number;
  heapMib?: number;
  typeCheckHeapMib?: number;
  /** MiB on disk: tarballs and registry answers in the cache; what one process may have unpacked before it is replaced. */
  cacheMib?: number;
  unpackedMib?: number;
  fetchTimeoutMs?: number;
  maxPackages?: number;
  maxTarballMib?: number;
  maxPackageMib?: number;
  /** The declarations that programs are checked against. */
  kapTypes?: URL;
  /** Where npm's settings, proxies and certificates come from; only those reach a build process. */
  environment?: NodeJS.ProcessEnv;
  log?: { warn(fields: object, message: string): void };
}

/** Too many builds wait; the caller answers 503 and tries again later. */
export class BuildQueueFull extends Error {
  override name = "BuildQueueFull";
  constructor(waiting: number) {
    super(`${waiting} builds are waiting already. Save again in a few seconds.`);
  }
}

export interface Builder {
  /**
   * Builds a program. Whatever the program is, this resolves: refusals, and builds that had to be ended, are `ok: false` with a reason.
   * Rejects with `BuildQueueFull`, with the signal's reason, or with a fault of the platform.
   */
  build(input: BuildInput, signal?: AbortSignal): Promise<BuildResult>;
  /** Resolves when builds run at full speed. */
  ready(): Promise<void>;
  close(): Promise<void>;
}

interface Job {
  input: BuildInput;
  /** Whether it has brought a process down before. */
  isRetry: boolean;
  resolve(result: BuildResult): void;
  reject(error: Error): void;
}

const mebibyte = 1_048_576;
/** A process that has grown beyond this part of its cap is replaced between builds. */
const recycleShare = 0.6;
const trimEveryMs = 3_600_000;

/**
 * The build service of one API process: resident build processes (one build at a time each, plus a warm spare), caps on time and memory,
 * and a queue in which owners take turns. Hostile source and package tarballs are only ever read in those processes.
 */
export function createBuilder(options: BuilderOptions): Builder {
  const { concurrency = 1, maxQueued = 100, compileMs = 15_000, fetchMs = 60_000, memoryMib = 1_024, heapMib = 384 } = options;
  const limits = { compileMs, fetchMs, heapMib, memoryBytes: memoryMib * mebibyte };
  const maxUnpackedBytes = (options.unpackedMib ?? 512) * mebibyte;
  const npmCache = join(options.cacheDir, "npm");
  mkdirSync(options.cacheDir, { recursive: true });
  const settings: Omit<ChildSettings, "unpackFolder"> = {
    npmCache,
    kapTypes: (options.kapTypes ?? pathToFileURL(programFile("runtime/guest/kap.d.ts"))).href,
    typeCheckMs: options.typeCheckMs ?? 3_000,
    typeCheckHeapMib: options.typeCheckHeapMib ?? 512,
    fetchTimeoutMs: options.fetchTimeoutMs ?? 15_000,
    maxTarballBytes: (options.maxTarballMib ?? 20) * mebibyte,
    maxPackages: options.maxPackages ?? 100,
    maxPackageBytes: (options.maxPackageMib ?? 64) * mebibyte,
  };

  const queue = createFairQueue<Job>();
  let running = 0;
  let isClosed = false;
  removeStaleFolders();
  const start = () => startBuildProcess(settings, limits, options.environment ?? process.env);
  const pool = createProcessPool(concurrency + 1, start, serve, (error) => {
    options.log?.warn({ error }, "build processes do not start");
    failWaiting(error);
  });

  function failWaiting(error: Error): void {
    for (let job = queue.take(); job; job = queue.take()) job.reject(error);
  }

  function serve(): void {
    while (running < concurrency && queue.size > 0) {
      const chosen = pool.take();
      const job = chosen && queue.take();
      if (chosen === undefined || job === undefined) return;
      running++;
      run(chosen, job).finally(() => {
        running--;
        serve();
      });
    }
  }

  async function run(chosen: BuildProcess, job: Job): Promise<void> {
    const outcome = await chosen.build(job.input);
    if (outcome.kind === "result") {
      const isTooLarge = chosen.memory() > limits.memoryBytes * recycleShare || outcome.unpackedBytes > maxUnpackedBytes;
      if (isTooLarge) pool.discard(chosen);
      else pool.giveBack(chosen);
      return job.resolve(outcome.result);
    }
    pool.discard(chosen);
    if (isClosed) return job.reject(new Error(closedMessage));
    if (outcome.kind === "fault") return job.reject(new Error(`The build failed: ${outcome.message}`));
    if (outcome.reason === "crash" && !job.isRetry) {
      // A process that was killed from outside is not the program's fault: only one that comes down twice is refused.
      job.isRetry = true;
      queue.add(job.input.owner ?? "", job);
      return;
    }
    options.log?.warn({ reason: outcome.reason, phase: outcome.phase, owner: job.input.owner }, "a build was ended");
    job.resolve({ ok: false, errors: [fileError(job.input.main_file, stoppedMessage(outcome, limits))], diagnostics: [] });
  }

  function trim(): void {
    trimPackageCache(npmCache, (options.cacheMib ?? 1_024) * mebibyte).catch((error: Error) =>
      options.log?.warn({ error }, "the package cache could not be trimmed"),
    );
  }
  trim();
  const trimming = setInterval(trim, trimEveryMs).unref();

  return {
    async build(input, signal) {
      signal?.throwIfAborted();
      if (isClosed) throw new Error(closedMessage);
      const problems = fileListProblems(input.files, input.main_file);
      if (problems.length > 0) return { ok: false, errors: problems, diagnostics: [] };
      if (queue.size >= maxQueued) throw new BuildQueueFull(queue.size);
      // Starts may have failed for a passing reason (no memory, no processes left).
      pool.revive();
      const done = Promise.withResolvers<BuildResult>();
      const job: Job = { input, isRetry: false, resolve: done.resolve, reject: done.reject };
      const onAbort = () => {
        queue.remove(job);
        done.reject(signal?.reason);
      };
      signal?.addEventListener("abort", onAbort);
      queue.add(input.owner ?? "", job);
      serve();
      return await done.promise.finally(() => signal?.removeEventListener("abort", onAbort));
    },
    ready: pool.ready,
    async close() {
      isClosed = true;
      clearInterval(trimming);
      failWaiting(new Error(closedMessage));
      await pool.close();
    },
  };
}

const closedMessage = "The builder is closed.";

function stoppedMessage({ reason, phase }: ProcessOutcome & { kind: "stopped" }, limits: ProcessLimits): string {
  const { compileMs, fetchMs, memoryBytes } = limits;
  if (reason === "time" && phase === fetchPhase)
    return `Fetching the packages took longer than ${fetchMs / 1_000} s and was ended. Save again, or use fewer packages.`;
  if (reason === "time")
    return `The build was ended because ${phase} took longer than ${compileMs / 1_000} s. Make the program simpler, or use fewer packages.`;
  const advice = "Look for very deep nesting, very large files or very large packages.";
  if (reason === "memory")
    return `The build was ended because ${phase} needed more than ${memoryBytes / mebibyte} MiB of memory. ${advice}`;
  return `The program cannot be built: the compiler came down while ${phase}. ${advice}`;
}
