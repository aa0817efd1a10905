import type { IncomingMessage, ServerResponse } from "node:http";
import type { Outcome } from "../seam/records.ts";

/** Fields the connection owns; a program that sets them would only confuse the next hop. */
const ownFields = new Set([
  "connection",
  "keep-alive",
  "transfer-encoding",
  "content-length",
  "upgrade",
  "te",
  "trailer",
  "proxy-connection",
]);
const bodyless = (status: number, method: string | undefined): boolean => status === 204 || status === 304 || method === "HEAD";
const fieldName = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const badValue = /[^\t\x20-\x7e\x80-\xff]/;
const maxHeadBytes = 64 * 1024;

/** The program asked for an answer that HTTP cannot carry. The message tells its author why. */
export class BadAnswer extends Error {
  override name = "TypeError";
}

/** The answer is larger than the kap may send (decided §7.2). */
export class AnswerTooLarge extends Error {
  override name = "ResponseTooLarge";
}

/** Heads that were sent before, by their JSON: a program has few different ones, and the usual ones need no second look. */
const knownHeads = new Map<string, readonly string[]>();
const maxKnownHeads = 64;
const longestKnownHead = 512;

/** A program's header fields as they may go out: flat names and values, without what the connection owns. @throws BadAnswer */
function sendableHead(headersJson: string): readonly string[] {
  const known = knownHeads.get(headersJson);
  if (known) return known;
  const head = checkedHead(JSON.parse(headersJson) as string[]);
  if (headersJson.length <= longestKnownHead) {
    if (knownHeads.size >= maxKnownHeads) knownHeads.clear();
    knownHeads.set(headersJson, head);
  }
  return head;
}

function checkedHead(fields: string[]): string[] {
  const head: string[] = [];
  let headBytes = 0;
  for (let at = 0; at + 1 < fields.length; at += 2) {
    const name = String(fields[at]);
    const value = String(fields[at + 1]);
    const lower = name.toLowerCase();
    if (ownFields.has(lower) || lower.startsWith("x-kapstone-")) continue;
    if (!fieldName.test(name) || badValue.test(value))
      throw new BadAnswer(`the response header ${JSON.stringify(name.slice(0, 80))} cannot be sent`);
    headBytes += name.length + value.length + 4;
    head.push(name, value);
  }
  if (headBytes > maxHeadBytes) throw new BadAnswer(`the response headers are larger than ${maxHeadBytes} bytes`);
  return head;
}

/** The HTTP answer of one request run: head once, then bytes up to the limit, then the end. */
export class Answer {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #maxBytes: number;
  #sentBytes = 0;
  status = 0;
  /** Everything the program wanted to send has been handed to the connection. */
  isComplete = false;

  constructor(request: IncomingMessage, response: ServerResponse, maxBytes: number) {
    this.#request = request;
    this.#response = response;
    this.#maxBytes = maxBytes;
  }

  get hasHead(): boolean {
    return this.status !== 0;
  }

  /** The whole answer has been handed to the kernel: who hangs up after that has it. */
  get isSent(): boolean {
    return this.#response.writableFinished;
  }

  /** All bytes have left this process for the kernel, or the caller is gone: nothing is kept for this answer any more. */
  get isFlushed(): boolean {
    return (
      this.#response.destroyed ||
      (this.isComplete && this.#response.writableLength === 0 && (this.#response.socket?.writableLength ?? 0) === 0)
    );
  }

  /** Sends status and headers, and the whole body unless `more` follows. @throws BadAnswer, AnswerTooLarge before anything is sent */
  respond(status: number, headersJson: string, body: string | ArrayBuffer | undefined, more: boolean): void {
    if (this.hasHead) return;
    if (!Number.isInteger(status) || status < 200 || status > 599) throw new BadAnswer(`a Response cannot have the status ${status}`);
    const head = [...sendableHead(headersJson)];
    const silent = bodyless(status, this.#request.method);
    if (more && !silent) {
      this.status = status;
      this.#response.writeHead(status, head);
      this.#response.flushHeaders();
      return;
    }
    const bytes = body === undefined || more ? 0 : typeof body === "string" ? Buffer.byteLength(body) : body.byteLength;
    if (bytes > this.#maxBytes) throw new AnswerTooLarge(`the response has ${bytes} bytes; a kap may send ${this.#maxBytes}`);
    this.status = status;
    this.#sentBytes = bytes;
    if (status !== 204 && status !== 304 && !more) head.push("content-length", String(bytes));
    this.#response.writeHead(status, head);
    this.isComplete = true;
    if (silent || bytes === 0) this.#response.end();
    else if (typeof body === "string") this.#response.end(body);
    else this.#response.end(new Uint8Array(body as ArrayBuffer));
  }

  /** Sends a piece of a streamed body. False: wait for `onDrain`. @throws AnswerTooLarge past the limit */
  chunk(data: string | ArrayBuffer): boolean {
    if (this.isComplete || this.#response.destroyed) return false;
    const bytes = typeof data === "string" ? Buffer.from(data) : new Uint8Array(data);
    this.#sentBytes += bytes.byteLength;
    if (this.#sentBytes > this.#maxBytes) throw new AnswerTooLarge(`the response has more than the ${this.#maxBytes} bytes a kap may send`);
    return this.#response.write(bytes);
  }

  end(): void {
    if (this.isComplete) return;
    this.isComplete = true;
    this.#response.end();
  }

  /** Calls back when the connection takes more, or is gone. */
  onDrain(callback: (isGone: boolean) => void): void {
    if (this.#response.destroyed || !this.#response.writableNeedDrain) {
      callback(this.#response.destroyed);
      return;
    }
    const again = (): void => {
      this.#response.off("drain", again).off("close", again);
      callback(this.#response.destroyed);
    };
    this.#response.on("drain", again).on("close", again);
  }

  /** The run failed: the gateway learns the outcome, or, when bytes have already gone out, the caller sees a broken connection. */
  fail(status: number, outcome: Outcome | "unassigned", detail: string): void {
    if (this.isComplete) return;
    if (this.hasHead) return void this.#response.destroy();
    this.status = status;
    this.isComplete = true;
    refuse(this.#response, status, outcome, detail);
  }
}

/** Answers for the runtime itself: what happened in a header, why in a JSON body that the gateway replaces by its own words. */
export function refuse(response: ServerResponse, status: number, outcome: Outcome | "unassigned", detail: string): void {
  const body = JSON.stringify({ detail });
  const head = ["content-type", "application/json", "content-length", String(Buffer.byteLength(body)), "x-kapstone-outcome", outcome];
  if (status === 503) head.push("retry-after", "1");
  response.writeHead(status, head);
  response.end(body);
}
