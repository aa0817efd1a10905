import type { IncomingMessage, ServerResponse } from "node:http";
import type { AssignedTrigger, KapLimits } from "#platform/assignment.ts";
import type { LogLine, Outcome, RunEnd } from "../seam/records.ts";
import { Answer } from "./answer.ts";
import { LogBook } from "./log-book.ts";
import type { Program } from "./program.ts";
import { RequestBody } from "./request-body.ts";

/** A mail's frame has its texts beside the attachments: more than the largest stored object. */
const mailHeadBytes = 4 * 1024 * 1024;

/** What a data request says about itself, before any program has seen it. */
export interface Arrival {
  runId: string;
  /** A dry run: its effects are not carried out, and somebody waits for it whatever its trigger is. */
  isDry: boolean;
  revision: number;
  /** What the gateway waited for a runtime, before the call could be sent here. */
  claimMs: number;
  triggerId: string | null;
  /** The kap the caller means. */
  kapId: string | null;
  /** JSON text of `ctx.user`, or null when nobody is signed in. */
  user: string | null;
  scheme: string;
  host: string;
  /** Headers for the program: flat names and values, the platform's own removed. */
  headers: string[];
  request: IncomingMessage;
}

/** One invocation from its arrival to its end. Times are epoch milliseconds where named `…At`, else durations from the monotonic clock. */
export interface Run {
  readonly key: number;
  readonly id: string;
  readonly slot: number;
  readonly arrival: Arrival;
  readonly answer: Answer;
  readonly body: RequestBody;
  readonly arrivedAt: number;
  readonly arrivedClock: number;
  readonly book: LogBook;
  /** Set when the run starts: the version it keeps until its end. */
  program: Program | null;
  trigger: AssignedTrigger | null;
  wallDeadline: number;
  cpuBudgetMs: number;
  cpuMs: number;
  startedClock: number;
  loadMs: number;
  handlerMs: number;
  hostMs: number;
  dbMs: number;
  egressBytes: number;
  calledHost: boolean;
  isCallerGone: boolean;
  isEnded: boolean;
  timers: Map<number, NodeJS.Timeout>;
}

/** A run as it stands at its arrival, with the limits of its kind (decided §7.2: requests, and schedules and mail). */
export function openRun(
  key: number,
  slot: number,
  arrival: Arrival,
  response: ServerResponse,
  trigger: AssignedTrigger | null,
  limits: KapLimits,
  addLine: (line: LogLine) => void,
): Run {
  // A trigger this runtime has not heard of yet comes with the revision that has it; until then the platform's own path tells its kind.
  const isRequest = trigger === null ? !arrival.request.url?.startsWith("/__kaps/") : trigger.kind === "request";
  const bodyBytes = isRequest ? limits.request_body_bytes : limits.store_object_bytes + mailHeadBytes;
  const arrivedAt = Date.now();
  return {
    key,
    id: arrival.runId,
    slot,
    arrival,
    answer: new Answer(arrival.request, response, limits.response_body_bytes),
    body: new RequestBody(arrival.request, bodyBytes, !isRequest),
    arrivedAt,
    arrivedClock: performance.now(),
    book: new LogBook(arrival.runId, addLine),
    program: null,
    trigger,
    wallDeadline: arrivedAt + (isRequest || arrival.isDry ? limits.request_wall_ms : limits.background_wall_ms),
    cpuBudgetMs: isRequest ? limits.request_cpu_ms : limits.background_cpu_ms,
    cpuMs: 0,
    startedClock: 0,
    loadMs: 0,
    handlerMs: 0,
    hostMs: 0,
    dbMs: 0,
    egressBytes: 0,
    calledHost: false,
    isCallerGone: false,
    isEnded: false,
    timers: new Map(),
  };
}

/** The record of a run's end, as the api stores it. */
export function runEnd(run: Run, outcome: Outcome, httpStatus: number | null, detail: string | null, now: number): RunEnd {
  const durationMs = round(performance.now() - run.arrivedClock);
  return {
    id: run.id,
    outcome,
    detail,
    http_status: httpStatus,
    started_at: new Date(run.arrivedAt).toISOString(),
    finished_at: new Date(now).toISOString(),
    duration_ms: durationMs,
    cpu_ms: round(run.cpuMs),
    phases: {
      claim_ms: round(run.arrival.claimMs),
      queue_ms: run.startedClock === 0 ? durationMs : round(run.startedClock - run.arrivedClock - run.loadMs),
      load_ms: round(run.loadMs),
      handler_ms: round(run.handlerMs),
      host_ms: round(run.hostMs),
    },
    egress_bytes: run.egressBytes,
    db_ms: round(run.dbMs),
  };
}

const round = (ms: number): number => Math.max(0, Math.round(ms * 100) / 100);
