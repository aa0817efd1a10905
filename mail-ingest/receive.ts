import type { SMTPServerDataStream } from "smtp-server";
import type { Envelope, MailApi } from "./api-client.ts";
import type { MailLimits } from "./limits.ts";
import { MailRefusal } from "./mail-refusal.ts";
import { MessageScanner, tooLarge } from "./message-scanner.ts";

/**
 * One message from DATA to its answer. The stream goes to the API through the scanner, chunk by chunk, no faster than the API reads. What is refused is not
 * handed over to its end, so the API keeps nothing; the rest of it is read and dropped, because a sender listens only after its last byte. `hangUp` is for one that has sent
 * twice the size a message may have. Throws the `MailRefusal` to answer with.
 */
export async function receiveMessage(
  api: MailApi,
  envelope: Envelope,
  stream: SMTPServerDataStream,
  limits: MailLimits,
  hangUp: (refusal: MailRefusal) => void,
): Promise<void> {
  const gone = new AbortController();
  stream.once("close", () => {
    if (!stream.readableEnded) gone.abort(new MailRefusal(451, "The sender went away before the end of its message."));
  });
  stream.on("error", (error) => gone.abort(error));
  try {
    await api.message(envelope, scanned(stream, limits), gone.signal);
  } catch (refusal) {
    await dropRest(stream, limits, hangUp);
    throw gone.signal.aborted ? gone.signal.reason : refusal;
  }
  // An answer before the last byte is about something else than this message.
  if (!stream.readableEnded) {
    await dropRest(stream, limits, hangUp);
    throw new MailRefusal(451, "The message was not taken whole; please try again later.");
  }
}

async function* scanned(stream: SMTPServerDataStream, limits: MailLimits): AsyncGenerator<Buffer> {
  const scanner = new MessageScanner(limits);
  for await (const chunk of chunksOf(stream)) {
    scanner.push(chunk);
    yield chunk;
  }
  scanner.end();
}

async function dropRest(stream: SMTPServerDataStream, limits: MailLimits, hangUp: (refusal: MailRefusal) => void): Promise<void> {
  if (stream.destroyed || stream.readableEnded) return;
  for await (const _ of chunksOf(stream)) {
    if (stream.byteLength <= 2 * limits.messageBytes) continue;
    hangUp(tooLarge(limits.messageBytes));
    return;
  }
}

/** Leaving the loop leaves the stream as it is: somebody reads on. */
function chunksOf(stream: SMTPServerDataStream): AsyncIterable<Buffer> {
  return stream.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
}
