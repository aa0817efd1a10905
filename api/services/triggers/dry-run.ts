import type { z } from "zod";
import { outcomeOf } from "#platform/run-outcome.ts";
import type { TriggerKind } from "#platform/trigger-kind.ts";
import type { Deps } from "../../deps.ts";
import { type DryInvocation, type DryResult, invokeDry } from "../../gateway/dry-invoke.ts";
import { failureRefusal } from "../../gateway/failure.ts";
import { statusOfLost } from "../../gateway/lost-answer.ts";
import type { Caller } from "../../http/caller.ts";
import { envelopes } from "../../http/envelopes.ts";
import { invalid, refuse } from "../../http/refusal.ts";
import type { KapRow } from "../kaps/kap.ts";
import { whatToDo } from "../runs/what-to-do.ts";
import { openMailReader, UnreadableMail } from "./mail/mail-reader.ts";
import type { ReadMail } from "./mail/read-mail.ts";
import type { dryRunAnswer, dryRunBody } from "./schema.ts";
import { mailBytes, type TriggerRow } from "./trigger.ts";

type Body = z.output<typeof dryRunBody>;
type Answer = z.input<typeof dryRunAnswer>;

const fieldsOf: Record<TriggerKind, readonly (keyof Body)[]> = {
  inbox: ["mail", "mail_base64", "envelope"],
  schedule: ["scheduled_at"],
  request: ["method", "path", "headers", "body", "body_base64"],
};
const base64 = /^[A-Za-z0-9+/]*={0,2}$/;

/** Who asks for a dry run, and of what. */
export interface DryRunRequest {
  caller: Caller;
  kap: KapRow;
  trigger: TriggerRow;
  body: Body;
  signal: AbortSignal;
}

/**
 * Runs a trigger's handler on what is given and answers what it did, paused or not. Its statements stand in a transaction that is rolled back, its files
 * are not written, its fetches are refused; no run, line, mail or consumption is recorded. A mail is parsed and checked as a real one is.
 */
export async function dryRun(deps: Deps, request: DryRunRequest): Promise<Answer> {
  const { trigger, body } = request;
  for (const field of Object.keys(body) as (keyof Body)[])
    if (body[field] !== undefined && !fieldsOf[trigger.kind].includes(field))
      throw invalid({ path: field, message: `is not part of a dry run of this trigger, whose kind is ${trigger.kind}` });
  if (trigger.kind === "inbox") return mailRun(deps, request);
  if (trigger.kind === "schedule") {
    const scheduledAt = body.scheduled_at ?? new Date().toISOString();
    return shown(
      "schedule",
      await invokeDry(deps, invocation(request, "/__kaps/scheduled", JSON.stringify({ scheduled_at: scheduledAt }))),
    );
  }
  return requestRun(deps, request);
}

function invocation({ kap, trigger, signal }: DryRunRequest, path: string, body: string | Buffer): DryInvocation {
  return {
    kap,
    triggerId: trigger.id,
    method: "POST",
    path,
    headers: [],
    body: Buffer.from(body),
    caller: trigger.kind,
    user: null,
    signal,
  };
}

async function mailRun(deps: Deps, request: DryRunRequest): Promise<Answer> {
  const mail = await readMail(deps, request);
  if (mail instanceof UnreadableMail) return shown("inbox", notRun(mail.message));
  if (mail.isAutomatic && !request.trigger.auto_replies)
    return shown("inbox", notRun("the mail is an automatic reply or a bounce, and the trigger has auto_replies: false"));
  return shown("inbox", await invokeDry(deps, invocation(request, "/__kaps/email", Buffer.from(mail.frame))));
}

