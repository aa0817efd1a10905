import type { IncomingMessage } from "node:http";

/** Bodies up to this size are gathered before the program starts, so it reads them without a crossing; larger ones stream. */
const gatheredBytes = 256 * 1024;

export type BodyKind = "none" | "full" | "stream";

/** The request's body is larger than the kap may receive (decided §7.2: 413). */
export class BodyTooLarge extends Error {
  override name = "TypeError";
}

/** The body of one data request, either gathered whole or pulled piece by piece as the program reads. */
export class RequestBody {
  readonly kind: BodyKind;
  readonly #request: IncomingMessage;
  readonly #maxBytes: number;
  readonly declaredBytes: number | null;
  #receivedBytes = 0;

  constructor(request: IncomingMessage, maxBytes: number, gatherAll: boolean) {
    this.#request = request;
    this.#maxBytes = maxBytes;
    const length = request.headers["content-length"];
    this.declaredBytes = length === undefined ? null : Number(length);
    if (length === undefined ? request.headers["transfer-encoding"] === undefined : length === "0") this.kind = "none";
    else this.kind = gatherAll || (this.declaredBytes !== null && this.declaredBytes <= gatheredBytes) ? "full" : "stream";
  }

  get isTooLarge(): boolean {
    return this.declaredBytes !== null && this.declaredBytes > this.#maxBytes;
  }

  #count(bytes: number): void {
    this.#receivedBytes += bytes;
    if (this.#receivedBytes > this.#maxBytes)
      throw new BodyTooLarge(`the request body is larger than the ${this.#maxBytes} bytes a kap may receive`);
  }

  /** Gathers the whole body, then calls back once: with its bytes, or with the error that ended it. */
  gather(callback: (error: Error | null, bytes: ArrayBuffer | undefined) => void): void {
    const pieces: Buffer[] = [];
    const request = this.#request;
    const finish = (error: Error | null): void => {
      request.off("data", onData).off("end", onEnd).off("error", finish).off("close", onClose);
      callback(error, error ? undefined : joined(pieces, this.#receivedBytes));
    };
    const onData = (piece: Buffer): void => {
      try {
        this.#count(piece.length);
        pieces.push(piece);
      } catch (error) {
        request.pause();
        finish(error as Error);
      }
    };
    const onEnd = (): void => finish(null);
    const onClose = (): void => finish(new Error("the caller went away before the request body had arrived"));
    request.on("data", onData).on("end", onEnd).on("error", finish).on("close", onClose);
  }

  /** The next piece of a streamed body, or undefined at its end. Nothing is read from the connection before it is asked for. */
  async pull(): Promise<ArrayBuffer | undefined> {
    const request = this.#request;
    for (;;) {
      const piece = request.read() as Buffer | null;
      if (piece !== null) {
        this.#count(piece.length);
        return joined([piece], piece.length);
      }
      if (request.readableEnded) return undefined;
      if (request.destroyed) throw new Error("the caller went away before the request body had arrived");
      await new Promise<void>((resolve) => {
        const wake = (): void => {
          request.off("readable", wake).off("end", wake).off("close", wake);
          resolve();
        };
        request.on("readable", wake).on("end", wake).on("close", wake);
      });
    }
  }

  /** The program does not want the rest: it is read and thrown away so that the connection can be used again. */
  cancel(): void {
    this.#request.resume();
  }
}

function joined(pieces: Buffer[], bytes: number): ArrayBuffer {
  const whole = new ArrayBuffer(bytes);
  const view = new Uint8Array(whole);
  let at = 0;
  for (const piece of pieces) {
    view.set(piece, at);
    at += piece.length;
  }
  return whole;
}
