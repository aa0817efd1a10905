/** AbortController and AbortSignal (DOM §3). */
import { DOMException } from "./dom-exception.ts";
import { defineHandler, dispatch, Event, EventTarget } from "./events.ts";
import { NativePromise, promiseThen } from "./primordials.ts";
import { startTimer } from "./timers.ts";

const key = Symbol("construct");
/** Aborts a signal: only its controller and the kit can. */
export let abortSignal: (signal: AbortSignal, reason: unknown) => void;
/** Runs `algorithm` when the signal aborts, before its listeners; returns a function that takes it back. */
export let whenAborted: (signal: AbortSignal, algorithm: () => void) => () => void;
export const newSignal = (): AbortSignal => new AbortSignal(key);

export class AbortSignal extends EventTarget {
  #isAborted = false;
  #reason: unknown = undefined;
  #algorithms: (() => void)[] = [];

  static {
    abortSignal = (signal, reason) => {
      if (signal.#isAborted) return;
      signal.#isAborted = true;
      signal.#reason = reason;
      const algorithms = signal.#algorithms;
      signal.#algorithms = [];
      for (let index = 0; index < algorithms.length; index++) algorithms[index]?.();
      dispatch(signal, new Event("abort"));
    };
    whenAborted = (signal, algorithm) => {
      signal.#algorithms[signal.#algorithms.length] = algorithm;
      return () => {
        const others: (() => void)[] = [];
        for (let index = 0; index < signal.#algorithms.length; index++) {
          const other = signal.#algorithms[index] as () => void;
          if (other !== algorithm) others[others.length] = other;
        }
        signal.#algorithms = others;
      };
    };
  }

  constructor(given?: unknown) {
    if (given !== key) throw new TypeError("Illegal constructor");
    super();
  }

  static abort(reason?: unknown): AbortSignal {
    const signal = newSignal();
    abortSignal(signal, reason === undefined ? aborted() : reason);
    return signal;
  }

  static timeout(delayMs: number): AbortSignal {
    const signal = newSignal();
    const delay = Number(delayMs);
    if (!(delay >= 0) || delay > Number.MAX_SAFE_INTEGER) throw new TypeError("A timeout must be a number of milliseconds.");
    startTimer(
      () => abortSignal(signal, new DOMException("The operation timed out.", "TimeoutError")),
      Math.min(delay, 2_147_483_647),
      false,
    );
    return signal;
  }

  static any(signals: Iterable<AbortSignal>): AbortSignal {
    const combined = newSignal();
    const sources = [...signals];
    for (const source of sources) {
      if (!(source instanceof AbortSignal)) throw new TypeError("AbortSignal.any needs a list of signals.");
    }
    const done = sources.find((source) => source.aborted);
    if (done !== undefined) abortSignal(combined, done.reason);
    else for (const source of sources) whenAborted(source, () => abortSignal(combined, source.reason));
    return combined;
  }

  get aborted(): boolean {
    return this.#isAborted;
  }
  get reason(): unknown {
    return this.#reason;
  }
  throwIfAborted(): void {
    if (this.#isAborted) throw this.#reason;
  }
  override get [Symbol.toStringTag](): string {
    return "AbortSignal";
  }
  declare onabort: ((event: Event) => void) | null;
}
defineHandler(AbortSignal.prototype, "abort");

const aborted = () => new DOMException("This operation was aborted.", "AbortError");

export class AbortController {
  #signal = newSignal();
  get signal(): AbortSignal {
    return this.#signal;
  }
  abort(reason?: unknown): void {
    abortSignal(this.#signal, reason === undefined ? aborted() : reason);
  }
  get [Symbol.toStringTag](): string {
    return "AbortController";
  }
}

/** The promise's outcome, or the signal's reason as soon as it aborts; `onAbort` runs then. */
export function untilAborted<T>(signal: AbortSignal | null, promise: Promise<T>, onAbort: () => void): Promise<T> {
  if (signal === null) return promise;
  return new NativePromise<T>((resolve, reject) => {
    const stop = whenAborted(signal, () => {
      onAbort();
      reject(signal.reason);
    });
    promiseThen(
      promise,
      (value) => {
        stop();
        resolve(value);
      },
      (reason) => {
        stop();
        reject(reason);
      },
    );
  });
}
