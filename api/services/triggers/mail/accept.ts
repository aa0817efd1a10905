import { type Readable, Transform } from "node:stream";
import { newId } from "#platform/ids.ts";
import { ObjectTooLarge } from "#platform/objects/store.ts";
import type { Deps } from "../../../deps.ts";
import { mailBucket, readSmall } from "../../runs/mail-bytes.ts";
import { mailBytes } from "../trigger.ts";
import type { Accepted, Envelope } from "./envelope.ts";
import { MailIdentity } from "./identity.ts";
import type { MailRefusal } from "./recipient.ts";
import { recordMail } from "./record.ts";

const ready = new WeakMap<Deps["objects"], Promise<void>>();

/**
 * Takes a mail: one transaction writes for each kap the message, its run and the run's job, and with them the bytes of a small mail; those of a large one are
 * stored before, once. When this answers `accepted`, all of it is durable; any other end keeps nothing. The same mail to the same kap within 24 hours is
 * the run it has already, so a sender that did not hear the 250 and tries again makes no second one.
 */
export async function acceptMail(deps: Deps, envelope: Envelope, body: Readable): Promise<{ accepted: Accepted[] } | MailRefusal> {
  const objectKey = `${envelope.received_at.slice(0, 10)}/${newId()}`;
  const identity = new MailIdentity();
  const start = await readSmall(body);
  if ("whole" in start) {
    identity.push(start.whole);
    const mail = { envelope, dedupeKey: identity.key(envelope.from), objectKey, sizeBytes: identity.sizeBytes, bytes: start.whole };
    return recordMail(deps, mail);
  }
  await bucketReady(deps.objects);
  try {
    await deps.objects.put(mailBucket, objectKey, seenBy(identity, start.head, body), {
      contentType: "message/rfc822",
      maxBytes: mailBytes,
    });
  } catch (error) {
    if (error instanceof ObjectTooLarge) return { code: 552, message: `The mail is larger than ${mailBytes} bytes.` };
    throw error;
  }
  const mail = { envelope, dedupeKey: identity.key(envelope.from), objectKey, sizeBytes: identity.sizeBytes, bytes: null };
  const result = await recordMail(deps, mail).catch(async (error: unknown) => {
    await discard(deps, objectKey);
    throw error;
  });
  if (!("accepted" in result) || result.accepted.every((one) => one.duplicate)) await discard(deps, objectKey);
  return result;
}

/** The whole mail again, seen as it goes by. A sender that goes away before its end is an error; the connection stays for the answer when nobody reads on. */
function seenBy(identity: MailIdentity, head: Buffer, rest: Readable): Readable {
  const seen = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      identity.push(chunk);
      done(null, chunk);
    },
  });
  rest.once("error", (error) => seen.destroy(error));
  rest.once("close", () => {
    if (!rest.readableEnded) seen.destroy(new Error("the mail broke off before its end"));
  });
  seen.write(head);
  return rest.pipe(seen);
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
