/** gzip, deflate and deflate-raw for the guest's CompressionStream and DecompressionStream: one zlib stream per guest stream, on the thread pool. */
import { createDeflate, createDeflateRaw, createGunzip, createGzip, createInflate, createInflateRaw } from "node:zlib";
import type { OpAnswer } from "./op-answer.ts";

/** Streams one run may hold; each costs up to 300 KiB outside the isolate. */
const maxStreams = 32;
/**
 * Most input bytes of one write. Deflate expands at most 1,032 times, so an unpacked part of 16 KiB stays under 17 MiB whatever it was made to be.
 */
const maxPart = { compress: 1_048_576, decompress: 16_384 } as const;

const makers = {
  compress: { gzip: createGzip, deflate: createDeflate, "deflate-raw": createDeflateRaw },
  decompress: { gzip: createGunzip, deflate: createInflate, "deflate-raw": createInflateRaw },
} as const;

interface Coder {
  zlib: ReturnType<typeof createGzip>;
  direction: "compress" | "decompress";
  output: Buffer[];
  hasEnded: boolean;
  received: number;
  error: Error | null;
  /** Rejects the step that is waited for. */
  fail: (error: Error) => void;
}

export interface HostCompression {
  call(runKey: number, method: string, input: unknown, data: Uint8Array<ArrayBuffer>): Promise<OpAnswer>;
  forget(runKey: number): void;
}

export function createHostCompression(): HostCompression {
  const runs = new Map<number, Map<number, Coder>>();

  function open(runKey: number, id: number, format: string, direction: string): void {
    const coders = runs.get(runKey) ?? new Map<number, Coder>();
    if (coders.size >= maxStreams) throw new RangeError(`A run may hold ${maxStreams} compression streams: finish some first.`);
    if (direction !== "compress" && direction !== "decompress") throw new TypeError("Unknown direction.");
    if (!Object.hasOwn(makers[direction], format)) throw new TypeError(`Unsupported compression format: ${format.slice(0, 40)}`);
    const coder: Coder = {
      zlib: makers[direction][format as "gzip"](),
      direction,
      output: [],
      hasEnded: false,
      received: 0,
      error: null,
      fail: () => {},
    };
    coder.zlib.on("data", (part: Buffer) => coder.output.push(part));
    coder.zlib.on("end", () => {
      coder.hasEnded = true;
    });
    coder.zlib.on("error", (error: Error) => {
      coder.error = error;
      coder.fail(error);
    });
    coders.set(id, coder);
    runs.set(runKey, coders);
  }

  function close(runKey: number, id: number): void {
    const coders = runs.get(runKey);
    coders?.get(id)?.zlib.destroy();
    coders?.delete(id);
    if (coders?.size === 0) runs.delete(runKey);
  }

  return {
    async call(runKey, method, input, data) {
      const { id, format, direction } = input as { id: number; format: string; direction: string };
      if (method === "new") {
        open(runKey, id, format, direction);
        return {};
      }
      if (method === "cancel") {
        close(runKey, id);
        return {};
      }
      const coder = runs.get(runKey)?.get(id);
      if (coder === undefined) throw new TypeError("The compression stream is closed.");
      try {
        if (method === "write") await write(coder, data);
        else if (method === "finish") await finish(coder);
        else throw new TypeError(`There is no compression operation ${method}.`);
      } catch (error) {
        close(runKey, id);
        throw error instanceof TypeError ? error : new TypeError("The compressed data are not valid.");
      }
      const bytes = taken(coder);
      if (method === "finish") close(runKey, id);
      return { bytes };
    },
    forget(runKey) {
      for (const id of [...(runs.get(runKey)?.keys() ?? [])]) close(runKey, id);
    },
  };
}

async function write(coder: Coder, data: Uint8Array): Promise<void> {
  if (data.length > maxPart[coder.direction]) throw new TypeError("The part is too large.");
  if (coder.hasEnded) throw afterEnd();
  coder.received += data.length;
  await settled(coder, (resolve) => coder.zlib.write(data, () => resolve()));
  if (coder.direction === "decompress" && coder.zlib.bytesWritten < coder.received) throw afterEnd();
}

async function finish(coder: Coder): Promise<void> {
  if (coder.hasEnded) return;
  await settled(coder, (resolve) => {
    coder.zlib.once("end", resolve);
    coder.zlib.end();
  });
}

const afterEnd = () => new TypeError("There are bytes after the end of the compressed data.");

/** Waits for one step of the stream, or for its failure or its end by another hand. */
async function settled(coder: Coder, step: (resolve: () => void) => void): Promise<void> {
  if (coder.error !== null) throw coder.error;
  const closed = () => coder.fail(coder.error ?? new TypeError("The compression stream is closed."));
  try {
    await new Promise<void>((resolve, reject) => {
      coder.fail = reject;
      coder.zlib.once("close", closed);
      step(resolve);
    });
  } finally {
    coder.zlib.off("close", closed);
  }
}

/** What has come out since the last call, in an ArrayBuffer of its own. */
function taken(coder: Coder): ArrayBuffer {
  const output = new Uint8Array(Buffer.concat(coder.output)).buffer;
  coder.output = [];
  return output;
}
