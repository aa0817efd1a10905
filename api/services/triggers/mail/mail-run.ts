import type { Deps } from "../../../deps.ts";
import { invoke } from "../../../gateway/invoke.ts";
import { beginAttemptSql, endAbandoned } from "../../runs/finish.ts";
import { readLargeMail } from "../../runs/mail-bytes.ts";
import { effectiveSecrets } from "../../secrets/secrets.ts";
import { endAttemptSurely, holdSlotFor, outcomeOfFailure } from "../carry-out.ts";
import { type Runnable, refusalToRun } from "../runnable.ts";
import { type MailReader, openMailReader, UnreadableMail } from "./mail-reader.ts";
import { payloadOf } from "./payload.ts";
import type { ReadMail } from "./read-mail.ts";

interface MailRun extends Runnable {
  id: string;
  kap_id: string;
  trigger_id: string | null;
  auto_replies: boolean | null;
  object_key: string | null;
  /** Of a small mail. */
  bytes: Buffer | null;
  envelope: { from: string; remote_address: string; helo: string } | null;
  has_secrets: boolean;
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

/** Takes the attempt and reads all it needs. */
const begin = `
with begun as (${beginAttemptSql})
select r.id, r.kap_id, r.trigger_id, k.slug, k.state, k.disabled, t.deleted_at as trigger_deleted_at, t.auto_replies, p.envelope, p.object_key, b.bytes,
       exists (select from kap_secret_names n where n.kap_id = k.id) as has_secrets
from begun r join kaps k on k.id = r.kap_id
left join kap_triggers t on t.id = r.trigger_id
left join run_payloads p on p.run_id = r.id
left join mail_bytes b on b.object_key = p.object_key`;

/**
 * Carries out an attempt of a mail's run: reads the stored bytes, keeps what people may look at, and gives the mail to the program. Whoever takes the
 * attempt from the queue is the only one; a failed attempt has its next one from the queue too.
 */
export async function carryOutMail(deps: Deps, runId: string, attempt: number, isRedelivered: boolean): Promise<void> {
  const { rows } = await deps.postgres.hot.query<MailRun>({ name: "mail-run-begin", text: begin, values: [runId, attempt] });
  const run = rows[0];
  if (!run) return isRedelivered ? endAbandoned(deps.postgres, runId, attempt) : undefined;
  const carriedOut = async (): Promise<void> => {
    const end = await carryOut(deps, run, attempt).catch((error: unknown) => outcomeOfFailure(deps, error));
    await endAttemptSurely(deps, { id: run.id, attempt, ...end });
  };
  return holdSlotFor(deps, carriedOut());
}

async function carryOut(deps: Deps, run: MailRun, attempt: number): Promise<End> {
  const refusal = refusalToRun(run);
  if (refusal) return { ...refusal, final: true };
  if (run.object_key === null || run.envelope === null || run.trigger_id === null) {
    return { outcome: "refused", detail: "the mail's bytes are no longer kept", final: true };
  }
  const bytes = run.bytes ?? (await readLargeMail(deps, run.object_key));
  if (!bytes) return { outcome: "refused", detail: "the mail's bytes are no longer kept", final: true };
  let mail: ReadMail;
  try {
    mail = await readerOf(deps).read(new Uint8Array(bytes), {
      envelopeFrom: run.envelope.from,
      remoteAddress: run.envelope.remote_address,
      helo: run.envelope.helo,
      mailDomain: deps.addresses.mailDomain,
    });
  } catch (error) {
    if (!(error instanceof UnreadableMail)) throw error;
    return { outcome: "refused", detail: error.message, final: !error.again };
  }
  const secrets = run.has_secrets ? await effectiveSecrets(deps.db, deps.keyring, run.kap_id) : {};
  const payload = JSON.stringify(payloadOf(mail.head, secrets));
  if (mail.isAutomatic && !run.auto_replies) {
    await keepPayload(deps, run.id, payload);
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
    attempt,
    kind: "inbox",
    payload,
    mail: () => Buffer.from(mail.frame.buffer, mail.frame.byteOffset, mail.frame.byteLength),
  });
}

/** Keeps what the run was given; a payload whose time is over meanwhile stays gone. */
async function keepPayload(deps: Deps, runId: string, payload: string): Promise<void> {
  await deps.db("run_payloads").where({ run_id: runId }).whereNotNull("object_key").update({ payload });
}
