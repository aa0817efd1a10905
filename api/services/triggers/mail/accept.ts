import type { Readable } from "node:stream";
import { z } from "zod";
import { newId } from "#platform/ids.ts";
import { addJob } from "#platform/jobs.ts";
import { ObjectTooLarge } from "#platform/objects/store.ts";
import type { Knex } from "#platform/postgres.ts";
import type { Deps } from "../../../deps.ts";
import { mailRunJob } from "../../runs/finish.ts";
import { mailBucket } from "../../runs/retention.ts";
import { createRuns } from "../../runs/run.ts";
import { mailBytes } from "../trigger.ts";
import { MailIdentity } from "./identity.ts";
import { findInbox, type Inbox, type MailRefusal } from "./recipient.ts";

/** The envelope of a mail, as ingest heard it. */
export const envelopeSchema = z.object({
  from: z.string().max(1_000),
  recipients: z
    .array(z.object({ address: z.string().max(1_000), kap_id: z.uuid() }))
    .min(1)
    .max(1_000),
  remote_address: z.string().max(100),
  helo: z.string().max(1_000),
  received_at: z.iso.datetime({ offset: true }),
  tls: z.string().max(200).nullable(),
});
export type Envelope = z.infer<typeof envelopeSchema>;

/** What became of a mail for one of its recipients. */
export interface Accepted {
  address: string;
  kap_id: string;
  run_id: string;
  /** The same mail had come within 24 hours: this is the run it has already. */
  duplicate: boolean;
}

const duplicateHours = 24;
const ready = new WeakMap<Deps["objects"], Promise<void>>();

/**
 * Takes a mail: its bytes are stored once, then one transaction writes for each kap the message, its run and the run's job. When this answers
 * `accepted`, all of it is durable; any other end keeps nothing. The same mail to the same kap within 24 hours is the run it has already, so a sender
 * that did not hear the 250 and tries again makes no second one.
 */
export async function acceptMail(deps: Deps, envelope: Envelope, body: Readable): Promise<{ accepted: Accepted[] } | MailRefusal> {
  await bucketReady(deps.objects);
  const key = `${envelope.received_at.slice(0, 10)}/${newId()}`;
  const identity = new MailIdentity();
  body.once("error", (error) => identity.destroy(error));
  body.once("close", () => {
    if (!body.readableEnded) identity.destroy(new Error("the mail broke off before its end"));
  });
  try {
    await deps.objects.put(mailBucket, key, body.pipe(identity), { contentType: "message/rfc822", maxBytes: mailBytes });
  } catch (error) {
    if (error instanceof ObjectTooLarge) return { code: 552, message: `The mail is larger than ${mailBytes} bytes.` };
    throw error;
  }
  const dedupeKey = identity.key(envelope.from);
  const result = await deps.db
    .transaction((trx) => record(deps, trx, { envelope, dedupeKey, objectKey: key, sizeBytes: identity.sizeBytes }))
    .catch(async (error: unknown) => {
      await discard(deps, key);
      throw error;
    });
  if (!("accepted" in result) || result.accepted.every((one) => one.duplicate)) await discard(deps, key);
  return result;
}

interface Mail {
  envelope: Envelope;
  dedupeKey: Buffer;
  objectKey: string;
  sizeBytes: number;
}

async function record(deps: Deps, trx: Knex.Transaction, mail: Mail): Promise<{ accepted: Accepted[] } | MailRefusal> {
  const addresses = new Map(mail.envelope.recipients.map(({ address, kap_id }) => [kap_id, address]));
  // One mail at a time per kap: of two that are the same the second sees the first, and the hour's count is exact. In order, so that no two wait for each other.
  const kapIds = [...addresses.keys()].sort();
  for (const kapId of kapIds) await trx.raw("select pg_advisory_xact_lock(hashtextextended(?, 4207011003))", [`mail ${kapId}`]);
  const accepted: Accepted[] = [];
  const fresh: { inbox: Inbox; run_id: string }[] = [];
  for (const kapId of kapIds) {
    const address = addresses.get(kapId) as string;
    const earlier: { run_id: string } | undefined = await trx("mail_messages")
      .where({ kap_id: kapId, dedupe_key: mail.dedupeKey })
      .whereRaw("received_at > now() - make_interval(hours => ?)", [duplicateHours])
      .first("run_id");
    if (earlier) {
      accepted.push({ address, kap_id: kapId, run_id: earlier.run_id, duplicate: true });
      continue;
    }
    const inbox = await findInbox(deps, address, trx);
    if ("code" in inbox) {
      // It was taken at RCPT and is not now. The message has one answer: try again, and each recipient is told apart.
      return inbox.code === 452 ? inbox : { code: 451, message: `${inbox.message} Please try again.` };
    }
    const runId = newId();
    fresh.push({ inbox, run_id: runId });
    accepted.push({ address, kap_id: kapId, run_id: runId, duplicate: false });
  }
  for (const { inbox, run_id } of fresh) await write(deps, trx, mail, inbox, run_id);
  return { accepted };
}

async function write(deps: Deps, trx: Knex.Transaction, mail: Mail, inbox: Inbox, runId: string): Promise<void> {
  const { from, remote_address, helo, received_at, tls, recipients } = mail.envelope;
  const to = recipients.filter((recipient) => recipient.kap_id === inbox.kap_id).map((recipient) => recipient.address);
  await createRuns(trx, [
    {
      id: runId,
      kap_id: inbox.kap_id,
      org_id: inbox.org_id,
      version_id: inbox.version_id,
      trigger_id: inbox.trigger_id,
      trigger_kind: "inbox",
    },
  ]);
  await trx("mail_messages").insert({
    id: newId(),
    kap_id: inbox.kap_id,
    run_id: runId,
    dedupe_key: mail.dedupeKey,
    envelope: JSON.stringify({ from, to, remote_address, helo, received_at, tls }),
    object_key: mail.objectKey,
    size_bytes: mail.sizeBytes,
  });
  await trx("run_payloads").insert({
    run_id: runId,
    object_key: mail.objectKey,
    expires_at: trx.raw("now() + make_interval(days => ?)", [deps.config.payloadDays]),
  });
  await trx.raw(
    `insert into kap_usage (kap_id, day, mail_messages) values (?, (now() at time zone 'utc')::date, 1)
     on conflict (kap_id, day) do update set mail_messages = kap_usage.mail_messages + 1`,
    [inbox.kap_id],
  );
  await addJob(trx, mailRunJob, { run_id: runId, attempt: 1 });
}

/** Bytes that no row names. What cannot be removed now is found by the retention sweep. */
async function discard(deps: Deps, key: string): Promise<void> {
  await deps.objects
    .delete(mailBucket, key)
    .catch((error: unknown) => deps.log.warn({ err: error, key }, "a mail that was not taken could not be removed"));
}

/** The bucket is made once per process; a store that is away now is asked again with the next mail. */
function bucketReady(objects: Deps["objects"]): Promise<void> {
  let made = ready.get(objects);
  if (!made) {
    made = objects.ensureBucket(mailBucket).catch((error: unknown) => {
      ready.delete(objects);
      throw error;
    });
    ready.set(objects, made);
  }
  return made;
}
