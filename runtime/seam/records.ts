import type { AssignedTrigger, KapLimits } from "./assignment.ts";

/** How a run ended (decided §7.3), as far as a runtime can tell. */
export const outcomes = [
  "ok",
  "error",
  "timeout",
  "cpu-exceeded",
  "memory-exceeded",
  "response-too-large",
  "client-gone",
  "refused",
  "crashed",
] as const;
export type Outcome = (typeof outcomes)[number];

/** Where a run's time went, in milliseconds. `host_ms` is the sum of the waits for host calls, which may overlap. */
export interface Phases {
  queue_ms: number;
  load_ms: number;
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

/** The part of an assignment that the child may know: neither a credential of the platform nor an address of it. */
export interface LoadHead {
  revision: number;
  kap: { id: string; slug: string; name: string };
  version_id: string;
  triggers: AssignedTrigger[];
  secrets: Record<string, string>;
  /** Source map of the bundle as JSON, for stacks in details and log lines. */
  bundle_map: string | null;
  limits: KapLimits;
  /** Whether the program itself or its secrets changed, so a new context is needed; else only triggers and limits did. */
  fresh: boolean;
}
