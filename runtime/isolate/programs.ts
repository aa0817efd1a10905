import type { ProgramParts } from "../seam/program-bytes.ts";
import type { CodeCacheState, LoadHead } from "../seam/records.ts";
import { Program } from "./program.ts";
import type { GuestContext } from "./sandbox.ts";

/** The versions of the kap's program that are alive: the current one, and those whose runs still go on. The first finds its context ready. */
export class Programs {
  current: Program | null = null;
  readonly #createContext: () => GuestContext;
  #spareContext: GuestContext | null;

  constructor(createContext: () => GuestContext) {
    this.#createContext = createContext;
    this.#spareContext = createContext();
  }

  /** Takes a revision: a new context when program or secrets changed (`parts`), else only the new triggers and limits. The old program ends with its runs. */
  load(head: LoadHead, parts: ProgramParts | null): CodeCacheState {
    if (parts === null) {
      this.current?.adopt(head);
      return "none";
    }
    const context = this.#spareContext ?? this.#createContext();
    this.#spareContext = null;
    const program = new Program(context, head, parts);
    this.#replace(program);
    return program.codeCache;
  }

  /** Gives the current program a context in which nothing has happened yet; an older one is left to end. */
  renew(program: Program): void {
    if (program.isCurrent) this.#replace(new Program(this.#createContext(), program.head, program.parts));
  }

  /**
   * A dry run has a context of its own: what it leaves in module variables (that it has made its tables, say) would not be so for the runs that count.
   * Null when the isolate has no room for it.
   */
  forDryRun({ head, parts }: Program): Program | null {
    try {
      const dry = new Program(this.#createContext(), head, parts);
      dry.isCurrent = false;
      return dry;
    } catch {
      return null;
    }
  }

  /** Gives up what is held for no run. */
  close(): void {
    const { current } = this;
    if (!current) return;
    current.isCurrent = false;
    current.releaseWhenIdle();
  }

  #replace(program: Program): void {
    const old = this.current;
    this.current = program;
    if (!old) return;
    old.isCurrent = false;
    old.releaseWhenIdle();
  }
}
