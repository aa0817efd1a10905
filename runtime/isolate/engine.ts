import type { ServerResponse } from "node:http";
import { type BoardWriter, boardSlots } from "../seam/flight-board.ts";
import { frameKind } from "../seam/frames.ts";
import type { ProgramParts } from "../seam/program-bytes.ts";
import { codeCacheStates, type LoadHead, type Outcome } from "../seam/records.ts";
import { Admission } from "./admission.ts";
import { AnswerTooLarge } from "./answer.ts";
import { GuestBridge } from "./guest-bridge.ts";
import type { RunLink } from "./link.ts";
import { entryMs, ProcessorShare, threadCpuMs } from "./processor.ts";
import type { Program } from "./program.ts";
import { Programs } from "./programs.ts";
import { type Arrival, openRun, type Run, runEnd } from "./run.ts";
import type { RunControl } from "./run-control.ts";
import type { Entry, EntryArgument, Sandbox } from "./sandbox.ts";
import { transferred } from "./transferred.ts";
import { runHead, scheduledAnswer } from "./trigger-heads.ts";

const sweepMs = 50;
/** An entry that begins at the run's wall deadline, or after, has at most this long. */
const lastEntryMs = 50;
/** What the kit may take to drop a run's state; it runs nothing of the program then. */
const forgetTimeoutMs = 200;
/** Each has a context of its own, which takes memory of the isolate. */
const maxDryRuns = 4;

/**
 * Runs programs: takes arrivals, enters the isolate on their behalf with what is left of their CPU time, ends them by answer, failure or limit, and hands their records over.
 */
export class Engine implements RunControl {
  readonly runs = new Map<number, Run>();
  isLost = false;
  onIdle: (() => void) | null = null;
  onLost: (() => void) | null = null;

  readonly #sandbox: Sandbox;
  readonly #link: RunLink;
  readonly #board: BoardWriter;
  readonly #bridge: GuestBridge;
  readonly #programs: Programs;
  readonly #admission: Admission;
  readonly #freeSlots: number[] = Array.from({ length: boardSlots }, (_, slot) => boardSlots - 1 - slot);
  readonly #deferred: (() => void)[] = [];
  #nextKey = 0;
  #depth = 0;
  readonly #share = new ProcessorShare();
  /** The run that is inside the isolate, and the thread's CPU time up to which it, or whoever was, has been charged. */
  #inside: Run | null = null;
  #chargedMs = 0;
  #sweeper: NodeJS.Timeout | undefined;

  constructor(sandbox: Sandbox, link: RunLink, board: BoardWriter) {
    this.#sandbox = sandbox;
    this.#link = link;
    this.#board = board;
    this.#bridge = new GuestBridge(this, link);
    this.#programs = new Programs(() => sandbox.createContext((contextId) => this.#bridge.callbacks(contextId)));
    this.#admission = new Admission(this, link, board, (run, bytes) => this.#start(run, bytes));
  }

  get program(): Program | null {
    return this.#programs.current;
  }

  /** An answer of the supervisor to a host call. */
  answered(number: number, ok: boolean, text: string, bytes: Buffer): void {
    this.#bridge.answered(number, ok, text, bytes);
  }

  releaseSlot(slot: number): void {
    if (slot < 0) return;
    this.#board.release(slot);
    this.#freeSlots.push(slot);
  }

  /** Takes a revision; what has waited for it starts. */
  load(head: LoadHead, parts: ProgramParts | null): void {
    const codeCache = this.#programs.load(head, parts);
    this.#link.send(frameKind.loaded, head.revision, codeCacheStates.indexOf(codeCache));
    this.#admission.loaded(head.revision);
  }

  /** No run will follow those there are. */
  close(): void {
    this.#programs.close();
  }

  revisionUnavailable(revision: number, why: string): void {
    this.#admission.unavailable(revision, why);
  }

