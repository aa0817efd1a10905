import type { BuildProcess } from "./build-process.ts";

/** Build processes that are kept at a number: each that ends is replaced by a fresh one, warmed up before it is handed out. */
export interface ProcessPool {
  /** A warm process, the one used last first; the spare comes last. Undefined when none is free. */
  take(): BuildProcess | undefined;
  giveBack(used: BuildProcess): void;
  /** Ends a process for good. */
  discard(old: BuildProcess): void;
  /** Tries again after starts that failed. */
  revive(): void;
  /** Resolves when all processes are warm; rejects with the reason why one did not start. */
  ready(): Promise<void>;
  close(): Promise<void>;
}

/** So many processes that end while starting, one after another, mean that starting does not work for now. */
const maxFailedStarts = 3;

/** Keeps `size` processes. `onFree` is told of each that became warm, `onFailure` when starting is given up until `revive`. */
export function createProcessPool(
  size: number,
  start: () => BuildProcess,
  onFree: () => void,
  onFailure: (error: Error) => void,
): ProcessPool {
  const all = new Set<BuildProcess>();
  const idle: BuildProcess[] = [];
  let failedStarts = 0;
  let isClosed = false;

  function replenish(): void {
    while (!isClosed && all.size < size && failedStarts < maxFailedStarts) add(start());
  }

  function add(started: BuildProcess): void {
    all.add(started);
    started.ready.then(
      () => {
        failedStarts = 0;
        idle.unshift(started);
        onFree();
      },
      (error: Error) => {
        discard(started);
        if (isClosed) return;
        failedStarts++;
        if (failedStarts >= maxFailedStarts) onFailure(error);
        else replenish();
      },
    );
  }

  function discard(old: BuildProcess): void {
    all.delete(old);
    void old.end();
  }

  replenish();
  return {
    take() {
      for (let next = idle.pop(); next; next = idle.pop()) {
        if (next.isAlive()) return next;
        discard(next);
        replenish();
      }
      return undefined;
    },
    giveBack(used) {
      idle.push(used);
    },
    discard(old) {
      discard(old);
      replenish();
    },
    revive() {
      failedStarts = 0;
      replenish();
    },
    async ready() {
      await Promise.all([...all].map(({ ready }) => ready));
    },
    async close() {
      isClosed = true;
      await Promise.all([...all].map((each) => each.end()));
    },
  };
}
