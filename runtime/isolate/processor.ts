import { openSync, readSync } from "node:fs";

/** CPU time this thread has used since it began, in milliseconds. Costs half a microsecond. */
export function threadCpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}

const lookEveryMs = 50;
/** Waiting no longer than this for the processor, each time, is what waking up costs on a quiet machine. */
const wakeUpMs = 0.05;
/** A window in which the thread did next to nothing says next to nothing: each counts as if it had run undisturbed for this long too. */
const quietMs = 0.25;
const leastShare = 0.05;

/** What Linux counts of a thread since it began: CPU time, time it waited for a processor (both in nanoseconds), and how often it was given one. */
export interface ScheduleCounts {
  usedNs: number;
  waitedNs: number;
  turns: number;
}

/** The part of the time it asks for that this thread gets of its processor: 1 on a quiet machine, and where the system does not tell. */
export class ProcessorShare {
  readonly #read: () => ScheduleCounts | null;
  #before: ScheduleCounts | null;
  #lookedAt = 0;
  #share = 1;

  constructor(read: () => ScheduleCounts | null = scheduleReader()) {
    this.#read = read;
    this.#before = read();
  }

  /** The share of late, between 0.05 and 1: it falls at once and rises by halves, since who is late with bad news does harm. `clock` is `performance.now()`. */
  at(clock: number): number {
    if (this.#before === null || clock - this.#lookedAt < lookEveryMs) return this.#share;
    this.#lookedAt = clock;
    const counts = this.#read();
    if (counts === null) return this.#share;
    const usedMs = quietMs + (counts.usedNs - this.#before.usedNs) / 1e6;
    const waitedMs = (counts.waitedNs - this.#before.waitedNs) / 1e6 - (counts.turns - this.#before.turns) * wakeUpMs;
    this.#before = counts;
    const seen = usedMs / (usedMs + Math.max(0, waitedMs));
    this.#share = Math.max(leastShare, seen < this.#share ? seen : (seen + this.#share) / 2);
    return this.#share;
  }
}

/** Reads /proc/self/schedstat, which is the main thread's. */
function scheduleReader(): () => ScheduleCounts | null {
  const text = Buffer.alloc(96);
  let fd: number;
  try {
    fd = openSync("/proc/self/schedstat", "r");
  } catch {
    return () => null;
  }
  return () => {
    const [usedNs, waitedNs, turns] = text
      .toString("latin1", 0, readSync(fd, text, 0, text.length, 0))
      .split(" ")
      .map(Number);
    return usedNs === undefined || waitedNs === undefined || turns === undefined ? null : { usedNs, waitedNs, turns };
  };
}

/** A thread that gets less of its processor than this shares it with others. */
const quietShare = 0.9;
const mostCautionMs = 1_000;
const mostLateMs = 500;

/**
 * Milliseconds after which V8 is told to end an entry that has `leftMs` of CPU time left.
 * V8 ends an entry by the wall's clock and for good; CPU time is what counts, and nobody is ended for what others took. So V8 is told to end it somewhat after
 * the entry should have used the CPU time it has left, at the share of the processor that this thread gets. Where that is not all of it, the share may fall:
 * it is told another fifth later, a second of CPU time at most.
 */
export function entryMs(leftMs: number, share: number): number {
  const lateMs = Math.min(mostLateMs, leftMs + 200);
  return lateMs + (share < quietShare ? (leftMs + Math.min(leftMs / 5, mostCautionMs)) / share : leftMs);
}
