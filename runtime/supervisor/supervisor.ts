import type { KeyObject } from "node:crypto";
import { BoundSocket } from "node:net";
import { newId } from "#platform/ids.ts";
import type { Logger } from "#platform/log.ts";
import { type Address, clearSocketFile } from "../seam/address.ts";
import { type Assignment, openAssignment } from "../seam/assignment.ts";
import type { DryReport } from "../seam/dry-report.ts";
import { frameKind } from "../seam/frames.ts";
import { type CodeCacheState, codeCacheStates, type Ended, type LoadHead } from "../seam/records.ts";
import { AssignmentSource, Disowned } from "./assignment-source.ts";
import type { ChildBudget } from "./child-budget.ts";
import type { RuntimeChild } from "./child-process.ts";
import { Children } from "./children.ts";
import { HostServices } from "./host-services.ts";
import { Reporter } from "./reports.ts";
import { type KnownOutcome, RunLedger } from "./run-ledger.ts";

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
  budget: ChildBudget;
  kit: string;
  log: Logger;
}

/** What is known of a run by its id: how it ended, that a child has it, or nothing. */
export type RunSight = ({ state: "ended" } & KnownOutcome) | { state: "open" } | { state: "unknown" };

/**
 * Owns one runtime: the listening socket, the assignment with its credentials, and through `Children` the processes that serve it.
 */
