import type { KeyObject } from "node:crypto";
import { BoundSocket } from "node:net";
import { newId } from "#platform/ids.ts";
import type { Logger } from "#platform/log.ts";
import { type Address, clearSocketFile } from "../seam/address.ts";
import { type Assignment, openAssignment } from "../seam/assignment.ts";
import { readBoard } from "../seam/flight-board.ts";
import { frameKind } from "../seam/frames.ts";
import type { Ended, LoadHead, Outcome } from "../seam/records.ts";
import { AssignmentSource } from "./assignment-source.ts";
import { RuntimeChild } from "./child-process.ts";
import { HostServices } from "./host-services.ts";
import { endsOfBoard, verdictOfExit } from "./post-mortem.ts";
import { residentBytes } from "./process-facts.ts";
import { Reporter } from "./reports.ts";
import { type Verdict, Watchdog } from "./watchdog.ts";

/** A child that answered everything itself and asked to be replaced gets this long for its answers to leave. */
const lastWordsMs = 100;
/** A child that cannot even start is tried again after this pause, doubled each time up to the longest. */
const firstRespawnMs = 200;
const longestRespawnMs = 10_000;
/** More than a board has slots. */
const maxTold = 2_048;
/** The spare is started this long after a claim: its start would cost the kap's first answer. */
const spareDelayMs = 500;
const claimTimeoutMs = 10_000;

export type RuntimeState = "generic" | "assigned" | "draining";

/** A claim that cannot be taken now: status and a sentence for the caller. */
export class ClaimRefused extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export interface SupervisorOptions {
  /** The api no longer knows this runtime: it should drain and end. */
  onDisowned(): void;
  data: Address;
  claimKey: KeyObject;
  egressAllow: string[];
  memoryMb: number;
  kit: string;
  log: Logger;
}

/**
 * Owns one runtime: the listening socket, the assignment with its credentials, the child that serves and the spare that takes over when
 * the child must be killed.
 */
export class Supervisor {
  readonly bootId = newId();
  state: RuntimeState = "generic";
  assignment: Assignment | null = null;
  kills = 0;
  readonly reporter: Reporter;
  readonly #options: SupervisorOptions;
  readonly #log: Logger;
  readonly #socket: BoundSocket;
  readonly #services: HostServices;
  readonly #source: AssignmentSource;
  #current: RuntimeChild | null = null;
  #spare: RuntimeChild | null = null;
  #watchdog: Watchdog | null = null;
  #respawnMs = 0;
  #lastEndedAt = Date.now();
  #loadedRevision = -1;
  #loads: { revision: number; resolve: () => void }[] = [];
  #drained: (() => void) | null = null;
  /** Runs whose ends a child has handed over lately: its board may still show them. */
  readonly #told = new Set<string>();
  readonly #outcomes = new Map<string, { outcome: Outcome; detail: string | null }>();

  constructor(options: SupervisorOptions) {
    this.#options = options;
    this.#log = options.log;
    clearSocketFile(options.data);
    this.#socket = bind(options.data);
    this.#services = new HostServices(options.egressAllow, options.log);
    this.#source = new AssignmentSource(options.claimKey, this.bootId);
    this.reporter = new Reporter(
      options.log,
      () => this.assignment && { ...this.assignment.api, runtimeId: this.assignment.runtime_id },
      () => this.idleSince,
      () => this.#options.onDisowned(),
    );
    this.#current = this.#spawn();
    this.#promote(this.#current);
  }

  get dataAddress(): string | { address: string; port: number } {
    return this.#socket.address() as string | { address: string; port: number };
  }

  /** Settles when a child with isolate and web API is warm and takes connections. */
  get warm(): Promise<void> {
    return this.#current?.accepting ?? Promise.reject(new Error("the runtime has no child"));
  }

  get isWarm(): boolean {
    return this.#current?.isAccepting ?? false;
  }

  get inFlight(): { running: number; queued: number } {
    const runs = this.#current ? readBoard(this.#current.boardFd) : [];
    return { running: runs.filter((run) => run.state === "running").length, queued: runs.filter((run) => run.state === "queued").length };
  }

