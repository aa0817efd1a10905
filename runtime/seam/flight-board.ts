import { closeSync, existsSync, openSync, readSync, unlinkSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { newId } from "#platform/ids.ts";
import { type Outcome, outcomes } from "./records.ts";

/**
 * The flight board: a small unlinked file in memory that both processes hold open. The child notes each run in a slot of it with a
 * `pwrite` (a microsecond or two, no wake-up of anybody); the supervisor reads it when it wonders. So the supervisor knows what was in
 * flight, and who was inside the isolate, although a wedged child can say nothing any more.
 */
export const boardSlots = 1024;
const slotBytes = 128;
const boardBytes = boardSlots * slotBytes;

/** Slots that one write may cover to take the end of earlier runs along with the entry of the next. */
const slotsAWrite = 16;

const free = 0;
const queued = 1;
const running = 2;
const ended = 3;
/** Ended, and the entry it ended in has not returned: the isolate is still at work in its name. */
const endedInside = 4;

/** Makes the board's file and returns its descriptor. It has no name any more when this returns, so nothing is left behind by a crash. */
export function openBoard(): number {
  const folder = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();
  const path = join(folder, `kapstone-board-${newId()}`);
  const fd = openSync(path, "wx+", 0o600);
  unlinkSync(path);
  writeSync(fd, Buffer.alloc(boardBytes), 0, boardBytes, 0);
  return fd;
}

export const closeBoard = (fd: number): void => closeSync(fd);

/** An entry into the isolate as the board takes it. Times are epoch milliseconds; CPU times are of the child's main thread, in milliseconds. */
export interface BoardEntry {
  runId: string;
  startedAt: number;
  enteredAt: number;
  /** When V8 is told to end the entry, after its beginning. */
  timeoutMs: number;
  wallDeadline: number;
  /** What the run had used before, of how much, and what the thread's own clock showed at the entry. */
  cpuMs: number;
  cpuBudgetMs: number;
  cpuClockMs: number;
}

/** The child's side: writes slots. One slot belongs to one run from its arrival until its end has been handed over. */
export class BoardWriter {
  readonly #fd: number;
  readonly #slots: Buffer;
  #sequence = 0;
  /** Slots, from the first to the last, whose runs have ended and whose file does not say so yet: empty while `first` is above `last`. */
  #first = boardSlots;
  #last = -1;
  #flushing: NodeJS.Immediate | undefined;
  /** Slots whose runs have ended, and been handed over, inside an entry that goes on. */
  readonly #inside: number[] = [];

  constructor(fd: number) {
    this.#fd = fd;
    this.#slots = Buffer.alloc(boardBytes);
  }

  /** Writes a slot at once, and with it what has ended: neighbours (slots are given out in order) by the same call. */
  #write(slot: number): void {
    const first = Math.min(slot, this.#first);
    const last = Math.max(slot, this.#last);
    if (last - first < slotsAWrite) {
      this.#forgetEnds();
      this.#writeRange(first, last);
    } else {
      this.flush();
      this.#writeRange(slot, slot);
    }
  }

  #writeRange(first: number, last: number): void {
    const at = first * slotBytes;
    writeSync(this.#fd, this.#slots, at, (last + 1 - first) * slotBytes, at);
  }

  #forgetEnds(): void {
    this.#first = boardSlots;
    this.#last = -1;
  }

  /**
   * The run's end must be known now: the entry it happened in goes on, and may never return. `left` follows when it does. The record is handed
   * over in between.
   */
  endInside(slot: number): void {
    this.#slots[slot * slotBytes] = endedInside;
    this.#inside.push(slot);
    this.flush();
  }

  /** The entry has returned in which runs ended. */
  left(): void {
    if (this.#inside.length === 0) return;
    for (const slot of this.#inside) {
      this.#slots[slot * slotBytes] = free;
      this.#toWrite(slot);
    }
    this.#inside.length = 0;
  }

  #toWrite(slot: number): void {
    this.#first = Math.min(slot, this.#first);
    this.#last = Math.max(slot, this.#last);
    this.#flushing ??= setImmediate(() => {
      this.#flushing = undefined;
      this.flush();
    });
  }

  /** Writes the ends that are not in the file yet. */
  flush(): void {
    const [first, last] = [this.#first, this.#last];
    if (first > last) return;
    this.#forgetEnds();
    this.#writeRange(first, last);
  }

  /** A run has arrived and waits. */
  queue(slot: number, runId: string, now: number): void {
    const at = slot * slotBytes;
    this.#slots[at] = queued;
    this.#slots.write(runId, at + 64, 36, "latin1");
    this.#slots.writeDoubleLE(now, at + 16);
    this.#slots.writeFloatLE(0, at + 4);
    this.#write(slot);
  }

  /** A run enters the isolate. */
  enter(slot: number, entry: BoardEntry): void {
    const at = slot * slotBytes;
    const slots = this.#slots;
    if (slots[at] !== running) {
      slots[at] = running;
      slots.write(entry.runId, at + 64, 36, "latin1");
      slots.writeDoubleLE(entry.startedAt, at + 16);
      slots.writeDoubleLE(entry.wallDeadline, at + 40);
      slots.writeDoubleLE(entry.cpuBudgetMs, at + 112);
    }
    slots.writeDoubleLE(++this.#sequence, at + 8);
    slots.writeDoubleLE(entry.enteredAt, at + 24);
    slots.writeDoubleLE(entry.timeoutMs, at + 32);
    slots.writeDoubleLE(entry.cpuClockMs, at + 104);
    slots.writeFloatLE(entry.cpuMs, at + 4);
    this.#write(slot);
  }

  /**
   * The run has ended; its record is not yet handed over. The file says so with the next write, at the latest when this turn of the event loop is
   * over: before anything could enter the isolate again and wedge.
   */
  end(slot: number, outcome: Outcome, httpStatus: number, now: number, cpuMs: number): void {
    const at = slot * slotBytes;
    this.#slots[at] = ended;
    this.#slots[at + 1] = outcomes.indexOf(outcome);
    this.#slots.writeUInt16LE(httpStatus, at + 2);
    this.#slots.writeDoubleLE(now, at + 48);
    this.#slots.writeFloatLE(cpuMs, at + 4);
    this.#toWrite(slot);
  }

  /** The record of the slot's run has been handed over. Written with the slot's next use: until then it reads as ended, which is harmless. */
  release(slot: number): void {
    const at = slot * slotBytes;
    if (this.#slots[at] !== endedInside) this.#slots[at] = free;
  }
}

/** One run as the board shows it. Times are epoch milliseconds. */
export interface BoardRun {
  slot: number;
  id: string;
  state: "queued" | "running" | "ended";
  /** It has ended, and the isolate was still at work in its name when that was written. */
  isInside: boolean;
  sequence: number;
  startedAt: number;
  enteredAt: number;
  timeoutMs: number;
  wallDeadline: number;
  cpuBudgetMs: number;
  cpuClockMs: number;
  endedAt: number;
  outcome: Outcome;
  httpStatus: number;
  /** CPU time the run has used; while it runs, up to its last entry. */
  cpuMs: number;
}

const seen = Buffer.alloc(boardBytes);

/** The supervisor's side: every run on the board, in slot order. */
export function readBoard(fd: number): BoardRun[] {
  readSync(fd, seen, 0, boardBytes, 0);
  const runs: BoardRun[] = [];
  for (let slot = 0; slot < boardSlots; slot++) {
    const at = slot * slotBytes;
    const state = seen[at];
    if (state === free) continue;
    runs.push({
      slot,
      id: seen.toString("latin1", at + 64, at + 100),
      state: state === queued ? "queued" : state === running ? "running" : "ended",
      isInside: state === endedInside,
      sequence: seen.readDoubleLE(at + 8),
      startedAt: seen.readDoubleLE(at + 16),
      enteredAt: seen.readDoubleLE(at + 24),
      timeoutMs: seen.readDoubleLE(at + 32),
      wallDeadline: seen.readDoubleLE(at + 40),
      cpuClockMs: seen.readDoubleLE(at + 104),
      cpuBudgetMs: seen.readDoubleLE(at + 112),
      endedAt: seen.readDoubleLE(at + 48),
      outcome: outcomes[seen[at + 1] ?? 0] ?? "crashed",
      httpStatus: seen.readUInt16LE(at + 2),
      cpuMs: seen.readFloatLE(at + 4),
    });
  }
  return runs;
}
