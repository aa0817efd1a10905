import { createHostOps } from "../host-ops.ts";
import { frameKind } from "../seam/frames.ts";
import type { GuestCallbacks } from "../seam/guest-callbacks.ts";
import type { RunLink } from "./link.ts";
import { BodyTooLarge } from "./request-body.ts";
import type { Run } from "./run.ts";
import type { RunControl } from "./run-control.ts";
import { transferred } from "./transferred.ts";

/** Timers a run may have pending; the one that goes further ends its run. */
const maxTimers = 10_000;
const longestDelayMs = 2_147_483_647;

interface PendingCall {
  run: Run;
  callId: number;
  startedClock: number;
  op: string;
}

const callerGone = JSON.stringify({ name: "AbortError", message: "The caller went away." });

/** An error as the guest rebuilds it. */
const errorText = (error: unknown): string => {
  const { name, message, code } =
    error instanceof Error ? (error as Error & { code?: unknown }) : { name: "Error", message: String(error), code: undefined };
  return JSON.stringify({ name, message, ...(typeof code === "string" ? { code } : {}) });
};

/** Answers what programs ask of the host: some here (bodies, timers, crypto, compression), the rest by the supervisor, which has the credentials. */
export class GuestBridge {
  readonly #engine: RunControl;
  readonly #link: RunLink;
  readonly #ops = createHostOps();
  readonly #calls = new Map<number, PendingCall>();
  #nextCall = 0;

  constructor(engine: RunControl, link: RunLink) {
    this.#engine = engine;
    this.#link = link;
  }

  /** The functions of one context. A run of another context, or one that has ended, is never found by them. */
  callbacks(contextId: number): GuestCallbacks {
    const runs = this.#engine.runs;
    const runOf = (key: number): Run | undefined => {
      const run = runs.get(key);
      return run && run.program?.context.id === contextId ? run : undefined;
    };
    return {
      respond: (key, status, headers, body, more, isLast) => {
        const run = runOf(key);
        if (!run) return;
        this.#guarded(run, () => run.answer.respond(status, headers, body, more));
        run.handlerMs = performance.now() - run.startedClock;
        if (isLast && !run.isEnded) this.#engine.done(run);
      },
      chunk: (key, data) => {
        const run = runOf(key);
        // A run that has ended, or whose caller is gone, is never asked for more: its program waits until it is dropped.
        let wantsMore = false;
        if (run) this.#guarded(run, () => (wantsMore = run.answer.chunk(data)));
        return wantsMore;
      },
      end: (key) => runOf(key)?.answer.end(),
      fail: (key, kind, detail) => {
        const run = runOf(key);
        if (!run) return;
        if (run.handlerMs === 0) run.handlerMs = performance.now() - run.startedClock;
        if (run.isCallerGone) this.#engine.end(run, "client-gone", 499, detail);
        else this.#engine.end(run, "error", kind === "no-handler" ? 501 : 500, detail);
      },
      done: (key) => {
        const run = runOf(key);
        if (run) this.#engine.done(run);
      },
      call: (callId, key, op, text, bytes) => {
        const run = runOf(key);
        if (run) this.#call(run, callId, op, text, bytes);
      },
      sync: (op, text, bytes) => this.#ops.sync(op, text, bytes),
      log: (key, level, text) => {
        const run = runOf(key);
        const program = run?.program;
        if (run && program) run.book.add(level, text, program.head.limits, (line) => program.describeLine(line));
      },
      startTimer: (timerId, key, delayMs, repeat) => {
        const run = runOf(key);
        if (run) this.#startTimer(run, timerId, delayMs, repeat);
      },
      stopTimer: (timerId) => {
        for (const run of runs.values()) {
          const timer = run.program?.context.id === contextId ? run.timers.get(timerId) : undefined;
          if (timer === undefined) continue;
          clearTimeout(timer);
          run.timers.delete(timerId);
        }
      },
      now: () => Date.now(),
    };
  }

