import type { Logger } from "#platform/log.ts";
import { type BoardRun, readBoard } from "../seam/flight-board.ts";
import { frameKind } from "../seam/frames.ts";
import type { Ended } from "../seam/records.ts";
import { type ChildBudget, isSpent } from "./child-budget.ts";
import { RuntimeChild } from "./child-process.ts";
import { KernelKills } from "./kernel-kills.ts";
import { endsOfBoard, releaseVerdict, verdictOfExit } from "./post-mortem.ts";
import { residentBytes } from "./process-facts.ts";
import { type Verdict, Watchdog } from "./watchdog.ts";

/** A child that answered everything itself and asked to be replaced gets this long for its answers to leave. */
const lastWordsMs = 100;
/** A child that cannot even start is tried again after this pause, doubled each time up to the longest. */
const firstPauseMs = 200;
const longestPauseMs = 10_000;
/** A retired child has nothing but idle connections this long after its longest run. */
const retireGraceMs = 90_000;

export interface ChildrenOptions {
  listenFd(): number;
  kit: string;
  memoryMb(): number;
  /** Longest wall time that a run may have. */
  longestRunMs(): number;
  /** Whether a warm spare is wanted: not before there is something to serve. */
  wantsSpare(): boolean;
  /** Runs whose ends have been handed over. */
  told: ReadonlySet<string>;
  budget: ChildBudget;
  log: Logger;
}

/** What the children ask and bring. */
export interface ChildrenEvents {
  /** The child is about to serve: it should be given what is to be served. */
  toServe(child: RuntimeChild): void;
  /** `codeCache` is the number of what became of the code cache. */
  loaded(child: RuntimeChild, revision: number, codeCache: number): void;
  refresh(child: RuntimeChild, revision: number): void;
  call(child: RuntimeChild, number: number, runKey: number, text: string, bytes: Uint8Array): void;
  /** A dry run has arrived. */
  dry(child: RuntimeChild, runKey: number, runId: string): void;
  forget(child: RuntimeChild, runKey: number): void;
  /** The child is ending: whatever it asked for is pointless. */
  over(child: RuntimeChild): void;
  ended(ended: Ended): void;
}

/**
 * The processes of one runtime. One serves and a warm spare waits; a spent one, retired, ends its runs beside its successor; a killed one is kept
 * until its board has been read. All inherit the same listening socket, so connections wait in the kernel while they change.
 */
export class Children {
  /** Children that were killed or ended by themselves. */
  lost = 0;
  /** Children that were replaced because they had served enough. */
  recycled = 0;
  #serving: RuntimeChild | null = null;
  #spare: RuntimeChild | null = null;
  /** The former spare that is about to serve instead of a spent child; both take calls for a moment. */
  #successor: RuntimeChild | null = null;
  readonly #retired = new Set<RuntimeChild>();
  readonly #ending = new Set<RuntimeChild>();
  readonly #watchdogs = new Map<RuntimeChild, Watchdog>();
  readonly #options: ChildrenOptions;
  readonly #events: ChildrenEvents;
  readonly #log: Logger;
  readonly #kernelKills = new KernelKills();
  #pauseMs = 0;
  #isStarting = false;
  #isDraining = false;
  #emptied: (() => void) | null = null;

  constructor(options: ChildrenOptions, events: ChildrenEvents) {
    this.#options = options;
    this.#events = events;
    this.#log = options.log;
  }

  get serving(): RuntimeChild | null {
    return this.#serving;
  }

