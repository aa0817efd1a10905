import { createHash, type Hash } from "node:crypto";
import { Readable, Transform, type TransformCallback } from "node:stream";
import { ObjectTooLarge } from "./store.ts";

/** Passes bytes on, counts and digests them, and fails with `ObjectTooLarge` at the first byte over the bound. */
export class MeteredStream extends Transform {
  sizeBytes = 0;
  readonly #maxBytes: number;
  readonly #hash: Hash = createHash("sha256");

  constructor(maxBytes = Number.POSITIVE_INFINITY) {
    super();
    this.#maxBytes = maxBytes;
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.sizeBytes += chunk.length;
    if (this.sizeBytes > this.#maxBytes) {
      done(new ObjectTooLarge(this.#maxBytes));
    } else {
      this.#hash.update(chunk);
      done(null, chunk);
    }
  }

  /** SHA-256 of all bytes, in hex. Once, after the end. */
  digest(): string {
    return this.#hash.digest("hex");
  }
}

/** The body as a stream. One that fails before it is piped must not end the process: the pipeline finds its error later. */
export function sourceOf(body: Readable | Buffer): Readable {
  const source = Buffer.isBuffer(body) ? Readable.from([body]) : body;
  return source.on("error", () => undefined);
}
