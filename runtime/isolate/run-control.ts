import type { Outcome } from "../seam/records.ts";
import type { Program } from "./program.ts";
import type { Run } from "./run.ts";
import type { Entry, EntryArgument } from "./sandbox.ts";

/** What admission and the guest's callbacks need of the engine: to see its runs, to enter the isolate on a run's account, and to end a run. */
export interface RunControl {
  readonly runs: ReadonlyMap<number, Run>;
  readonly program: Program | null;
  /** Enters the isolate for a run. Never throws: every way it can fail becomes the run's outcome. */
  enter(run: Run, entry: Entry, args: EntryArgument[]): void;
  /** Does something that may enter the isolate: now when nobody is inside, else right after. */
  defer(action: () => void): void;
  /** The program has done all it had to for this run; the run ends when its answer has left the process. */
  done(run: Run): void;
  /** An answer the limits or HTTP do not allow: the run ends with it. */
  badAnswer(run: Run, error: unknown): void;
  /** Ends a run: answers its caller unless that has been done. */
  end(run: Run, outcome: Outcome, status: number, detail: string | null): void;
}
