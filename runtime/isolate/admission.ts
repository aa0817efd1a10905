import type { BoardWriter } from "../seam/flight-board.ts";
import { frameKind } from "../seam/frames.ts";
import type { RunLink } from "./link.ts";
import type { Run } from "./run.ts";
import type { RunControl } from "./run-control.ts";

/** What has to be there before a run starts: the revision it was called for, its body when that is small, and a place among those that may run at once. */
export class Admission {
  readonly #engine: RunControl;
  readonly #link: RunLink;
  readonly #board: BoardWriter;
  readonly #start: (run: Run, bytes: ArrayBuffer | undefined) => void;
  readonly #queue: { run: Run; bytes: ArrayBuffer | undefined }[] = [];
  #awaitingRevision: { run: Run; revision: number; since: number }[] = [];
  #activeRuns = 0;
  #askedRevision = 0;

  constructor(engine: RunControl, link: RunLink, board: BoardWriter, start: (run: Run, bytes: ArrayBuffer | undefined) => void) {
    this.#engine = engine;
    this.#link = link;
    this.#board = board;
    this.#start = start;
  }

  get #revision(): number {
    return this.#engine.program?.head.revision ?? 0;
  }

  get #hasPlace(): boolean {
    return this.#activeRuns < (this.#engine.program?.head.limits.concurrency ?? 0);
  }

  /** The run waits for a newer revision, which is asked for once for all that wait. */
  awaitRevision(run: Run, revision: number, since: number): void {
    this.#awaitingRevision.push({ run, revision, since });
    if (revision <= this.#askedRevision && this.#askedRevision > this.#revision) return;
    this.#askedRevision = revision;
    this.#link.send(frameKind.refresh, revision);
  }

  /** A revision has been loaded: whoever waited for it goes on. */
  loaded(revision: number): void {
    this.#askedRevision = Math.max(this.#askedRevision, revision);
    const waiting = this.#awaitingRevision;
    this.#awaitingRevision = [];
    for (const { run, revision: wanted, since } of waiting) {
      if (wanted > revision) this.awaitRevision(run, wanted, since);
      else {
        run.loadMs = performance.now() - since;
        this.admit(run);
      }
    }
  }

  /** The revision some runs wait for could not be had: they are answered instead of run. */
  unavailable(revision: number, why: string): void {
    if (this.#askedRevision <= revision) this.#askedRevision = this.#revision;
    const waiting = this.#awaitingRevision;
    this.#awaitingRevision = waiting.filter((each) => each.revision > revision);
    for (const { run, revision: wanted } of waiting.filter((each) => each.revision <= revision))
      this.#engine.end(run, "refused", 503, `The runtime could not load revision ${wanted} of this kap: ${why}`);
  }

  /** The run may start as soon as its small body is here and there is room. */
  admit(run: Run): void {
    if (run.isEnded) return;
    if (run.body.kind !== "full") {
      this.#enqueue(run, undefined);
      return;
    }
    this.#board.queue(run.slot, run.id, run.arrivedAt);
    run.body.gather((error, bytes) => {
      if (run.isEnded) return;
      if (!error) return this.#enqueue(run, bytes);
      if (run.isCallerGone) return this.#engine.end(run, "client-gone", 499, error.message);
      this.#engine.end(run, "refused", 413, error.message);
    });
  }

  #enqueue(run: Run, bytes: ArrayBuffer | undefined): void {
    if (this.#hasPlace && this.#queue.length === 0) {
      this.#start(run, bytes);
      return;
    }
    this.#board.queue(run.slot, run.id, run.arrivedAt);
    this.#queue.push({ run, bytes });
  }

  /** The run has taken a place; `left` gives it back. */
  entered(): void {
    this.#activeRuns++;
  }

  left(): void {
    this.#activeRuns--;
    if (this.#queue.length > 0) setImmediate(this.#startWaiting);
  }

  readonly #startWaiting = (): void => {
    while (this.#hasPlace) {
      const next = this.#queue.shift();
      if (!next) return;
      this.#start(next.run, next.bytes);
    }
  };

  /** A run has ended before it started: nothing of it waits any more. */
  forget(run: Run): void {
    const at = this.#queue.findIndex((waiting) => waiting.run === run);
    if (at >= 0) this.#queue.splice(at, 1);
  }
}
