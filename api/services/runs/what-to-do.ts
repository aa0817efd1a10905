import type { Outcome } from "#platform/run-outcome.ts";
import type { TriggerKind } from "#platform/trigger-kind.ts";
import type { RunRow } from "./run-row.ts";

/** What these sentences need to know of a run. */
export type RunFacts = Pick<RunRow, "status" | "outcome" | "trigger_kind" | "attempts" | "detail" | "duration_ms">;

const again: Record<TriggerKind, string> = {
  request: "then call it again",
  schedule: "then use run-now, or wait for its next time",
  inbox: "then have the mail sent again, since it is not tried further",
};

const advice: Record<Outcome, (run: RunFacts) => string> = {
  ok: () => "Nothing: the run did what it should.",
  error: ({ trigger_kind }) =>
    `Read the detail and the log of this run to see what the program threw and where, correct that file and save, ${again[trigger_kind]}.`,
  timeout: ({ trigger_kind }) =>
    trigger_kind === "request"
      ? "Make the handler answer sooner: move slow work into a schedule, or give the outward calls it waits for a deadline of their own."
      : `Split the work into smaller pieces that remember in the database how far they came, ${again[trigger_kind]}.`,
  "cpu-exceeded": ({ trigger_kind }) =>
    trigger_kind === "request"
      ? "Compute less in a call: look in the log for the loop that does not end, let SQL do the heavy part, or move it into a schedule, which may use more CPU time."
      : "Compute less in one run: look in the log for the loop that does not end, let SQL do the heavy part, or do a share of it each time.",
  "memory-exceeded": ({ trigger_kind }) =>
    trigger_kind === "inbox"
      ? "Hold less in memory: a large attachment is better put into the file store than turned into text; if the mail itself is too large, have it sent in parts."
      : "Hold less in memory at once: stream bodies and files, and read the database page by page; runs that were going on at the same time may have failed for this one.",
  "response-too-large": () => "Answer less: page the result, or put it into the file store and answer its address.",
  "client-gone": () => "Usually nothing: the caller hung up before the answer was complete. If it happens often, answer sooner.",
  refused: ({ trigger_kind }) =>
    ({
      request: "Call again in a moment; if the detail says the queue was full, make the calls shorter or fewer at a time.",
      schedule: "Do what the detail names (enable the kap, or wait until it is free); the next time of the schedule is tried by itself.",
      inbox: "Do what the detail names; to let the kap handle automatic replies too, give its inbox trigger auto_replies: true.",
    })[trigger_kind],
  missed: () =>
    "Use run-now if the work must still be done; if this happens often, make the runs shorter or the schedule's cadence longer.",
  crashed: ({ trigger_kind }) =>
    trigger_kind === "inbox"
      ? "Check what the run has already done, as it may have run in part, then have the mail sent again; if it happens again, look for work that needs much memory."
      : `Check what the run has already done, as it may have run in part, ${again[trigger_kind]}; if it happens again, look for work that needs much memory.`,
};

/** A queued run that has been tried already has the detail of its last attempt. */
function isRetry(run: RunFacts): boolean {
  return run.detail !== null;
}

/** A sentence for a person: what to do about this run (decided §7.3). */
export function whatToDo(run: RunFacts): string {
  if (run.status === "queued")
    return isRetry(run) ? "Nothing yet: the last attempt failed and it is tried again by itself." : "Nothing yet: it starts in a moment.";
  if (run.outcome === null) return "Nothing yet: it is running.";
  return advice[run.outcome](run);
}

const happened: Record<Outcome, string> = {
  ok: "The run ended well",
  error: "The program threw an error",
  timeout: "The run took longer than a run may take and was ended",
  "cpu-exceeded": "The run used more CPU time than a run may use and was ended",
  "memory-exceeded": "The program used more memory than it may use and was ended",
  "response-too-large": "The program's answer was over the limit and was not sent whole",
  "client-gone": "The caller went away before the answer was complete",
  refused: "The run was refused before the program saw it",
  missed: "The run was not carried out at its time",
  crashed: "The runtime ended before the run did",
};

/** A sentence for a person: what happened. */
export function messageOf(run: RunFacts): string {
  if (run.status === "queued")
    return isRetry(run) ? `Attempt ${run.attempts} failed; the next one follows.` : "The run waits to be started.";
  if (run.outcome === null) return "The run is going on.";
  const took = run.duration_ms === null ? "" : ` after ${Math.round(run.duration_ms)} ms`;
  const tried = run.attempts > 1 ? `, at attempt ${run.attempts}` : "";
  return `${happened[run.outcome]}${run.outcome === "missed" || run.outcome === "refused" ? "" : took}${tried}.`;
}