  get idleSince(): string | null {
    const { running, queued } = this.inFlight;
    return running + queued > 0 ? null : new Date(this.#lastEndedAt).toISOString();
  }

  get rssBytes(): number {
    return process.memoryUsage.rss() + [this.#current, this.#spare].reduce((sum, child) => sum + (child ? residentBytes(child.pid) : 0), 0);
  }

  /** How a run ended whose caller saw only a broken connection; null when it is not known (any more). */
  outcomeOf(runId: string): { outcome: Outcome; detail: string | null } | null {
    return this.#outcomes.get(runId) ?? null;
  }

  get #memoryMb(): number {
    return this.assignment?.limits.memory_mb ?? this.#options.memoryMb;
  }

  #spawn(): RuntimeChild {
    const child = new RuntimeChild(this.#socket.fd(), this.#options.kit, this.#memoryMb);
    child.onFrame = (kind, a, b, text, bytes) => this.#frame(child, kind, a, b, text, bytes);
    void child.gone.then((end) => {
      if (!end.wasKilled) this.#log.warn({ code: end.code, signal: end.signal }, "a child ended by itself");
      if (child === this.#current) this.#replace(child, verdictOfExit(end));
      else if (child === this.#spare) {
        this.#spare = null;
        child.closeBoard();
        this.#respawn();
      }
    });
    return child;
  }

  /** Makes a child the one that serves: it gets the assignment, then the listening socket. Frames are in order, so both can be sent at once. */
  #promote(child: RuntimeChild): void {
    this.#current = child;
    this.#watchdog = new Watchdog(
      child,
      () => this.#memoryMb,
      (verdict) => this.#replace(child, verdict),
    );
    if (this.assignment) this.#sendLoad(child, this.assignment, true);
    child.send(frameKind.accept);
  }

