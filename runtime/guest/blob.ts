// biome-ignore-all lint/complexity/noArguments: the standards tell a missing argument from an undefined one
/** Blob and File (File API). Immutable bytes; slices share them. */
import { viewByteLength } from "./primordials.ts";
import { ReadableStream } from "./streams.ts";
import { concatBytes, copyOf, decodeUtf8, encodeUtf8 } from "./utf8.ts";

type Bytes = Uint8Array<ArrayBuffer>;
export type BlobPart = string | Blob | ArrayBuffer | ArrayBufferView;
export interface BlobPropertyBag {
  type?: string;
  endings?: "transparent" | "native";
}

const normalType = (type: unknown): string => {
  const text = `${type as string}`;
  return /^[\x20-\x7e]*$/.test(text) ? text.toLowerCase() : "";
};

/** The bytes of a Blob, for the kit only; they must not be changed. */
export let bytesOfBlob: (blob: Blob) => Bytes;

export class Blob {
  #bytes: Bytes;
  #type: string;

  constructor(parts?: Iterable<BlobPart>, options: BlobPropertyBag = {}) {
    if (parts !== undefined && (typeof parts !== "object" || parts === null || typeof parts[Symbol.iterator] !== "function")) {
      throw new TypeError("Blob parts must be a sequence.");
    }
    if ((typeof options !== "object" && typeof options !== "function") || (options as unknown) === null) {
      if (options !== undefined && options !== null) throw new TypeError("Blob options must be an object.");
    }
    const endings = options?.endings === undefined ? "transparent" : `${options.endings}`;
    if (endings !== "transparent" && endings !== "native") throw new TypeError(`Unknown endings: ${endings}`);
    const chunks: Bytes[] = [];
    let size = 0;
    for (const part of parts ?? []) {
      const chunk = part instanceof Blob ? part.#bytes : (copyOf(part) ?? encodeUtf8(nativeEndings(`${part as string}`, endings)));
      chunks[chunks.length] = chunk;
      size += viewByteLength(chunk);
    }
    this.#bytes = concatBytes(chunks, size);
    this.#type = options?.type === undefined ? "" : normalType(options.type);
  }

  get size(): number {
    return viewByteLength(this.#bytes);
  }

  get type(): string {
    return this.#type;
  }

  slice(start = 0, end = this.size, type = ""): Blob {
    const slice = new Blob();
    slice.#bytes = this.#bytes.subarray(Math.trunc(start) || 0, Math.max(0, clampEnd(end, this.size)));
    slice.#type = normalType(type);
    return slice;
  }

  async text(): Promise<string> {
    const text = decodeUtf8(this.#bytes);
    return text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
  }

  async arrayBuffer(): Promise<ArrayBuffer> {
    return this.#bytes.slice().buffer;
  }

  async bytes(): Promise<Bytes> {
    return this.#bytes.slice();
  }

  stream(): ReadableStream<Bytes> {
    const bytes = this.#bytes;
    let at = 0;
    return new ReadableStream(
      {
        type: "bytes",
        pull(controller) {
          if (at >= bytes.length) {
            controller.close();
            controller.byobRequest?.respond(0);
            return;
          }
          controller.enqueue(bytes.slice(at, at + 65_536));
          at += 65_536;
        },
      },
      { highWaterMark: 0 },
    ) as ReadableStream<Bytes>;
  }

  get [Symbol.toStringTag](): string {
    return "Blob";
  }

  static {
    bytesOfBlob = (blob) => blob.#bytes;
  }
}

const clampEnd = (end: number, size: number): number => {
  const whole = Math.trunc(end) || 0;
  return whole < 0 ? size + whole : whole;
};

const nativeEndings = (text: string, endings: string) => (endings === "native" ? text.replace(/\r\n?|\n/g, "\n") : text);

export class File extends Blob {
  #name: string;
  #lastModified: number;

  constructor(parts: Iterable<BlobPart>, name: string, options: BlobPropertyBag & { lastModified?: number } = {}) {
    if (arguments.length < 2) throw new TypeError("File needs its parts and a name.");
    super(parts, options);
    this.#name = `${name}`.toWellFormed();
    this.#lastModified = options?.lastModified === undefined ? Date.now() : Math.trunc(Number(options.lastModified)) || 0;
  }

  get name(): string {
    return this.#name;
  }

  get lastModified(): number {
    return this.#lastModified;
  }

  get webkitRelativePath(): string {
    return "";
  }

  override get [Symbol.toStringTag](): string {
    return "File";
  }
}