  /** A data request has arrived for the assigned kap. */
  arrive(arrival: Arrival, response: ServerResponse): void {
    const program = this.program as Program;
    const { limits } = program.head;
    const trigger = program.triggerOf(arrival.triggerId);
    const slot = this.#freeSlots.pop() ?? -1;
    this.#nextKey = (this.#nextKey % 0xfffffff0) + 1;
    const key = this.#nextKey;
    const run = openRun(key, slot, arrival, response, trigger, limits, (line) => this.#link.addLine(line));
    this.runs.set(key, run);
    this.#sweeper ??= setTimeout(this.#sweep, sweepMs);
    response.on("close", () => this.#callerGone(run));
    if (arrival.isDry) {
      run.calledHost = true; // the supervisor has an account of it from the start
      this.#link.send(frameKind.dry, 0, key, run.id);
      if ([...this.runs.values()].filter((other) => other.arrival.isDry).length > maxDryRuns) {
        this.end(run, "refused", 503, `This kap has ${maxDryRuns} dry runs going on. Try again when one has ended.`);
        return;
      }
    }
    if (slot < 0 || this.runs.size > limits.concurrency + limits.queue) {
      this.end(
        run,
        "refused",
        503,
        `This kap already serves ${limits.concurrency} runs and ${limits.queue} more wait. Call again in a second.`,
      );
      return;
    }
    if (run.body.isTooLarge) {
      this.end(run, "refused", 413, `The request body is larger than the ${limits.request_body_bytes} bytes a kap may receive.`);
      return;
    }
    if (arrival.revision > program.head.revision) {
      this.#board.queue(slot, run.id, run.arrivedAt);
      this.#admission.awaitRevision(run, arrival.revision, run.arrivedClock);
      return;
    }
    if (!trigger) {
      this.end(run, "error", 501, "No trigger of this kap answers requests: give its main file a request trigger.");
      return;
    }
    this.#admission.admit(run);
  }

  #start(run: Run, bytes: ArrayBuffer | undefined): void {
    const program = this.program as Program;
    // A newer revision may have moved the trigger to another file while the run waited.
    const trigger = program.triggerOf(run.arrival.triggerId) ?? run.trigger;
    run.startedClock = performance.now();
    if (!trigger) {
      this.end(run, "error", 501, "The trigger of this run is gone.");
      return;
    }
    const served = run.arrival.isDry ? this.#programs.forDryRun(program) : program;
    if (served === null) {
      if (this.#sandbox.isolate.isDisposed) this.lose("memory-exceeded", "the program used more memory than the kap may");
      this.end(run, "memory-exceeded", 503, "The isolate has no room for a dry run beside what the kap holds in memory.");
      return;
    }
    run.program = served;
    run.trigger = trigger;
    served.activeRuns++;
    this.#admission.entered();
    if (program.broken !== null) {
      this.end(run, "error", 500, program.describe(program.broken));
      return;
    }
    const head = runHead(run, served, trigger, bytes);
    if (head === null) {
      this.end(run, "error", 400, "The payload of this trigger run cannot be read.");
      return;
    }
    this.enter(run, served.context.entries.run, [run.key, head.kind, head.text, head.body && transferred(head.body)]);
  }

  /**
   * Enters the isolate for a run: what happens until the isolate is quiet again is on that run's account.
   * Every way the entry can fail becomes the run's outcome; this never throws.
   */
  enter(run: Run, entry: Entry, args: EntryArgument[]): void {
    if (this.isLost || run.isEnded) return;
    const left = run.cpuBudgetMs - run.cpuMs;
    if (left <= 0) {
      this.#exceeded(run);
      return;
    }
    const outer = this.#inside;
    this.#charge();
    this.#inside = run;
    const before = performance.now();
    const enteredAt = Date.now();
    const fairMs = entryMs(left, this.#share.at(before));
    const timeout = Math.ceil(Math.max(lastEntryMs, Math.min(fairMs, run.wallDeadline - enteredAt)));
    this.#board.enter(run.slot, {
      runId: run.id,
      startedAt: run.arrivedAt,
      enteredAt,
      timeoutMs: timeout,
      wallDeadline: run.wallDeadline,
      cpuMs: run.cpuMs,
      cpuBudgetMs: run.cpuBudgetMs,
      cpuClockMs: this.#chargedMs,
    });
    this.#depth++;
    let failure: unknown;
    let failed = false;
    try {
      entry.applySync(undefined, args, { timeout });
    } catch (error) {
      failure = error;
      failed = true;
    }
    this.#depth--;
    this.#charge();
    this.#inside = outer;
    if (this.#depth === 0) this.#board.left();
    const spent = performance.now() - before;
    if (failed) this.#entryFailed(run, entry, failure, spent >= timeout - 1);
    if (this.#depth === 0 && this.#deferred.length > 0) this.#runDeferred();
  }

  /** Puts the CPU time since the last charge on the account of the run that is inside. */
  #charge(): void {
    const now = threadCpuMs();
    if (this.#inside) this.#inside.cpuMs += now - this.#chargedMs;
    this.#chargedMs = now;
  }

  /** Does something that may enter the isolate: now when nobody is inside, else right after. */
  defer(action: () => void): void {
    if (this.#depth === 0) action();
    else this.#deferred.push(action);
  }

  #runDeferred(): void {
    for (let turns = 0; turns < 64; turns++) {
      const action = this.#deferred.shift();
      if (!action) return;
      action();
    }
    setImmediate(() => this.#runDeferred());
  }

  #entryFailed(run: Run, entry: Entry, failure: unknown, timeIsUp: boolean): void {
    if (this.#sandbox.isolate.isDisposed) {
      this.lose("memory-exceeded", "the program used more memory than the kap may");
      return;
    }
    const message = failure instanceof Error ? failure.message : String(failure);
    if (timeIsUp && message === "Script execution timed out.") {
      if (run.cpuMs >= run.cpuBudgetMs) this.#exceeded(run);
      else if (Date.now() >= run.wallDeadline) this.#timedOut(run);
      else this.#starved(run);
      return;
    }
    const program = run.program;
    const detail = failure instanceof Error ? (failure.stack ?? `${failure.name}: ${message}`) : message;
    if (!program || run.isEnded) return;
    const { rejection } = program.context.entries;
    const tell = (): void => this.enter(run, rejection, [run.key, detail]);
    // A listener for rejections that rejects itself would nest here until the stack is used up.
    if (entry === rejection) setImmediate(tell);
    else this.defer(tell);
  }

  #exceeded(run: Run): void {
    this.end(run, "cpu-exceeded", 503, `The run used its ${run.cpuBudgetMs} ms of CPU time.`);
  }

  #starved(run: Run): void {
    const got = `${Math.round(run.cpuMs)} of its ${run.cpuBudgetMs} ms of CPU time`;
    this.end(run, "timeout", 504, `The run held the isolate too long, and the machine was too busy to give it more than ${got}.`);
  }

  #timedOut(run: Run): void {
    if (this.#done.has(run.key)) this.end(run, "client-gone", run.answer.status, "The caller did not read the response in time.");
    else this.end(run, "timeout", 504, `The run took longer than its ${run.wallDeadline - run.arrivedAt} ms.`);
  }

  /** The isolate is gone. Everyone in flight is told the same outcome; the supervisor brings the spare. */
  lose(outcome: Outcome, why: string): void {
    if (this.isLost) return;
    this.isLost = true;
    this.onLost?.();
    for (const run of [...this.runs.values()])
      this.end(run, run.startedClock === 0 ? "crashed" : outcome, 503, `The isolate was lost: ${why}.`);
    this.#link.flush();
    this.#link.send(frameKind.lost, 0, 0, why);
  }

  #callerGone(run: Run): void {
    if (run.isEnded || run.answer.isSent) {
      this.settleDone(run);
      return;
    }
    run.isCallerGone = true;
    if (run.program === null) return;
    const entries = run.program.context.entries;
    this.defer(() => this.enter(run, entries.abort, [run.key, "client-gone"]));
    this.settleDone(run);
  }

