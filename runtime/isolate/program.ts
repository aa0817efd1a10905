import type { AssignedTrigger } from "#platform/assignment.ts";
import type { ProgramParts } from "../seam/program-bytes.ts";
import type { CodeCacheState, LoadHead } from "../seam/records.ts";
import { secretRedactor } from "../seam/redaction.ts";
import type { GuestContext } from "./sandbox.ts";
import { stackMapper } from "./stack-map.ts";

/** Time a bundle may take to build its table of modules; nothing of the author's code is evaluated by it. */
const installTimeoutMs = 5_000;

/** One version of the kap's program with the secrets and triggers of one revision. Serves until a newer one is loaded and its runs have ended. */
export class Program {
  readonly context: GuestContext;
  /** For a context made anew in the same isolate, which still has what the code cache gave. */
  readonly parts: ProgramParts;
  head: LoadHead;
  redact: (text: string) => string;
  readonly #mapStack: (stack: string) => string;
  /** Why no run of this version can work, when the bundle itself does not load. */
  readonly broken: string | null;
  readonly codeCache: CodeCacheState;
  activeRuns = 0;
  isCurrent = true;
  readonly #prefixes = new Map<string, string>();

  constructor(context: GuestContext, head: LoadHead, parts: ProgramParts) {
    this.context = context;
    this.parts = { ...parts, cache: null };
    this.head = head;
    this.redact = secretRedactor(head.secrets);
    this.#mapStack = stackMapper(parts.map);
    let broken: string | null = null;
    let codeCache: CodeCacheState = "none";
    try {
      context.entries.secrets.applySync(undefined, [JSON.stringify(head.secrets)], { timeout: installTimeoutMs });
      codeCache = context.install(parts, installTimeoutMs);
    } catch (error) {
      broken = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    }
    this.broken = broken;
    this.codeCache = codeCache;
  }

  /** Takes over a revision that changed neither bundle nor secrets. */
  adopt(head: LoadHead): void {
    this.head = head;
    this.#prefixes.clear();
  }

  /** The trigger of that id, or the kap's request trigger when none is named. */
  triggerOf(id: string | null): AssignedTrigger | null {
    return this.head.triggers.find((trigger) => (id === null ? trigger.kind === "request" : trigger.id === id)) ?? null;
  }

  /** The part of a run's head that is the same for all runs of a trigger: an open JSON object. */
  headPrefix(trigger: AssignedTrigger): string {
    let prefix = this.#prefixes.get(trigger.id);
    if (prefix === undefined) {
      const { kap } = this.head;
      prefix = JSON.stringify({ file: trigger.file_path, trigger: trigger.id, kap }).slice(0, -1);
      this.#prefixes.set(trigger.id, prefix);
    }
    return prefix;
  }

  /** A failure's text as its author may read it: frames in their files, no secret in it, at most 8 KiB. */
  describe(detail: string): string {
    return this.redact(this.#mapStack(detail)).slice(0, 8_192);
  }

  /** A log line: secrets redacted, frames of stacks in the author's files. */
  describeLine(text: string): string {
    return this.redact(text.includes("kap:bundle:") ? this.#mapStack(text) : text);
  }

  #isReleased = false;

  /** Gives the context up once the program is superseded and its last run has ended; whoever notices first does it. */
  releaseWhenIdle(): void {
    if (this.isCurrent || this.activeRuns > 0 || this.#isReleased) return;
    this.#isReleased = true;
    this.context.release();
  }
}
