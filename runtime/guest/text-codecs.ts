/** TextEncoder, TextDecoder and their streams (Encoding standard). UTF-8 is decoded here in parts, every other encoding by the host. */
import { syncText } from "./host.ts";
import { jsonStringify } from "./primordials.ts";
import { type ReadableStream, TransformStream, type WritableStream } from "./streams.ts";
import { concatBytes, copyOf, decodeUtf8, encodeUtf8, exactBuffer, viewOf } from "./utf8.ts";
import { wireJson } from "./wire-json.ts";

type Bytes = Uint8Array<ArrayBuffer>;

export class TextEncoder {
  get encoding(): string {
    return "utf-8";
  }

  encode(input: string = ""): Bytes {
    return encodeUtf8(`${input}`);
  }

  /** Writes as many whole characters as fit; `read` counts UTF-16 units, `written` bytes. */
  encodeInto(source: string, destination: Uint8Array): { read: number; written: number } {
    if (!(destination instanceof Uint8Array)) throw new TypeError("encodeInto needs a Uint8Array.");
    const text = `${source}`;
    const room = destination.length;
    // Every character takes at least a byte, so no more than `room` units can fit.
    const bytes = encodeUtf8(text.length > room ? text.slice(0, room) : text);
    if (bytes.length <= room) {
      destination.set(bytes);
      return { read: Math.min(text.length, room), written: bytes.length };
    }
    let written = room;
    // Back to the first byte of the character that does not fit.
    while (written > 0 && ((bytes[written] as number) & 0xc0) === 0x80) written--;
    const part = bytes.subarray(0, written);
    destination.set(part);
    // A lone surrogate has become U+FFFD: one unit, like every character of up to three bytes.
    let read = 0;
    for (const byte of part) if ((byte & 0xc0) !== 0x80) read += byte >= 0xf0 ? 2 : 1;
    return { read, written };
  }

  get [Symbol.toStringTag](): string {
    return "TextEncoder";
  }
}

interface DecoderOptions {
  fatal?: boolean;
  ignoreBOM?: boolean;
}

const none: Bytes = new Uint8Array(0);
const usualLabels: Record<string, string> = Object.assign(Object.create(null), { "utf-8": "utf-8", utf8: "utf-8", "UTF-8": "utf-8" });
const singleByte = /^(?:windows-|iso-8859-|koi8-|ibm866|macintosh|x-mac-|x-user-defined)/;

export class TextDecoder {
  #encoding: string;
  #fatal: boolean;
  #ignoreBOM: boolean;
  /** Bytes of a character that is not complete yet. */
  #pending: Bytes = none;
  /** True until the first character, where a byte order mark may stand. */
  #isAtStart = true;

  constructor(label = "utf-8", options: DecoderOptions = {}) {
    const name = `${label}`;
    const known = usualLabels[name] ?? (syncText("text.encoding", name) || null);
    if (known === null) throw new RangeError(`The encoding label ${jsonStringify(name)} is not known.`);
    this.#encoding = known;
    this.#fatal = Boolean(options?.fatal);
    this.#ignoreBOM = Boolean(options?.ignoreBOM);
  }

  get encoding(): string {
    return this.#encoding;
  }
  get fatal(): boolean {
    return this.#fatal;
  }
  get ignoreBOM(): boolean {
    return this.#ignoreBOM;
  }

