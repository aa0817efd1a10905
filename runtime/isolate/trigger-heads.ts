import type { AssignedTrigger } from "#platform/assignment.ts";
import type { Outcome } from "../seam/records.ts";
import type { Answer } from "./answer.ts";
import type { Program } from "./program.ts";
import type { Run } from "./run.ts";

/** The number of each kind of trigger on the bridge. */
const kinds = { request: 0, schedule: 1, inbox: 2 } as const;

interface RunHead {
  kind: number;
  text: string;
  body: ArrayBuffer | undefined;
}

/** What the program is told about its run. Null when a trigger's payload is malformed. */
export function runHead(run: Run, program: Program, trigger: AssignedTrigger, bytes: ArrayBuffer | undefined): RunHead | null {
  const prefix = run.arrival.isDry ? `${program.headPrefix(trigger)},"isDry":true` : program.headPrefix(trigger);
  if (trigger.kind === "request") {
    const { arrival } = run;
    const { request } = arrival;
    const target = request.url ?? "/";
    const url = JSON.stringify(`${arrival.scheme}://${arrival.host}${target.startsWith("/") ? target : "/"}`);
    const user = arrival.user === null ? "" : `,"user":${arrival.user}`;
    const text = `${prefix},"runId":"${run.id}","method":${JSON.stringify(request.method)},"url":${url},"headers":${JSON.stringify(arrival.headers)},"bodyKind":"${run.body.kind}"${user}}`;
    return { kind: kinds.request, text, body: bytes };
  }
  try {
    return trigger.kind === "schedule" ? scheduleHead(prefix, run.id, bytes) : mailHead(prefix, run.id, bytes);
  } catch {
    return null;
  }
}

function scheduleHead(prefix: string, runId: string, bytes: ArrayBuffer | undefined): RunHead {
  const payload = JSON.parse(Buffer.from(bytes ?? new ArrayBuffer(0)).toString("utf8")) as { scheduled_at?: unknown };
  const scheduledAt = typeof payload.scheduled_at === "number" ? payload.scheduled_at : Date.parse(String(payload.scheduled_at));
  if (!Number.isFinite(scheduledAt)) throw new Error("scheduled_at is not a time");
  return { kind: kinds.schedule, text: `${prefix},"runId":"${runId}","scheduledAt":${scheduledAt}}`, body: undefined };
}

/** The mail frame: u32be length of the head, the head as JSON, then the attachments' bytes. */
function mailHead(prefix: string, runId: string, bytes: ArrayBuffer | undefined): RunHead {
  const frame = Buffer.from(bytes ?? new ArrayBuffer(0));
  const headEnd = 4 + frame.readUInt32BE(0);
  const { attachments, ...message } = JSON.parse(frame.toString("utf8", 4, headEnd)) as { attachments?: { size: number }[] };
  const text = `${prefix},"runId":"${runId}","message":${JSON.stringify(message)},"attachments":${JSON.stringify(attachments ?? [])}}`;
  return { kind: kinds.inbox, text, body: new Uint8Array(frame.subarray(headEnd)).slice().buffer };
}

/** Schedules and mail answer the gateway with how they ended, once they have. */
export function scheduledAnswer(answer: Answer, outcome: Outcome, detail: string | null): void {
  if (answer.hasHead) return;
  answer.respond(200, '["content-type","application/json"]', JSON.stringify({ outcome, detail }), false);
}