/** Reads the mail as one that was received, in a thread of its own; from the caller's own address unless the envelope says otherwise. */
async function readMail(deps: Deps, { caller, body }: DryRunRequest): Promise<ReadMail | UnreadableMail> {
  if ((body.mail === undefined) === (body.mail_base64 === undefined))
    throw invalid({ path: "mail", message: "give the raw mail, either as mail or as mail_base64" });
  // A mail on disk has the line ends of its system; on the wire they are CRLF.
  const bytes =
    body.mail_base64 === undefined ? Buffer.from((body.mail ?? "").replace(/\r?\n/g, "\r\n")) : decoded("mail_base64", body.mail_base64);
  if (bytes.length > mailBytes) throw refuse("PAYLOAD_TOO_LARGE", `a mail has at most ${mailBytes} bytes: give a smaller one`);
  const { mailDomain } = deps.addresses;
  const reader = openMailReader(deps.config.dnsServers);
  try {
    return await reader.read(new Uint8Array(bytes), {
      envelopeFrom: body.envelope?.from ?? caller.member?.email ?? `dry-run@${mailDomain}`,
      remoteAddress: body.envelope?.remote_address ?? "127.0.0.1",
      helo: body.envelope?.helo ?? "localhost",
      mailDomain,
    });
  } catch (error) {
    if (error instanceof UnreadableMail) return error;
    throw error;
  } finally {
    await reader.close();
  }
}

async function requestRun(deps: Deps, { caller, kap, trigger, body, signal }: DryRunRequest): Promise<Answer> {
  if (body.body !== undefined && body.body_base64 !== undefined)
    throw invalid({ path: "body_base64", message: "give the body once, either as body or as body_base64" });
  const { member } = caller;
  const bytes = body.body_base64 === undefined ? Buffer.from(body.body ?? "") : decoded("body_base64", body.body_base64);
  const result = await invokeDry(deps, {
    kap,
    triggerId: trigger.id,
    method: body.method ?? "GET",
    path: body.path ?? "/",
    headers: Object.entries(body.headers ?? {}).flatMap(([name, values]) =>
      [values].flat().flatMap((value) => [name.toLowerCase(), value]),
    ),
    body: bytes.length === 0 ? null : bytes,
    caller: `member:${member?.email ?? caller.credentialName}`,
    user: member ? { id: member.id, email: member.email, name: member.name, role: member.role } : null,
    signal,
  });
  return { ...shown("request", result), http: shownAnswer(result) };
}

function decoded(path: string, text: string): Buffer {
  if (!base64.test(text)) throw invalid({ path, message: "must be base64 (RFC 4648 §4)" });
  return Buffer.from(text, "base64");
}

function notRun(detail: string): DryResult {
  return {
    answer: null,
    report: { end: { outcome: "refused", detail, duration_ms: 0, cpu_ms: 0 }, effects: [], effects_dropped: 0, lines: [] },
  };
}

function shown(kind: TriggerKind, { report: { end, effects, effects_dropped, lines } }: DryResult): Answer {
  const outcome = outcomeOf(end.outcome);
  const status = outcome === "ok" ? "succeeded" : "failed";
  return {
    outcome,
    detail: end.detail,
    what_to_do: whatToDo({ status, outcome, trigger_kind: kind, attempts: 1, detail: end.detail, duration_ms: end.duration_ms }),
    http: null,
    effects,
    effects_dropped,
    lines,
    duration_ms: end.duration_ms,
    cpu_ms: end.cpu_ms,
  };
}

/** What a caller of the kap would have been answered: the program's own response, or, where it gave none, the platform's words for its failure. */
function shownAnswer({ answer, report: { end } }: DryResult): NonNullable<Answer["http"]> {
  const failed = answer === null ? end.outcome : answer.headers.find(([name]) => name === "x-kapstone-outcome")?.[1];
  if (answer === null || failed !== undefined) {
    const status = answer?.status ?? statusOfLost(end.outcome);
    const refusal = failureRefusal({ outcome: failed ?? end.outcome, status, detail: end.detail ?? "", retryAfter: null }, true);
    const text = JSON.stringify(envelopes.kaps(refusal));
    return { status, headers: [["content-type", "application/json; charset=utf-8"]], body: text, body_base64: null };
  }
  const text = textOf(answer.body);
  return { status: answer.status, headers: answer.headers, body: text, body_base64: text === null ? answer.body.toString("base64") : null };
}

/** Null when the bytes are no text that JSON carries as it is. */
function textOf(bytes: Buffer): string | null {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}
