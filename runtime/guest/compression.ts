/** CompressionStream and DecompressionStream (Compression standard) over the host's zlib. */
import { currentRunKey } from "./current-run.ts";
import { callHost } from "./host.ts";
import { U8 } from "./primordials.ts";
import { type ReadableStream, TransformStream, type WritableStream } from "./streams.ts";
import { copyOf, exactBuffer } from "./utf8.ts";

type Bytes = Uint8Array<ArrayBuffer>;
type Format = "gzip" | "deflate" | "deflate-raw";

/** Input bytes of one crossing, the most the host takes: unpacking may blow a part up a thousand times. */
const partSize = { compress: 1_048_576, decompress: 16_384 } as const;
let lastId = 0;

function transform(given: Format, direction: keyof typeof partSize): TransformStream<unknown, Bytes> {
  const format = `${given}`;
  if (format !== "gzip" && format !== "deflate" && format !== "deflate-raw")
    throw new TypeError(`Unsupported compression format: ${format}`);
  const runKey = currentRunKey();
  const id = ++lastId;
  const ask = async (method: string, bytes?: ArrayBuffer) =>
    new U8((await callHost(runKey, `compress.${method}`, { id, format, direction }, bytes)).bytes ?? new ArrayBuffer(0));
  let isOpen = false;
  const open = async () => {
    if (!isOpen) await ask("new");
    isOpen = true;
  };
  return new TransformStream<unknown, Bytes>({
    async transform(chunk, controller) {
      const bytes = copyOf(chunk);
      if (bytes === null) throw new TypeError("The stream takes ArrayBuffers and views of them.");
      await open();
      for (let at = 0; at < bytes.length; at += partSize[direction]) {
        const part = await ask("write", exactBuffer(bytes.subarray(at, at + partSize[direction])));
        if (part.length > 0) controller.enqueue(part);
      }
    },
    async flush(controller) {
      await open();
      const part = await ask("finish");
      if (part.length > 0) controller.enqueue(part);
    },
    async cancel() {
      if (isOpen) await ask("cancel");
    },
  });
}

export class CompressionStream {
  #transform: TransformStream<unknown, Bytes>;
  constructor(format: Format) {
    this.#transform = transform(format, "compress");
  }
  get readable(): ReadableStream<Bytes> {
    return this.#transform.readable;
  }
  get writable(): WritableStream<unknown> {
    return this.#transform.writable;
  }
  get [Symbol.toStringTag](): string {
    return "CompressionStream";
  }
}

export class DecompressionStream {
  #transform: TransformStream<unknown, Bytes>;
  constructor(format: Format) {
    this.#transform = transform(format, "decompress");
  }
  get readable(): ReadableStream<Bytes> {
    return this.#transform.readable;
  }
  get writable(): WritableStream<unknown> {
    return this.#transform.writable;
  }
  get [Symbol.toStringTag](): string {
    return "DecompressionStream";
  }
}