  readonly #done = new Set<number>();

  /** The program has done all it had to for this run; the run ends when its answer has left the process. */
  done(run: Run): void {
    if (run.trigger?.kind !== "request") {
      this.end(run, "ok", 200, null);
      return;
    }
    if (!run.answer.hasHead && !run.isCallerGone) {
      this.end(run, "error", 500, "The program ended without a Response.");
      return;
    }
    if (run.answer.isFlushed || run.isCallerGone) {
      this.end(run, run.isCallerGone ? "client-gone" : "ok", run.answer.status, null);
      return;
    }
    this.#done.add(run.key);
  }

  settleDone(run: Run): void {
    if (!run.isEnded && this.#done.has(run.key))
      this.end(run, run.answer.isComplete && !run.isCallerGone ? "ok" : "client-gone", run.answer.status, null);
  }

  /** An answer the limits or HTTP do not allow. */
  badAnswer(run: Run, error: unknown): void {
    if (error instanceof AnswerTooLarge) {
      this.end(run, "response-too-large", 502, error.message);
      return;
    }
    this.end(run, "error", 500, error instanceof Error ? `${error.name}: ${error.message}` : String(error));
  }

  /** Ends a run: answers its caller unless that has been done, drops what it left behind, hands its record over, lets the next one in. */
  end(run: Run, outcome: Outcome, status: number, detail: string | null): void {
    if (run.isEnded) return;
    run.isEnded = true;
    if (run === this.#inside) this.#charge();
    const now = Date.now();
    const { program } = run;
    const text = detail === null ? null : program ? program.describe(detail) : detail;
    const isGone = run.isCallerGone && outcome !== "client-gone" && !run.answer.hasHead;
    if (outcome === "ok" || outcome === "client-gone") {
      if (run.trigger?.kind !== "request") scheduledAnswer(run.answer, outcome, text);
    } else if (program && run.trigger && run.trigger.kind !== "request") scheduledAnswer(run.answer, outcome, text);
    else run.answer.fail(status, outcome, text ?? "");
    const httpStatus = run.answer.status === 0 || isGone ? null : run.answer.status;
    this.runs.delete(run.key);
    this.#done.delete(run.key);
    // What the program left unread would stand before the connection's next request.
    if (run.body.kind === "stream") run.body.cancel();
    for (const timer of run.timers.values()) clearTimeout(timer);
    run.timers.clear();
    this.#bridge.forget(run);
    if (run.slot >= 0) {
      this.#board.end(run.slot, outcome, httpStatus ?? 0, now, run.cpuMs);
      this.#link.addRun(runEnd(run, outcome, httpStatus, text, now), run.slot);
    } else this.#link.addRun(runEnd(run, outcome, httpStatus, text, now), -1);
    // The program may go on and wedge the isolate: what its caller has been told must be known outside before it does.
    if (this.#depth > 0 && outcome !== "ok" && run.slot >= 0) {
      this.#board.endInside(run.slot);
      this.#link.flush();
    }
    if (program) this.#leave(run, program, outcome);
    else this.#admission.forget(run);
    if (this.runs.size === 0) this.onIdle?.();
  }

  #leave(run: Run, program: Program, outcome: Outcome): void {
    program.activeRuns--;
    this.#admission.left();
    if (this.isLost) return;
    if (outcome !== "ok") this.defer(() => this.#forget(run, program));
    else program.releaseWhenIdle();
  }

  /** Lets the kit drop the state of a run that did not end by itself. A run killed while a module was loading leaves a context nobody can use. */
  #forget(run: Run, program: Program): void {
    if (this.isLost) return;
    try {
      const mustReplace = program.context.entries.forget.applySync(undefined, [run.key], { timeout: forgetTimeoutMs });
      if (mustReplace === true) this.#programs.renew(program);
    } catch {
      if (this.#sandbox.isolate.isDisposed) {
        this.lose("memory-exceeded", "the program used more memory than the kap may");
        return;
      }
    }
    program.releaseWhenIdle();
  }

  /** Ends what has reached its wall deadline. Runs every 50 ms while anything is in flight. */
  readonly #sweep = (): void => {
    this.#sweeper = undefined;
    const now = Date.now();
    for (const run of [...this.runs.values()]) {
      if (now >= run.wallDeadline) this.#timedOut(run);
    }
    if (this.runs.size > 0) this.#sweeper = setTimeout(this.#sweep, sweepMs);
  };
}
