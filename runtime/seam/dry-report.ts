import type { LogLine, RunEnd } from "./records.ts";

/** A statement; those of one db.batch share a number. `error` is, here and below, what the program was told; null where it went well. */
export interface DatabaseEffect {
  kind: "db";
  sql: string;
  row_count: number | null;
  batch: number | null;
  error: string | null;
}

export interface PutEffect {
  kind: "store.put";
  key: string;
  /** Whether an object of that key was there, as the run saw it. */
  existed: boolean | null;
  bytes: number | null;
  content_type: string | null;
  error: string | null;
}

export interface DeleteEffect {
  kind: "store.delete";
  key: string;
  existed: boolean | null;
  error: string | null;
}

/** Refused, always. */
export interface FetchEffect {
  kind: "fetch";
  method: string;
  url: string;
}

/** What a program did or tried in a dry run. */
export type DryEffect = DatabaseEffect | PutEffect | DeleteEffect | FetchEffect | { kind: "wait-until" };

/** What a supervisor tells of a dry run, once, when the run has ended and everything of it has been undone. */
export interface DryReport {
  end: RunEnd;
  /** In the order in which they were asked for; at most 1,000. */
  effects: DryEffect[];
  effects_dropped: number;
  lines: LogLine[];
}
