import type { AssignedTrigger, KapLimits } from "#platform/assignment.ts";
import { type RuntimeOutcome, runtimeOutcomes } from "#platform/run-outcome.ts";
import type { ProgramSizes } from "./program-bytes.ts";

/** How a run ended, as far as a runtime can tell. */
export type Outcome = RuntimeOutcome;
export const outcomes = runtimeOutcomes;

/** Where a run's time went, in milliseconds. `host_ms` is the sum of the waits for host calls, which may overlap. */
export interface Phases {
  /** The gateway's wait for a warm runtime to become this kap's; 0 when it had one. */
  claim_ms: number;
  /** Until the run had a place, and its small body was here. */
  queue_ms: number;
  /** The wait for a newer revision of the program. */
  load_ms: number;
  /** From the handler's call (on a module's first use also its evaluation) to the head of the answer, or the failure. */
  handler_ms: number;
  host_ms: number;
}

/** The end of one run as the child tells it. Times are ISO texts. */
export interface RunEnd {
  id: string;
  outcome: Outcome;
  detail: string | null;
  http_status: number | null;
  started_at: string;
  finished_at: string;
  duration_ms: number;
  cpu_ms: number;
  phases: Phases;
  egress_bytes: number;
  db_ms: number;
  memory_bytes?: number;
}

/** One line of a run's log; `n` counts the lines of its run from 1, so a repeated delivery is recognised. */
export interface LogLine {
  run_id: string;
  n: number;
  at: string;
  level: string;
  text: string;
}

/** What the child hands over in one `ended` frame. */
export interface Ended {
  runs: RunEnd[];
  lines: LogLine[];
}

/** What a child made of the code cache that came with a program: by the number in its `loaded` frame. */
export const codeCacheStates = ["none", "used", "refused"] as const;
export type CodeCacheState = (typeof codeCacheStates)[number];

/** The part of an assignment that the child may know: neither a credential of the platform nor an address of it. */
export interface LoadHead {
  revision: number;
  kap: { id: string; slug: string; name: string };
  version_id: string;
  triggers: AssignedTrigger[];
  secrets: Record<string, string>;
  /** Of the bytes that come with it when it is fresh. */
  program: ProgramSizes;
  limits: KapLimits;
  /** Whether the program itself or its secrets changed, so a new context is needed; else only triggers and limits did. */
  fresh: boolean;
}