export class Supervisor {
  readonly bootId = newId();
  state: RuntimeState = "generic";
  assignment: Assignment | null = null;
  /** What became of the code cache of the newest load. */
  codeCache: CodeCacheState = "none";
  readonly reporter: Reporter;
  readonly children: Children;
  readonly #options: SupervisorOptions;
  readonly #log: Logger;
  readonly #socket: BoundSocket;
  readonly #services: HostServices;
  readonly #source: AssignmentSource;
  readonly #ledger = new RunLedger();
  #loadedRevision = -1;
  readonly #loads = new Set<{ revision: number; resolve: () => void }>();
  #released: Promise<void> | null = null;

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
    this.children = new Children(
      {
        listenFd: () => this.#socket.fd(),
        kit: options.kit,
        memoryMb: () => this.assignment?.limits.memory_mb ?? options.memoryMb,
        longestRunMs: () => Math.max(this.assignment?.limits.request_wall_ms ?? 0, this.assignment?.limits.background_wall_ms ?? 0),
        wantsSpare: () => this.state === "assigned",
        told: this.#ledger.told,
        budget: options.budget,
        log: options.log,
      },
      {
        toServe: (child) => this.assignment && this.#give(child, this.assignment),
        loaded: (child, revision, codeCache) => this.#loaded(child, revision, codeCache),
        refresh: (child, revision) => void this.#refreshFor(child, revision),
        call: (child, number, runKey, text, bytes) => this.#services.call(child, number, runKey, text, bytes),
        dry: (child, runKey, runId) => this.#services.beginDry(child, runKey, runId),
        forget: (child, runKey) => this.#services.forget(child, runKey),
        over: (child) => this.#services.forgetAll(child),
        ended: (ended) => this.#record(ended),
      },
    );
    this.children.fill();
  }

  get dataAddress(): string | { address: string; port: number } {
    return this.#socket.address() as string | { address: string; port: number };
  }

  /** Settles when a child with isolate and web API is warm and takes connections. */
  get warm(): Promise<void> {
    return this.children.serving?.accepting ?? Promise.reject(new Error("the runtime has no child"));
  }

  get isWarm(): boolean {
    return this.children.serving?.isAccepting ?? false;
  }

  get inFlight(): { running: number; queued: number } {
    const { runs } = this.children;
    return { running: runs.filter((run) => run.state === "running").length, queued: runs.filter((run) => run.state === "queued").length };
  }

  get idleSince(): string | null {
    const { running, queued } = this.inFlight;
    return running + queued > 0 ? null : new Date(this.#ledger.lastEndedAt).toISOString();
  }

  get rssBytes(): number {
    return process.memoryUsage.rss() + this.children.rssBytes;
  }

  /** What is known of a run whose caller saw only a broken connection. `unknown`: no child has taken it, or it ended well, or long ago. */
  sightOf(runId: string): RunSight {
    const known = this.#ledger.outcomeOf(runId);
    if (known) return { state: "ended", ...known };
    return { state: this.children.runs.some((run) => run.id === runId) ? "open" : "unknown" };
  }

  /** What became of a dry run, once it has ended and is undone; null when that is not so in time, or was told before. */
  dryReportOf(runId: string): Promise<DryReport | null> {
    return this.#services.dryRuns.report(runId);
  }

  #record(ended: Ended): void {
    if (ended.runs.length === 0 && ended.lines.length === 0) return;
    this.#ledger.note(ended);
    this.reporter.add(this.#services.dryRuns.take(ended));
  }

  #loaded(child: RuntimeChild, revision: number, codeCache: number): void {
    if (!this.children.taking.includes(child)) return;
    this.codeCache = codeCacheStates[codeCache] ?? "none";
    this.#loadedRevision = Math.max(this.#loadedRevision, revision);
    for (const load of this.#loads) if (load.revision <= this.#loadedRevision) load.resolve();
  }

  /**
   * Makes this runtime the kap's (a claim), or brings the kap's newer revision (a refresh by claim). Settles when the child has loaded it.
   * @throws AssignmentRefused (401), ClaimRefused (409 another kap or draining, 503 not warm in time)
   */
  async claim(body: Buffer): Promise<{ ms: number }> {
    const started = performance.now();
    const assignment = openAssignment(body, this.#options.claimKey, this.bootId);
    this.#refuseDraining();
    if (this.assignment && (this.assignment.kap_id !== assignment.kap_id || this.assignment.runtime_id !== assignment.runtime_id))
      throw new ClaimRefused(409, "This runtime already serves another kap and never changes it; claim a generic one.");
    this.#adopt(assignment);
    this.#services.anticipate(assignment);
    await this.#untilLoaded(assignment.revision);
    this.#refuseDraining();
    // The first answer comes first; a spare that is needed sooner is made when it is.
    setTimeout(() => this.children.fill(), spareDelayMs).unref();
    return { ms: Math.round((performance.now() - started) * 100) / 100 };
  }

  #refuseDraining(): void {
    if (this.state === "draining") throw new ClaimRefused(409, "This runtime is draining; claim another.");
  }

  /**
   * Takes up what the kap is now, without waiting for a call that needs it. Settles when the child has loaded it: from then on no request is
   * served with what was before.
   * @throws ClaimRefused (409 not assigned, 503 not loaded in time), or why the api could not be asked
   */
  async refresh(): Promise<{ revision: number }> {
    const current = this.assignment;
    if (!current || this.state !== "assigned") throw new ClaimRefused(409, "This runtime serves no kap that could be refreshed.");
    const assignment = await this.#fetch(current, current.revision);
    this.#adopt(assignment);
    await this.#untilLoaded(assignment.revision);
    return { revision: assignment.revision };
  }

  async #fetch(current: Assignment, revision: number): Promise<Assignment> {
    try {
      return await this.#source.fetch(current, revision);
    } catch (error) {
      if (error instanceof Disowned) this.#options.onDisowned();
      throw error;
    }
  }

  async #untilLoaded(revision: number): Promise<void> {
    if (this.#loadedRevision >= revision) return;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const load = { revision, resolve };
    this.#loads.add(load);
    const late = setTimeout(() => reject(new ClaimRefused(503, "The runtime's child did not load the kap in time.")), claimTimeoutMs);
    try {
      await promise;
    } finally {
      clearTimeout(late);
      this.#loads.delete(load);
    }
  }

  /** Takes an assignment up unless it is no newer than the present one. */
  #adopt(assignment: Assignment): void {
    if (this.assignment && assignment.revision <= this.assignment.revision) return;
    this.assignment = assignment;
    // A draining runtime ends its runs with what they need and takes up nothing else.
    if (this.state === "generic") {
      this.state = "assigned";
      this.reporter.keepInTouch();
    }
    this.#services.assign(assignment);
    for (const child of this.children.taking) this.#give(child, assignment);
  }

  /** Sends a child an assignment unless it has been sent that or a newer one: the whole program only when it or its secrets are not what the child has. */
  #give(child: RuntimeChild, assignment: Assignment): void {
    const { given } = child;
    if (given && given.revision >= assignment.revision) return;
    child.given = assignment;
    const fresh =
      given?.program.sha256 !== assignment.program.sha256 || JSON.stringify(given.secrets) !== JSON.stringify(assignment.secrets);
    const head: LoadHead = {
      revision: assignment.revision,
      kap: { id: assignment.kap_id, slug: assignment.slug, name: assignment.name },
      version_id: assignment.version_id,
      triggers: assignment.triggers,
      secrets: assignment.secrets,
      program: assignment.program,
      limits: assignment.limits,
      fresh,
    };
    child.send(frameKind.load, assignment.revision, 0, JSON.stringify(head), fresh ? assignment.programBytes : undefined);
  }

  /** A request asked a child for a newer revision than it has: fetched from the api unless another has brought it meanwhile. */
  async #refreshFor(child: RuntimeChild, revision: number): Promise<void> {
    try {
      if (!this.assignment) return;
      if (this.assignment.revision < revision) this.#adopt(await this.#fetch(this.assignment, revision));
      this.#give(child, this.assignment);
    } catch (error) {
      this.#log.warn({ err: error, revision }, "a newer revision could not be fetched");
      child.send(frameKind.unavailable, revision, 0, error instanceof Error ? error.message : String(error));
    }
  }

  /**
   * Stops accepting, lets the runs in flight end within `drainMs`, delivers the reports, and ends the processes. The runtime is over then. Asked
   * again, it is the same release: whoever ends this process when it settles cuts nothing short.
   */
  release(drainMs: number): Promise<void> {
    this.#released ??= this.#release(drainMs);
    return this.#released;
  }

  async #release(drainMs: number): Promise<void> {
    this.state = "draining";
    await this.children.drain(drainMs);
    await this.#services.close();
    const untold = await this.reporter.close(Math.max(2_000, Math.min(drainMs, 10_000)));
    if (untold > 0) this.#log.error({ runs: untold }, "the ends of some runs could not be reported");
    clearSocketFile(this.#options.data);
  }

  /** Ends everything at once, for a process that must go now. */
  killChildren(): void {
    this.children.kill();
  }
}

/** Binds the data address without accepting on it: children do, one after the other. (Node 26 binds paths too; its types do not say so yet.) */
function bind(address: Address): BoundSocket {
  return new BoundSocket(address as { host: string; port: number });
}
