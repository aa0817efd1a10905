import { Readable } from "node:stream";
import { type HostAnswer, HostRefusal, type RunAccount } from "./host-call.ts";

/** A body the program pulls piece by piece. `pull` answers null at the end. */
export interface PulledBody {
  pull(): Promise<Uint8Array | null>;
  cancel(): void;
}

/** A body the program pushes piece by piece: a readable for the client that sends it, with back-pressure to the program. */
export class PushedBody {
  readonly stream: Readable;
  readonly #maxBytes: number;
  #bytes = 0;
  #wanted = Promise.withResolvers<void>();

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
    this.stream = new Readable({
      highWaterMark: 64 * 1024,
      read: () => this.#wanted.resolve(),
      destroy: (error, done) => {
        this.#wanted.resolve();
        done(error);
      },
    });
    // The consumer reports the failure; without a listener here it would end the process.
    this.stream.on("error", () => undefined);
  }

  /** Settles when more is wanted. @throws HostRefusal past the limit or when nobody reads any more */
  async push(bytes: Uint8Array): Promise<void> {
    this.#bytes += bytes.length;
    if (this.#bytes > this.#maxBytes) {
      const refusal = new HostRefusal("TypeError", `The body is larger than the ${this.#maxBytes} bytes a kap may send.`);
      this.stream.destroy(refusal);
      throw refusal;
    }
    if (this.stream.destroyed) throw new HostRefusal("TypeError", "The other side does not take the body any more.");
    if (this.stream.push(bytes)) return;
    this.#wanted = Promise.withResolvers<void>();
    await this.#wanted.promise;
  }

  finish(): void {
    this.stream.push(null);
  }

  cancel(): void {
    this.stream.destroy(new HostRefusal("AbortError", "The body was cancelled by the program."));
  }
}

/** The open streams of programs by the names the guest gave them. A run's streams end with it. */
export class HostStreams {
  readonly #pulled = new Map<string, PulledBody>();
  readonly #pushed = new Map<string, PushedBody>();

  keepPulled(run: RunAccount, key: string, body: PulledBody): void {
    run.streams.add(key);
    this.#pulled.set(key, body);
  }

  keepPushed(run: RunAccount, key: string, body: PushedBody): void {
    run.streams.add(key);
    this.#pushed.set(key, body);
  }

  /** Answers a `….pull`: bytes, or the text "end". */
  async pull(key: string): Promise<HostAnswer> {
    const body = this.#pulled.get(key);
    if (!body) return { text: "end" };
    const bytes = await body.pull();
    if (bytes !== null) return { bytes };
    this.#pulled.delete(key);
    return { text: "end" };
  }

  async push(key: string, bytes: Uint8Array): Promise<HostAnswer> {
    const body = this.#pushed.get(key);
    if (!body) throw new HostRefusal("TypeError", "The other side does not take the body any more.");
    await body.push(bytes);
    return {};
  }

  finish(key: string): HostAnswer {
    this.#pushed.get(key)?.finish();
    this.#pushed.delete(key);
    return {};
  }

  cancel(key: string): HostAnswer {
    this.#pulled.get(key)?.cancel();
    this.#pulled.delete(key);
    this.#pushed.get(key)?.cancel();
    this.#pushed.delete(key);
    return {};
  }

  forget(run: RunAccount): void {
    for (const key of run.streams) this.cancel(key);
  }
}