  /** Those that take new connections: each must have what is to be served. */
  get taking(): RuntimeChild[] {
    return [this.#serving, this.#successor].filter((child) => child !== null);
  }

  get #all(): RuntimeChild[] {
    return [...this.taking, ...(this.#spare ? [this.#spare] : []), ...this.#retired, ...this.#ending];
  }

  get rssBytes(): number {
    return this.#all.reduce((sum, child) => sum + residentBytes(child.pid), 0);
  }

  /** The runs on the boards of all children, ended ones that have not been handed over included. */
  get runs(): BoardRun[] {
    const runs = this.#all.flatMap((child) => readBoard(child.boardFd));
    return runs.filter((run) => run.state !== "ended" || !this.#options.told.has(run.id));
  }

  /** Starts whatever is missing: a child that serves, then the spare. One at a time, after a pause when the last one could not start. */
  fill(): void {
    if (this.#isStarting || this.#isDraining || (this.#serving && (this.#spare || !this.#options.wantsSpare()))) return;
    if (this.#pauseMs === 0) {
      this.#startOne();
      return;
    }
    this.#isStarting = true;
    setTimeout(() => {
      this.#isStarting = false;
      this.#startOne();
    }, this.#pauseMs);
  }

  #startOne(): void {
    if (this.#isDraining) return;
    try {
      const child = this.#spawn();
      if (this.#serving) this.#spare = child;
      else this.#serve(child);
    } catch (error) {
      // No process, descriptor or memory to be had: the next try may find some.
      this.#log.error({ err: error }, "a child could not be started");
      this.#couldNotStart();
    }
    this.fill();
  }

  #couldNotStart(): void {
    this.#pauseMs = Math.min(Math.max(this.#pauseMs * 2, firstPauseMs), longestPauseMs);
  }

  #spawn(): RuntimeChild {
    const child = new RuntimeChild(this.#options.listenFd(), this.#options.kit, this.#options.memoryMb());
    child.onFrame = (kind, a, b, text, bytes) => this.#frame(child, kind, a, b, text, bytes);
    child.ready.then(
      () => {
        this.#pauseMs = 0;
      },
      () => {
        if (!this.#ending.has(child)) this.#couldNotStart();
      },
    );
    void child.gone.then((end) => {
      if (this.#ending.has(child)) return;
      this.#log.warn({ pid: child.pid, code: end.code, signal: end.signal }, "a child ended by itself");
      this.#lose(child, verdictOfExit(end, end.signal === "SIGKILL" && this.#kernelKills.haveGrown()));
    });
    return child;
  }

  /** Makes a child the one that serves. */
  #serve(child: RuntimeChild): void {
    this.#serving = child;
    this.#open(child);
  }

  /** Gives a child the program and then the listening socket: frames are in order, so both can be sent at once. */
  #open(child: RuntimeChild): void {
    const memoryMb = (): number => this.#options.memoryMb();
    this.#watchdogs.set(child, new Watchdog(child, memoryMb, (verdict) => this.#lose(child, verdict)));
    this.#events.toServe(child);
    child.send(frameKind.accept);
  }

  #lose(child: RuntimeChild, verdict: Verdict | null): void {
    if (this.#ending.has(child)) return;
    this.lost++;
    this.#log.warn({ pid: child.pid, why: verdict?.why ?? "its isolate was lost" }, "a child is replaced");
    this.#end(child, verdict);
  }

  /**
   * Ends a child and brings whoever follows it. Without a verdict it has answered everybody itself and gets the time for that to leave; with one
   * its flight board tells who was in flight.
   */
  #end(child: RuntimeChild, verdict: Verdict | null): void {
    if (this.#ending.has(child)) return;
    this.#ending.add(child);
    if (verdict) child.kill();
    else setTimeout(() => child.kill(), lastWordsMs);
    this.#watchdogs.get(child)?.stop();
    this.#watchdogs.delete(child);
    this.#events.over(child);
    this.#takeOut(child);
    void child.gone.then(() => {
      this.#events.ended(endsOfBoard(readBoard(child.boardFd), verdict, this.#options.told));
      this.#ending.delete(child);
      child.closeBoard();
      if (this.#all.length === 0) this.#emptied?.();
    });
  }

  /** Takes a child out of its part and fills that again, with the child that is nearest to serving. */
  #takeOut(child: RuntimeChild): void {
    this.#retired.delete(child);
    if (child === this.#spare) this.#spare = null;
    if (child === this.#successor) this.#successor = null;
    if (child === this.#serving) {
      this.#serving = this.#successor;
      this.#successor = null;
      const next = this.#spare;
      if (!this.#serving && next && !this.#isDraining) {
        this.#spare = null;
        this.#serve(next);
      }
    }
    this.fill();
  }

  #frame(child: RuntimeChild, kind: number, a: number, b: number, text: string, bytes: Buffer): void {
    if (kind === frameKind.ended) {
      const ended = JSON.parse(text) as Ended;
      this.#events.ended(ended);
      child.servedRuns += ended.runs.length;
      if (child === this.#serving && isSpent(child, ended.runs.length, this.#options.budget)) this.#recycle();
    } else if (this.#ending.has(child)) return;
    else if (kind === frameKind.call) this.#events.call(child, a, b, text, bytes);
    else if (kind === frameKind.dry) this.#events.dry(child, b, text);
    else if (kind === frameKind.forget) this.#events.forget(child, b);
    else if (kind === frameKind.pong) this.#watchdogs.get(child)?.pong(a);
    else if (kind === frameKind.refresh) this.#events.refresh(child, a);
    else if (kind === frameKind.loaded) this.#events.loaded(child, a, b);
    else if (kind === frameKind.lost) this.#lose(child, null);
    else if (kind === frameKind.drained) this.#end(child, releaseVerdict);
  }

  /** Lets the spare take over from the child that serves, once it is warm; asked again and again until that happens. At most one child is retired at a time. */
  #recycle(): void {
    const next = this.#spare;
    if (this.#isDraining || this.#successor || this.#retired.size > 0 || !next?.isReady) return;
    this.#spare = null;
    this.#successor = next;
    this.#open(next);
    next.accepting.then(
      () => this.#retire(next),
      () => undefined,
    );
  }

  #retire(next: RuntimeChild): void {
    const old = this.#serving;
    if (this.#successor !== next || !old) return;
    this.#successor = null;
    this.#serving = next;
    this.#retired.add(old);
    this.recycled++;
    this.#log.info({ pid: old.pid, runs: old.servedRuns, rss_bytes: residentBytes(old.pid) }, "a child has served enough and is retired");
    old.send(frameKind.retire);
    const late = setTimeout(() => this.#end(old, releaseVerdict), this.#options.longestRunMs() + retireGraceMs);
    void old.gone.then(() => clearTimeout(late));
    this.fill();
  }

  /** Stops accepting, lets runs end within `drainMs`, then ends everything. Settles when all are gone and the ends of their runs are handed over. */
  async drain(drainMs: number): Promise<void> {
    this.#isDraining = true;
    if (this.#spare) this.#end(this.#spare, releaseVerdict);
    for (const child of [...this.taking, ...this.#retired]) child.send(frameKind.drain);
    const late = setTimeout(() => {
      for (const child of this.#all) this.#end(child, releaseVerdict);
    }, drainMs);
    await new Promise<void>((resolve) => {
      this.#emptied = resolve;
      if (this.#all.length === 0) resolve();
    });
    clearTimeout(late);
  }

  /** Kills every child now. */
  kill(): void {
    for (const child of this.#all) child.kill();
  }
}
