import { buffer } from "node:stream/consumers";
import type { Deps } from "../../../deps.ts";
import { invoke } from "../../../gateway/invoke.ts";
import { beginAttempt, endAbandoned } from "../../runs/finish.ts";
import { mailBucket } from "../../runs/retention.ts";
import type { RunRow } from "../../runs/run.ts";
import { effectiveSecrets } from "../../secrets/secrets.ts";
import { endAttemptSurely, outcomeOfFailure } from "../carry-out.ts";
import { type Runnable, refusalToRun } from "../runnable.ts";
import { type MailReader, openMailReader, UnreadableMail } from "./mail-reader.ts";
import { payloadOf } from "./payload.ts";
import type { ReadMail } from "./read-mail.ts";

interface MailRun extends RunRow, Runnable {
  auto_replies: boolean | null;
  object_key: string | null;
  envelope: { from: string; remote_address: string; helo: string } | null;
}

/** How an attempt ended; `final` when another one would end the same way. */
interface End {
  outcome: string;
  detail: string | null;
  message?: string;
  final?: boolean;
}

const readers = new WeakMap<Deps, MailReader>();

function readerOf(deps: Deps): MailReader {
  const reader = readers.get(deps) ?? openMailReader(deps.config.dnsServers);
  readers.set(deps, reader);
  return reader;
}

/** Ends the process's mail reader: for a graceful stop. */
export async function closeMailReader(deps: Deps): Promise<void> {
  await readers.get(deps)?.close();
  readers.delete(deps);
}

/**
 * Carries out an attempt of a mail's run: reads the stored bytes, keeps what people may look at, and gives the mail to the program. Whoever takes the
 * attempt from the queue is the only one; a failed attempt has its next one from the queue too.
 */
export async function carryOutMail(deps: Deps, runId: string, attempt: number, isRedelivered: boolean): Promise<void> {
  const run: MailRun | undefined = await deps
    .db("runs")
    .join("kaps", "kaps.id", "runs.kap_id")
    .leftJoin("kap_triggers", "kap_triggers.id", "runs.trigger_id")
    .leftJoin("mail_messages", "mail_messages.run_id", "runs.id")
    .leftJoin("run_payloads", "run_payloads.run_id", "runs.id")
    .where("runs.id", runId)
    .first(
      "runs.*",
      "kaps.slug",
      "kaps.state",
      "kaps.disabled",
      "kap_triggers.deleted_at as trigger_deleted_at",
      "kap_triggers.auto_replies",
      "mail_messages.envelope",
      "run_payloads.object_key",
    );
  if (!run) return;
  if ((await beginAttempt(deps.db, run.id, attempt)) === null) return isRedelivered ? endAbandoned(deps.db, run.id, attempt) : undefined;
  const end = await carryOut(deps, run).catch((error: unknown) => outcomeOfFailure(deps, error));
  await endAttemptSurely(deps, { id: run.id, attempt, ...end });
}

async function carryOut(deps: Deps, run: MailRun): Promise<End> {
  const refusal = refusalToRun(run);
  if (refusal) return { ...refusal, final: true };
  if (run.object_key === null || run.envelope === null || run.trigger_id === null) {
    return { outcome: "refused", detail: "the mail's bytes are no longer kept", final: true };
  }
  const stored = await deps.objects.get(mailBucket, run.object_key);
  if (!stored) return { outcome: "refused", detail: "the mail's bytes are no longer kept", final: true };
  let mail: ReadMail;
  try {
    mail = await readerOf(deps).read(new Uint8Array(await buffer(stored.body)), {
      envelopeFrom: run.envelope.from,
      remoteAddress: run.envelope.remote_address,
      helo: run.envelope.helo,
      mailDomain: deps.addresses.mailDomain,
    });
  } catch (error) {
    if (!(error instanceof UnreadableMail)) throw error;
    return { outcome: "refused", detail: error.message, final: !error.again };
  }
  await keepPayload(deps, run, mail);
  if (mail.isAutomatic && !run.auto_replies) {
    return {
      outcome: "refused",
      detail: "the mail is an automatic reply or a bounce",
      message: "The mail is an automatic reply or a bounce: it is recorded, and the kap was not run.",
      final: true,
    };
  }
  return invoke(deps, {
    kapId: run.kap_id,
    triggerId: run.trigger_id,
    runId: run.id,
    kind: "inbox",
    mail: () => Buffer.from(mail.frame.buffer, mail.frame.byteOffset, mail.frame.byteLength),
  });
}

/** Keeps what the run was given; a payload whose time is over meanwhile stays gone. */
async function keepPayload(deps: Deps, run: MailRun, mail: ReadMail): Promise<void> {
  const secrets = await effectiveSecrets(deps.db, deps.keyring, run.kap_id);
  await deps
    .db("run_payloads")
    .where({ run_id: run.id, object_key: run.object_key })
    .update({ payload: JSON.stringify(payloadOf(mail.head, secrets)) });
}