  #respawn(): void {
    if (this.state === "draining" || this.#spare) return;
    const pause = this.#respawnMs;
    this.#respawnMs = Math.min(Math.max(pause * 2, firstRespawnMs), longestRespawnMs);
    const start = (): void => {
      if (this.state === "draining" || this.#spare) return;
      const spare = this.#spawn();
      this.#spare = spare;
      void spare.ready.then(
        () => (this.#respawnMs = 0),
        () => {},
      );
    };
    if (pause === 0) start();
    else setTimeout(start, pause);
  }

  /**
   * Ends the serving child and brings the spare. `lost` children have answered everybody themselves; for the others the flight board tells
   * who was in flight.
   */
  #replace(child: RuntimeChild, verdict: Verdict | null): void {
    if (child !== this.#current) return;
    this.#watchdog?.stop();
    this.kills++;
    if (verdict) child.kill();
    else setTimeout(() => child.kill(), lastWordsMs);
    this.#log.warn({ pid: child.pid, why: verdict?.why ?? "its isolate was lost" }, "the child is replaced");
    this.#services.forgetAll();
    const successor = this.#spare ?? (this.state === "draining" ? null : this.#spawn());
    this.#spare = null;
    this.#current = null;
    if (successor) this.#promote(successor);
    void child.gone.then(() => {
      this.#record(endsOfBoard(readBoard(child.boardFd), verdict, this.#told));
      child.closeBoard();
      if (!successor) this.#drained?.();
    });
    if (this.#spareIsWanted) this.#respawn();
  }

  get #spareIsWanted(): boolean {
    return this.state === "assigned";
  }

  #record(ended: Ended): void {
    if (ended.runs.length === 0 && ended.lines.length === 0) return;
    this.#lastEndedAt = Date.now();
    for (const run of ended.runs) {
      this.#told.add(run.id);
      if (this.#told.size > maxTold) this.#told.delete(this.#told.values().next().value ?? "");
      if (run.outcome !== "crashed" && run.http_status !== null) continue;
      this.#outcomes.set(run.id, { outcome: run.outcome, detail: run.detail });
      if (this.#outcomes.size > 1_000) this.#outcomes.delete(this.#outcomes.keys().next().value ?? "");
    }
    this.reporter.add(ended);
  }

  #frame(child: RuntimeChild, kind: number, a: number, b: number, text: string, bytes: Buffer): void {
    if (kind === frameKind.call) this.#services.call(child, a, b, text, bytes);
    else if (kind === frameKind.ended) this.#record(JSON.parse(text) as Ended);
    else if (kind === frameKind.forget) this.#services.forget(b);
    else if (child !== this.#current) return;
    else if (kind === frameKind.pong) this.#watchdog?.pong(a);
    else if (kind === frameKind.refresh) void this.#refresh(child, a);
    else if (kind === frameKind.lost) this.#replace(child, null);
    else if (kind === frameKind.drained) this.#drained?.();
    else if (kind === frameKind.loaded) this.#loaded(a);
  }

  #loaded(revision: number): void {
    this.#loadedRevision = revision;
    for (const load of this.#loads.filter((waiting) => waiting.revision <= revision)) load.resolve();
    this.#loads = this.#loads.filter((waiting) => waiting.revision > revision);
  }

  /**
   * Makes this runtime the kap's (a claim), or brings the kap's newer revision (a refresh by claim). Settles when the child has loaded it.
   * @throws AssignmentRefused (401), ClaimRefused (409 another kap or draining, 503 not warm in time)
   */
  async claim(token: string): Promise<{ ms: number }> {
    const started = performance.now();
    const assignment = openAssignment(token, this.#options.claimKey, this.bootId);
    if (this.state === "draining") throw new ClaimRefused(409, "This runtime is draining; claim another.");
    if (this.assignment && (this.assignment.kap_id !== assignment.kap_id || this.assignment.runtime_id !== assignment.runtime_id))
      throw new ClaimRefused(409, "This runtime already serves another kap and never changes it; claim a generic one.");
    if (!this.assignment || assignment.revision > this.assignment.revision) this.#adopt(assignment);
    await this.#untilLoaded(assignment.revision);
    // The first answer comes first; a spare that is needed sooner is made when it is.
    if (this.#spareIsWanted) setTimeout(() => this.#respawn(), spareDelayMs).unref();
    return { ms: Math.round((performance.now() - started) * 100) / 100 };
  }

  /**
   * Takes up what the kap is now, without waiting for a call that needs it. Settles when the child has loaded it: from then on no request is
   * served with what was before.
   * @throws ClaimRefused (409 not assigned, 503 not loaded in time), or why the api could not be asked
   */
  async refresh(): Promise<{ revision: number }> {
    const current = this.assignment;
    if (!current || this.state !== "assigned") throw new ClaimRefused(409, "This runtime serves no kap that could be refreshed.");
    const assignment = await this.#source.fetch(current, current.revision);
    if (assignment.revision > (this.assignment?.revision ?? -1)) this.#adopt(assignment);
    await this.#untilLoaded(assignment.revision);
    return { revision: assignment.revision };
  }

  async #untilLoaded(revision: number): Promise<void> {
    const loaded = new Promise<void>((resolve) => this.#loads.push({ revision, resolve }));
    if (this.#loadedRevision >= revision) this.#loaded(this.#loadedRevision);
    const late = AbortSignal.timeout(claimTimeoutMs);
    await Promise.race([
      loaded,
      new Promise<never>((_, reject) =>
        late.addEventListener("abort", () => reject(new ClaimRefused(503, "The runtime's child did not load the kap in time."))),
      ),
    ]);
  }

  #adopt(assignment: Assignment): void {
    const before = this.assignment;
    this.assignment = assignment;
    this.state = "assigned";
    if (!before) this.#lastEndedAt = Date.now();
    this.#services.assign(assignment);
    const fresh = before?.bundle !== assignment.bundle || JSON.stringify(before.secrets) !== JSON.stringify(assignment.secrets);
    if (this.#current) this.#sendLoad(this.#current, assignment, fresh);
  }

  #sendLoad(child: RuntimeChild, assignment: Assignment, fresh: boolean): void {
    const head: LoadHead = {
      revision: assignment.revision,
      kap: { id: assignment.kap_id, slug: assignment.slug, name: assignment.name },
      version_id: assignment.version_id,
      triggers: assignment.triggers,
      secrets: assignment.secrets,
      bundle_map: fresh ? assignment.bundle_map : null,
      limits: assignment.limits,
      fresh,
    };
    child.send(frameKind.load, assignment.revision, 0, JSON.stringify(head), fresh ? Buffer.from(assignment.bundle) : undefined);
  }

  /** A request asked for a newer revision than the child has: fetched from the api once for all who wait. */
  async #refresh(child: RuntimeChild, revision: number): Promise<void> {
    const current = this.assignment;
    if (!current) return;
    if (current.revision >= revision) return this.#sendLoad(child, current, true);
    try {
      const assignment = await this.#source.fetch(current, revision);
      if (assignment.revision > (this.assignment?.revision ?? -1)) this.#adopt(assignment);
      else if (this.#current === child && this.assignment) this.#sendLoad(child, this.assignment, false);
    } catch (error) {
      this.#log.warn({ err: error, revision }, "a newer revision could not be fetched");
      child.send(frameKind.unavailable, revision, 0, error instanceof Error ? error.message : String(error));
    }
  }

  /** Stops accepting, lets the runs in flight end within `drainMs`, delivers the reports, and ends the processes. The runtime is over then. */
  async release(drainMs: number): Promise<void> {
    if (this.state === "draining") return;
    this.state = "draining";
    const drained = new Promise<void>((resolve) => {
      this.#drained = resolve;
      setTimeout(resolve, drainMs);
    });
    this.#spare?.kill();
    if (this.#current) {
      this.#current.send(frameKind.drain);
      await drained;
    }
    const last = this.#current;
    this.#watchdog?.stop();
    this.#current = null;
    if (last) {
      last.kill();
      await last.gone;
      this.#record(
        endsOfBoard(
          readBoard(last.boardFd),
          {
            guiltySlot: null,
            guilty: "crashed",
            others: "crashed",
            why: "the runtime was released before the run had ended",
          },
          this.#told,
        ),
      );
      last.closeBoard();
    }
    await this.#services.close();
    const untold = await this.reporter.close(Math.max(2_000, Math.min(drainMs, 10_000)));
    if (untold > 0) this.#log.error({ runs: untold }, "the ends of some runs could not be reported");
    clearSocketFile(this.#options.data);
  }

  /** Ends everything at once, for a process that must go now. */
  killChildren(): void {
    this.#current?.kill();
    this.#spare?.kill();
  }
}

/** Binds the data address without accepting on it: children do, one after the other. (Node 26 binds paths too; its types do not say so yet.) */
function bind(address: Address): BoundSocket {
  return new BoundSocket(address as { host: string; port: number });
}
