import type { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import type { Deps } from "../../deps.ts";

/** The platform's bucket of raw mails that are too large for a row. */
export const mailBucket = "mail";

/** A mail of at most this many bytes is a row of the database, written in the transaction that accepts it: no file, no request to an object store. */
export const rowMailBytes = 64 * 1024;

/** The raw bytes of a mail that is no row; null when they are no longer kept. */
export async function readLargeMail(deps: Pick<Deps, "objects">, key: string): Promise<Buffer | null> {
  const stored = await deps.objects.get(mailBucket, key);
  return stored && buffer(stored.body);
}

/** Removes the raw bytes of a mail, wherever they are. */
export async function dropMailBytes(deps: Pick<Deps, "db" | "objects">, key: string): Promise<void> {
  const rows = await deps.db("mail_bytes").where({ object_key: key }).delete();
  if (rows === 0) await deps.objects.delete(mailBucket, key);
}

/**
 * Reads a stream up to what a row holds. `whole` is the mail if that was all of it; otherwise `head` comes before what is still in the stream, which is
 * as it was.
 */
export async function readSmall(body: Readable): Promise<{ whole: Buffer } | { head: Buffer }> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    bytes += chunk.length;
    if (bytes > rowMailBytes) return { head: Buffer.concat(chunks) };
  }
  return { whole: Buffer.concat(chunks) };
}