  decode(input?: ArrayBuffer | ArrayBufferView, options: { stream?: boolean } = {}): string {
    const given = input === undefined ? none : viewOf(input);
    if (given === null) throw new TypeError("TextDecoder.decode needs an ArrayBuffer or a view of one.");
    const isLast = !options?.stream;
    let bytes = given;
    if (this.#pending.length > 0) {
      bytes = concatBytes([this.#pending, given], this.#pending.length + given.length);
      this.#pending = none;
    }
    if (!isLast) {
      const kept = incompleteTail(bytes, this.#encoding);
      if (kept > 0) {
        this.#pending = copyOf(bytes.subarray(bytes.length - kept)) as Bytes;
        bytes = bytes.subarray(0, bytes.length - kept);
      }
    }
    let text: string;
    try {
      text = this.#decodeAll(bytes);
    } catch (error) {
      this.#pending = none;
      this.#isAtStart = true;
      throw error;
    }
    if (this.#isAtStart && text.length > 0) {
      this.#isAtStart = false;
      if (!this.#ignoreBOM && text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    }
    if (isLast) this.#isAtStart = true;
    return text;
  }

  #decodeAll(bytes: Bytes): string {
    if (bytes.length === 0) return "";
    if (this.#encoding === "utf-8" && !this.#fatal) return decodeUtf8(bytes);
    return syncText("text.decode", wireJson([this.#encoding, this.#fatal]), exactBuffer(bytes));
  }

  get [Symbol.toStringTag](): string {
    return "TextDecoder";
  }
}

/** How many bytes at the end belong to a character that may still go on. */
function incompleteTail(bytes: Bytes, encoding: string): number {
  const { length } = bytes;
  if (encoding === "utf-8") {
    for (let back = 1; back <= Math.min(3, length); back++) {
      const byte = bytes[length - back] as number;
      if ((byte & 0xc0) === 0x80) continue;
      const wanted = byte >= 0xf0 && byte <= 0xf4 ? 4 : byte >= 0xe0 && byte < 0xf0 ? 3 : byte >= 0xc2 && byte < 0xe0 ? 2 : 1;
      return wanted > back && isPossibleStart(byte, bytes[length - back + 1]) ? back : 0;
    }
    return 0;
  }
  if (encoding === "utf-16le" || encoding === "utf-16be") {
    const odd = length % 2;
    const high = bytes[length - odd - (encoding === "utf-16le" ? 1 : 2)] ?? 0;
    return high >= 0xd8 && high <= 0xdb ? odd + 2 : odd;
  }
  // The legacy multi-byte encodings keep state, so they are decoded as a whole at the end of the stream.
  return singleByte.test(encoding) ? 0 : length;
}

/** Whether a second byte may follow this first one (it may also be missing yet): else the decoder has already seen an error. */
function isPossibleStart(first: number, second: number | undefined): boolean {
  if (second === undefined) return true;
  if (first === 0xe0) return second >= 0xa0;
  if (first === 0xed) return second <= 0x9f;
  if (first === 0xf0) return second >= 0x90;
  if (first === 0xf4) return second <= 0x8f;
  return true;
}

/** The kit's transforms show `readable` and `writable` as attributes of their class, as the standard has it. */
class GenericTransform<I, O> {
  #transform: TransformStream<I, O>;
  constructor(transform: TransformStream<I, O>) {
    this.#transform = transform;
  }
  get readable(): ReadableStream<O> {
    return this.#transform.readable;
  }
  get writable(): WritableStream<I> {
    return this.#transform.writable;
  }
}

export class TextEncoderStream extends GenericTransform<unknown, Bytes> {
  constructor() {
    let high = "";
    super(
      new TransformStream<unknown, Bytes>({
        transform(chunk, controller) {
          let text = `${high}${chunk as string}`;
          high = "";
          const last = text.charCodeAt(text.length - 1);
          if (last >= 0xd800 && last <= 0xdbff) {
            high = text.slice(-1);
            text = text.slice(0, -1);
          }
          if (text !== "") controller.enqueue(encodeUtf8(text));
        },
        flush(controller) {
          if (high !== "") controller.enqueue(encodeUtf8(high));
        },
      }),
    );
  }
  get encoding(): string {
    return "utf-8";
  }
  get [Symbol.toStringTag](): string {
    return "TextEncoderStream";
  }
}

export class TextDecoderStream extends GenericTransform<ArrayBuffer | ArrayBufferView, string> {
  #decoder: TextDecoder;
  constructor(label = "utf-8", options: DecoderOptions = {}) {
    const decoder = new TextDecoder(label, options);
    super(
      new TransformStream<ArrayBuffer | ArrayBufferView, string>({
        transform(chunk, controller) {
          const text = decoder.decode(chunk, { stream: true });
          if (text !== "") controller.enqueue(text);
        },
        flush(controller) {
          const text = decoder.decode();
          if (text !== "") controller.enqueue(text);
        },
      }),
    );
    this.#decoder = decoder;
  }
  get encoding(): string {
    return this.#decoder.encoding;
  }
  get fatal(): boolean {
    return this.#decoder.fatal;
  }
  get ignoreBOM(): boolean {
    return this.#decoder.ignoreBOM;
  }
  get [Symbol.toStringTag](): string {
    return "TextDecoderStream";
  }
}
