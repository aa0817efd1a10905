import { type BoardRun, readBoard } from "../seam/flight-board.ts";
import { frameKind } from "../seam/frames.ts";
import type { Outcome } from "../seam/records.ts";
import type { RuntimeChild } from "./child-process.ts";
import { mainThreadCpuMs, residentBytes } from "./process-facts.ts";

const tickMs = 50;
/** While nothing is in flight the board is looked at this often. */
const idleTickMs = 250;
/** A child that answers within this time is not looked at any closer; a lone run past its time gets as much CPU time more. */
const graceMs = 350;
/**
 * CPU time the child gets after an entry's time is over: V8 hears the isolate's own timeout late. A loop without calls looks for it only when its
 * function's budget for tiering is used up, at most 2³⁰ units, which takes 0.5 to 1.3 s (compiled code, or a function too large to be compiled).
 * To kill sooner would fail every other run in flight for a loop that is about to end; a run that is alone gets `graceMs`.
 */
const lateCpuMs = 1_800;
/**
 * CPU time above its budget at which a lone run is past its time, whatever V8 was told: V8 ends it sooner, unless the machine was busy when it was told.
 */
const overdraftMs = 300;
/** The same for a run with neighbours, which V8 spares: it is told to end the run before this, unless the machine was far busier then. */
const crowdOverdraftMs = ({ cpuBudgetMs }: BoardRun): number => cpuBudgetMs + 500;
/**
 * A child whose main thread gets no CPU time is not wedged, on a busy machine; silence this long is a wedge whatever it used. Below the 5 s after
 * which isolated-vm itself gives the isolate up, and could not say whose fault it was.
 */
const starvedMs = 4_000;
const pingEveryMs = 200;
/** Stands for the sequence of an entry where there is none. */
const outside = 0;
/** The child's process memory may reach this multiple of the isolate's limit above what it had when it was ready. */
const memoryFactor = 4;

/** Why a child must be killed: whose fault it is, when that is known, and what the others in flight are told. */
export interface Verdict {
  guiltySlot: number | null;
  guilty: Outcome;
  others: Outcome;
  why: string;
  /** CPU time the guilty run has used, where that is known. */
  guiltyCpuMs: number | null;
}

/**
 * Watches one child from outside: its memory, whether it answers, and whether the run inside the isolate is past its time.
 * None of the three needs the child's help, so a wedged one is found all the same.
 */
export class Watchdog {
  readonly #child: RuntimeChild;
  readonly #memoryMb: () => number;
  readonly #onVerdict: (verdict: Verdict) => void;
  #timer: NodeJS.Timeout | undefined;
  #pingSentAt = 0;
  #pongAt = 0;
  #ping = 0;
  /** The entry that was found past its time (`outside`: none was under way), and when that was by both clocks. */
  #overdue: { sequence: number; at: number; cpuMs: number } | null = null;

  constructor(child: RuntimeChild, memoryMb: () => number, onVerdict: (verdict: Verdict) => void) {
    this.#child = child;
    this.#memoryMb = memoryMb;
    this.#onVerdict = onVerdict;
    this.#arm(idleTickMs);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  pong(ping: number): void {
    if (ping === this.#ping) this.#pongAt = Date.now();
  }

  #arm(ms: number): void {
    this.#timer = setTimeout(() => this.#tick(), ms);
  }

  #tick(): void {
    const now = Date.now();
    const verdict = this.#memoryVerdict();
    if (verdict) {
      this.#onVerdict(verdict);
      return;
    }
    const inFlight = readBoard(this.#child.boardFd).filter((run) => run.state !== "ended" || run.isInside);
    if (inFlight.length === 0) {
      this.#arm(idleTickMs);
      return;
    }
    const stuck = this.#wedgeVerdict(inFlight, now);
    if (stuck) {
      this.#onVerdict(stuck);
      return;
    }
    this.#arm(tickMs);
  }

  #memoryVerdict(): Verdict | null {
    const rss = residentBytes(this.#child.pid);
    if (!this.#child.isReady) return null;
    const allowed = this.#child.readyRssBytes + this.#memoryMb() * 1024 * 1024 * memoryFactor;
    if (rss <= allowed) return null;
    const why = `the process that runs the kap reached ${Math.round(rss / 1_048_576)} MB`;
    return { guiltySlot: null, guilty: "memory-exceeded", others: "memory-exceeded", why, guiltyCpuMs: null };
  }

  #wedgeVerdict(inFlight: BoardRun[], now: number): Verdict | null {
    const spent = mainThreadCpuMs(this.#child.pid);
    if (this.#pongAt >= this.#pingSentAt) {
      this.#overdue = null;
      if (now - this.#pingSentAt < pingEveryMs) return null;
      this.#pingSentAt = now;
      this.#child.send(frameKind.ping, ++this.#ping);
      return null;
    }
    const silentMs = now - this.#pingSentAt;
    if (silentMs < graceMs) return null;
    const inside = lastEntered(inFlight);
    const isAlone = inside !== null && inFlight.length === 1;
    const runMs = inside === null || spent === null ? null : inside.cpuMs + spent - inside.cpuClockMs;
    if (inside && now - inside.enteredAt < inside.timeoutMs) {
      if (runMs === null || runMs < inside.cpuBudgetMs + (isAlone ? overdraftMs : crowdOverdraftMs(inside))) return null;
    }
    // Never at first sight: the answer may have come while this process itself was kept from reading it.
    if (this.#overdue?.sequence !== (inside?.sequence ?? outside)) {
      this.#overdue = { sequence: inside?.sequence ?? outside, at: now, cpuMs: spent ?? 0 };
      return null;
    }
    const lateMs = now - this.#overdue.at;
    const usedMs = spent === null ? lateMs : spent - this.#overdue.cpuMs;
    if (lateMs < starvedMs) {
      if (usedMs < (isAlone ? graceMs : lateCpuMs)) return null;
      // Past the time that V8 was told, but neither past its CPU time nor its wall time.
      if (inside && runMs !== null && runMs < inside.cpuBudgetMs && now < inside.wallDeadline) return null;
    }
    if (!inside) {
      const why = "the process that runs the kap stopped answering";
      return { guiltySlot: null, guilty: "crashed", others: "crashed", why, guiltyCpuMs: null };
    }
    // By the clock alone, before its CPU time and its wall time were over.
    const isStarved = runMs !== null && runMs < inside.cpuBudgetMs && now < inside.wallDeadline;
    const hasBudget = runMs === null ? inside.enteredAt + inside.timeoutMs >= inside.wallDeadline : runMs < inside.cpuBudgetMs;
    return {
      guiltySlot: inside.slot,
      guilty: hasBudget ? "timeout" : "cpu-exceeded",
      others: "crashed",
      why: `a run held the isolate ${isStarved ? "too long, and the machine was too busy to give it its CPU time: it" : "past its time and"} could only be stopped with the process`,
      guiltyCpuMs: runMs,
    };
  }
}

/** The run that entered the isolate last: when the child does not answer, it is the one inside. */
export function lastEntered(runs: BoardRun[]): BoardRun | null {
  return runs.reduce<BoardRun | null>(
    (last, run) => ((run.state === "running" || run.isInside) && run.sequence > (last?.sequence ?? 0) ? run : last),
    null,
  );
}
