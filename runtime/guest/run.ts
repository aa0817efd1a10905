/** A run: one call of a handler, from the host's `run` to `done` or `fail`, with its ctx. */

import { currentRunKey } from "./current-run.ts";
import { describeError } from "./describe-error.ts";
import { DOMException } from "./dom-exception.ts";
import { dropCalls, host } from "./host.ts";
import { hasOwn, mapDelete, mapGet, mapSet, promiseResolve, promiseThen, SafeMap } from "./primordials.ts";
import { abortReason, abortRequest, type Request } from "./request.ts";
import { dropTimers } from "./timers.ts";

/** The head of the host's `run` call. */
export interface RunHead {
  file: string;
  trigger: string | { id: string; kind: string };
  runId: string;
  kap: { id: string; slug: string; name: string };
  user?: { id: string; email: string; name: string; role: string };
  /** The host wants to hear of what the program gives to waitUntil. */
  isDry?: boolean;
}

export class Run {
  readonly key: number;
  readonly head: RunHead;
  request: Request | null = null;
  /** Gives up the body that is being sent, while it is a stream. */
  cancelAnswer: ((reason: unknown) => Promise<unknown>) | null = null;
  /** What must settle before the run is done: the handler itself and every promise given to waitUntil. */
  open = 1;
  hasEnded = false;
  /** Open groups of the console. */
  groupDepth = 0;

  constructor(key: number, head: RunHead) {
    this.key = key;
    this.head = head;
  }

  /** One of the awaited things has ended well. */
  settleOne(): void {
    this.open--;
    if (this.open === 0 && !this.hasEnded) {
      dropRun(this.key);
      host.done(this.key);
    }
  }

  /** The run has failed; only the first failure counts. */
  fail(kind: string, detail: string): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    host.fail(this.key, kind, detail);
  }

  /** Gives up the body that is being sent. */
  cancel(reason: unknown): void {
    const { cancelAnswer } = this;
    this.cancelAnswer = null;
    if (cancelAnswer === null) return;
    promiseThen(
      cancelAnswer(reason),
      () => {},
      () => {},
    );
  }

  failWith(error: unknown): void {
    if (!this.hasEnded) this.fail("error", describeError(error));
  }
}

const runs = new SafeMap<number, Run>();

export function addRun(run: Run): void {
  mapSet(runs, run.key, run);
}

export const findRun = (runKey: number): Run | undefined => mapGet(runs, runKey);

/** Forgets a run and what it has left pending. Runs no code of the program. */
export function dropRun(runKey: number): void {
  const run = mapGet(runs, runKey);
  if (run !== undefined) run.hasEnded = true;
  mapDelete(runs, runKey);
  dropCalls(runKey);
  dropTimers(runKey);
}

/** Tells the program that its caller is gone or its time over: `request.signal` aborts, a streamed answer is cancelled. */
export function abortRun(runKey: number, reason: string): void {
  const run = mapGet(runs, runKey);
  if (run === undefined) return;
  const error = abortReason(reason);
  run.cancel(error);
  if (run.request !== null) abortRequest(run.request, error);
}

/** An error nobody caught: of the run whose code is executing. */
export function failCurrentRun(error: unknown): void {
  mapGet(runs, currentRunKey())?.failWith(error);
}

/** The second argument of every handler (decided §7.1). */
export class KapContext {
  readonly #run: Run;

  constructor(run: Run) {
    this.#run = run;
  }

  /** Keeps the run going until the promise settles, within the run's limits; a rejection fails the run. */
  waitUntil(promise: unknown): void {
    const run = this.#run;
    if (run.hasEnded) throw new DOMException("The run has ended: ctx.waitUntil must be called before.", "InvalidStateError");
    run.open++;
    if (hasOwn(run.head, "isDry")) host.call(0, run.key, "dry.wait-until", "", undefined);
    promiseThen(
      promiseResolve(promise),
      () => run.settleOne(),
      (error) => run.failWith(error),
    );
  }

  get runId(): string {
    return this.#run.head.runId;
  }
  get kap(): RunHead["kap"] {
    return this.#run.head.kap;
  }
  get trigger(): RunHead["trigger"] {
    return this.#run.head.trigger;
  }
  /** The signed-in caller, when the audience required one. */
  get user(): RunHead["user"] {
    const { head } = this.#run;
    // Only what the host has said: nothing that a library has put on Object.prototype.
    return hasOwn(head, "user") ? head.user : undefined;
  }
  get [Symbol.toStringTag](): string {
    return "KapContext";
  }
}
