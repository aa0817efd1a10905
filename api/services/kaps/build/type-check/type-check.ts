import { Worker } from "node:worker_threads";
import { entryFile } from "#platform/program-files.ts";
import type { Diagnostic } from "../build-contract.ts";
import type { TypeCheckInput } from "./type-program.ts";
import type { TypeWorkerData } from "./worker.ts";

/** Diagnostics, or why the check did not come to an end. */
export type TypeCheckOutcome = { diagnostics: Diagnostic[] } | { unfinished: string };

export interface TypeCheck {
  /** Resolves when the first checker is warm. */
  ready: Promise<void>;
  /** Never takes much longer than the limit, whatever the program is. */
  run(input: TypeCheckInput): Promise<TypeCheckOutcome>;
  close(): Promise<void>;
}

export interface TypeCheckOptions extends TypeWorkerData {
  /** Longest check in milliseconds; after it the thread is ended and replaced. */
  limitMs: number;
  heapMib: number;
}

/** Longest wait for a fresh thread to be warm, in milliseconds. */
const startMs = 20_000;

interface Thread {
  worker: Worker;
  ready: Promise<void>;
}

/**
 * The type checker in a thread of its own: a program whose types never end (or never fit in memory) costs its author the diagnostics, not
 * the save, and the thread is replaced. One check at a time.
 */
export function createTypeCheck(options: TypeCheckOptions): TypeCheck {
  const { limitMs, heapMib, kapTypes, unpackFolder } = options;
  let thread = start();
  let checks = 0;

  function start(): Thread {
    const workerData: TypeWorkerData = { kapTypes, unpackFolder };
    const worker = new Worker(entryFile("api/services/kaps/build/type-check/worker"), {
      workerData,
      resourceLimits: { maxOldGenerationSizeMb: heapMib },
    });
    const ready = new Promise<void>((resolve, reject) => {
      worker.once("message", () => resolve());
      worker.once("error", reject);
      worker.once("exit", () => reject(new Error("The type checker ended while starting.")));
    });
    ready.catch(() => undefined);
    worker.unref();
    return { worker, ready };
  }

  async function replace(old: Thread): Promise<void> {
    if (thread === old) thread = start();
    await old.worker.terminate();
  }

  async function runOn(current: Thread, input: TypeCheckInput): Promise<TypeCheckOutcome> {
    const { worker } = current;
    await withLimit(current.ready, startMs);
    const id = ++checks;
    const outcome = await new Promise<TypeCheckOutcome>((resolve) => {
      const timer = setTimeout(() => finish({ unfinished: `it took longer than ${limitMs / 1_000} s` }), limitMs);
      const onMessage = (message: { id: number; diagnostics?: Diagnostic[]; problem?: string }) => {
        if (message.id === id)
          finish(message.diagnostics ? { diagnostics: message.diagnostics } : { unfinished: message.problem ?? "it failed" });
      };
      const onError = (error: NodeJS.ErrnoException) =>
        finish({ unfinished: error.code === "ERR_WORKER_OUT_OF_MEMORY" ? `it needed more than ${heapMib} MiB of memory` : error.message });
      const onExit = () => finish({ unfinished: "the checker ended" });
      function finish(result: TypeCheckOutcome): void {
        clearTimeout(timer);
        worker.off("message", onMessage).off("error", onError).off("exit", onExit);
        resolve(result);
      }
      worker.on("message", onMessage).on("error", onError).on("exit", onExit);
      worker.postMessage({ id, input });
    });
    if ("unfinished" in outcome) {
      worker.on("error", () => undefined);
      await replace(current);
    }
    return outcome;
  }

  return {
    get ready() {
      return thread.ready;
    },
    async run(input) {
      const current = thread;
      try {
        return await runOn(current, input);
      } catch (error) {
        await replace(current);
        return { unfinished: (error as Error).message };
      }
    },
    async close() {
      await thread.worker.terminate();
    },
  };
}

async function withLimit(promise: Promise<void>, limitMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("the checker was not ready in time")), limitMs);
  });
  await Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
