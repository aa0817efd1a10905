import type { IncomingMessage, ServerResponse } from "node:http";
import { finished } from "node:stream";
import { type Refusal, refuse } from "./refusal.ts";

function tooLarge(limitBytes: number): Refusal {
  return refuse("PAYLOAD_TOO_LARGE", `the body is over the limit of ${limitBytes} bytes: send less`, { headers: { connection: "close" } });
}

/** Refuses a body that says it is over the limit, before any of it is read. */
export function checkDeclaredLength(request: IncomingMessage, limitBytes: number): void {
  if (Number(request.headers["content-length"] ?? 0) > limitBytes) throw tooLarge(limitBytes);
}

/** Whether a request carries a body at all. */
export function hasBody(request: IncomingMessage): boolean {
  return request.headers["transfer-encoding"] !== undefined || Number(request.headers["content-length"] ?? 0) > 0;
}

/** Reads a whole body of at most `limitBytes`. */
export async function readBody(request: IncomingMessage, limitBytes: number): Promise<Buffer> {
  checkDeclaredLength(request, limitBytes);
  const chunks: Buffer[] = [];
  let size = 0;
  // Not destroyed when it is too large: its refusal reads the rest away.
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > limitBytes) throw tooLarge(limitBytes);
    chunks.push(chunk);
  }
  return chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
}

/** How long the rest of a refused body is read away: in rounds, so that a time in which this process stood still and read nothing counts as one of them. */
const lingerRounds = 20;
const lingerRoundMs = 100;

/**
 * Answers a request whose body has not been read to its end, and closes the connection. What still comes is read away for up to two seconds first: closed at once, the
 * connection would be reset by bytes under way, and a client that is still sending would see that in place of its answer.
 */
export function endUnread(request: IncomingMessage, response: ServerResponse, text: string): void {
  response.setHeader("connection", "close");
  response.write(text); // whole, by its content-length: the client need not wait
  let rounds = 0;
  const end = (): void => {
    clearInterval(timer);
    response.end();
  };
  const timer = setInterval(() => {
    if (++rounds === lingerRounds) end();
  }, lingerRoundMs);
  finished(request, { writable: false }, end);
  request.resume();
}

/** The media type of a request, without parameters, lowercase; empty when it has none. */
export function mediaType(request: IncomingMessage): string {
  return (request.headers["content-type"] ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
}

/** Parses JSON text; refuses with 400 naming what is wrong. NUL characters are refused here: PostgreSQL has no place for them. */
export function parseJson(bytes: Buffer): unknown {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes);
  } catch {
    throw refuse("BAD_REQUEST", "the body is not valid UTF-8: send JSON encoded as UTF-8");
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw refuse("BAD_REQUEST", `the body is not valid JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  return value;
}