  #guarded(run: Run, action: () => void): void {
    try {
      action();
    } catch (error) {
      this.#engine.badAnswer(run, error);
    }
  }

  #startTimer(run: Run, timerId: number, delayMs: number, repeat: boolean): void {
    if (run.timers.size >= maxTimers) {
      this.#engine.end(run, "error", 500, `The run has ${maxTimers} timers pending; no more are given.`);
      return;
    }
    const delay = Number.isFinite(delayMs) ? Math.min(Math.max(1, delayMs), longestDelayMs) : 1;
    const fire = (): void => {
      if (!repeat) run.timers.delete(timerId);
      const entries = run.program?.context.entries;
      if (entries) this.#engine.enter(run, entries.timer, [timerId, run.key]);
    };
    run.timers.set(timerId, repeat ? setInterval(fire, delay) : setTimeout(fire, delay));
  }

  #call(run: Run, callId: number, op: string, text: string, bytes: ArrayBuffer | undefined): void {
    const call: PendingCall = { run, callId, startedClock: performance.now(), op };
    if (op === "body.drain") {
      run.answer.onDrain((isGone) => this.#engine.defer(() => this.#settle(call, !isGone, isGone ? callerGone : "", undefined)));
      return;
    }
    if (op === "body.cancel") {
      run.body.cancel();
      this.#engine.defer(() => this.#settle(call, true, "", undefined));
      return;
    }
    if (op === "body.pull") {
      this.#answerBy(
        call,
        run.body.pull().then((piece) => (piece ? { bytes: piece } : { text: "end" })),
      );
      return;
    }
    if (this.#ops.handles(op)) {
      this.#answerBy(call, this.#ops.call(run.key, op, text, bytes));
      return;
    }
    if (op === "fetch" || op.startsWith("fetch.push")) run.egressBytes += text.length + (bytes?.byteLength ?? 0);
    run.calledHost = true;
    this.#nextCall = (this.#nextCall % 0xfffffff0) + 1;
    const number = this.#nextCall;
    this.#calls.set(number, call);
    const remaining = Math.max(1, run.wallDeadline - Date.now());
    const context = run.program?.context.id ?? 0;
    this.#link.send(frameKind.call, number, run.key, `${op}\0${context}\0${remaining}\0${text}`, bytes && new Uint8Array(bytes));
  }

  #answerBy(call: PendingCall, answer: Promise<{ text?: string; bytes?: ArrayBuffer | undefined }>): void {
    answer.then(
      ({ text, bytes }) => this.#settle(call, true, text, bytes),
      (error: unknown) => {
        if (error instanceof BodyTooLarge) this.#engine.end(call.run, "refused", 413, error.message);
        else this.#settle(call, false, errorText(error), undefined);
      },
    );
  }

  /** An answer of the supervisor. One for a run that has ended is dropped. */
  answered(number: number, ok: boolean, text: string, bytes: Buffer): void {
    const call = this.#calls.get(number);
    if (!call) return;
    this.#calls.delete(number);
    if (call.op.startsWith("fetch")) call.run.egressBytes += bytes.length;
    const own = bytes.length === 0 ? undefined : new Uint8Array(bytes).buffer;
    this.#settle(call, ok, text, own);
  }

  #settle(call: PendingCall, ok: boolean, text: string | undefined, bytes: ArrayBuffer | undefined): void {
    const { run } = call;
    if (run.isEnded || !run.program) return;
    const waited = performance.now() - call.startedClock;
    run.hostMs += waited;
    if (call.op.startsWith("db.")) run.dbMs += waited;
    this.#engine.enter(run, run.program.context.entries.settle, [call.callId, run.key, ok, text, bytes && transferred(bytes)]);
  }

  /** The run has ended: its host calls are cancelled wherever they are. */
  forget(run: Run): void {
    this.#ops.forget(run.key);
    if (!run.calledHost) return;
    for (const [number, call] of this.#calls) if (call.run === run) this.#calls.delete(number);
    this.#link.send(frameKind.forget, 0, run.key);
  }
}
