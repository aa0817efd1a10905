import { catastropheSignal } from "../seam/catastrophe.ts";
import type { BoardRun } from "../seam/flight-board.ts";
import type { Ended, Outcome, RunEnd } from "../seam/records.ts";
import type { ChildEnd } from "./child-process.ts";
import type { Verdict } from "./watchdog.ts";

/**
 * What a child's own end says, as far as it can be known: its isolate reported the end of its memory, the kernel killed for memory
 * (`byKernel`), or it crashed, was killed by somebody else, or broke the link to its supervisor.
 */
export function verdictOfExit(end: ChildEnd, byKernel: boolean): Verdict {
  if (end.signal === catastropheSignal) return verdict("memory-exceeded", "the isolate used up its memory and took its process with it");
  if (end.wasGarbled) return verdict("crashed", "the process that runs the kap could not be understood any more and was killed");
  if (end.signal === "SIGKILL" && byKernel)
    return verdict("memory-exceeded", "the system killed the process that runs the kap for its memory");
  return verdict("crashed", `the process that runs the kap ended (${end.signal ?? end.code ?? "it could not be started"})`);
}

const verdict = (outcome: Outcome, why: string): Verdict => ({
  guiltySlot: null,
  guilty: outcome,
  others: outcome,
  why,
  guiltyCpuMs: null,
});

/** For runs that were still open when their child had to go. */
export const releaseVerdict: Verdict = verdict("crashed", "the runtime was released before the run had ended");

/** The ends of the runs a dead child left on its board; `told` are ends that are known already. */
export function endsOfBoard(board: BoardRun[], verdict: Verdict | null, told: ReadonlySet<string>, now: number = Date.now()): Ended {
  const runs: RunEnd[] = [];
  for (const run of board) {
    if (run.state === "ended") {
      if (!told.has(run.id)) runs.push(end(run, run.outcome, null, run.endedAt, run.httpStatus));
    } else if (run.state === "queued")
      runs.push(end(run, "crashed", `The run had not started when ${verdict?.why ?? "its process ended"}.`, now, 0));
    else if (verdict) {
      const isGuilty = run.slot === verdict.guiltySlot;
      const detail = isGuilty ? `${capital(verdict.why)}.` : `The run was in flight when ${verdict.why}.`;
      const cpuMs = (isGuilty ? verdict.guiltyCpuMs : null) ?? run.cpuMs;
      runs.push({ ...end(run, isGuilty ? verdict.guilty : verdict.others, detail, now, 0), cpu_ms: Math.round(cpuMs) });
    } else runs.push(end(run, "crashed", "The run was in flight when its process ended.", now, 0));
  }
  return { runs, lines: [] };
}

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

function end(run: BoardRun, outcome: Outcome, detail: string | null, endedAt: number, httpStatus: number): RunEnd {
  const durationMs = Math.max(0, endedAt - run.startedAt);
  return {
    id: run.id,
    outcome,
    detail,
    http_status: httpStatus === 0 ? null : httpStatus,
    started_at: new Date(run.startedAt).toISOString(),
    finished_at: new Date(endedAt).toISOString(),
    duration_ms: durationMs,
    cpu_ms: Math.round(run.cpuMs),
    phases: { claim_ms: 0, queue_ms: 0, load_ms: 0, handler_ms: durationMs, host_ms: 0 },
    egress_bytes: 0,
    db_ms: 0,
  };
}
