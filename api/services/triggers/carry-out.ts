import { setTimeout as delay } from "node:timers/promises";
import { outcomeOf } from "#platform/run-outcome.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../http/refusal.ts";
import { type AttemptEnd, endAttempt } from "../runs/finish.ts";

/** How long a run may hold one of the process's job slots before it goes on beside them. */
const slotMs = 1_000;
/** Runs that go on beside the slots of one process; past that number a run keeps its slot. */
const maxDetached = 500;

const detached = new WeakMap<Deps, Set<Promise<void>>>();

/**
 * Waits for a run whose attempt has been begun, but not longer than a second: a run that takes minutes must not keep the jobs of other kaps from their slots. It then goes on by
 * itself; should the process die meanwhile, the run's row says so and a sweep ends it, or gives it another attempt.
 */
export async function holdSlotFor(deps: Deps, run: Promise<void>): Promise<void> {
  const running = detached.get(deps) ?? new Set();
  detached.set(deps, running);
  if (running.size >= maxDetached) return run;
  let isDetached = false;
  const tracked = run
    .catch((error: unknown) => {
      if (!isDetached) throw error; // the queue tries again
      deps.log.error({ err: error }, "a run could not be carried out to its end");
    })
    .finally(() => running.delete(tracked));
  running.add(tracked);
  const timer = new AbortController();
  try {
    await Promise.race([tracked, delay(slotMs, undefined, { signal: timer.signal }).catch(() => undefined)]);
  } finally {
    isDetached = true;
    timer.abort();
  }
}

/** Waits until the runs that go on beside the job slots have ended, at most `ms`: for a graceful stop, after the workers have closed. */
export async function drainRuns(deps: Deps, ms: number): Promise<void> {
  const timer = new AbortController();
  await Promise.race([Promise.allSettled(detached.get(deps) ?? []), delay(ms, undefined, { signal: timer.signal }).catch(() => undefined)]);
  timer.abort();
}

const endTries = 6;

/** Ends an attempt although the database may be away for some seconds; past half a minute the runtime's report or a sweep ends it. */
export async function endAttemptSurely(deps: Deps, end: Omit<AttemptEnd, "outcome"> & { outcome: string }): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await endAttempt(deps.postgres, { ...end, outcome: outcomeOf(end.outcome) });
      return;
    } catch (error) {
      if (attempt === endTries) throw error;
      await delay(500 * 2 ** (attempt - 1));
    }
  }
}

/** How an attempt ended that never reached the program: what the platform refuses says why; anything else is our own failure. */
export function outcomeOfFailure(deps: Deps, error: unknown): { outcome: "refused" | "crashed"; detail: string } {
  if (error instanceof Refusal) return { outcome: "refused", detail: error.message };
  deps.log.error({ err: error }, "a run could not be carried out");
  return { outcome: "crashed", detail: "the platform failed while it carried out the run" };
}
