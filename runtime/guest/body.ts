/**
 * The body of a Request or Response (Fetch §5.3). Text and bytes stay what they are: a stream is made only when the program asks for one, and
 * a body that still lies with the host is pulled from there without one.
 */
import { type AbortSignal, untilAborted } from "./abort.ts";
import { Blob, bytesOfBlob } from "./blob.ts";
import { FormData, parseFormData, serializeFormData } from "./form-data.ts";
import { callHost } from "./host.ts";
import {
  bufferSlice,
  bytesSubarray,
  isWellFormed,
  jsonParse,
  mathMin,
  promiseThen,
  stringSlice,
  toWellFormed,
  U8,
  viewByteLength,
} from "./primordials.ts";
import { isDisturbed, isReadableStream, ReadableStream } from "./streams.ts";
import { URLSearchParams } from "./url-search-params.ts";
import { concatBytes, copyOf, decodeText, encodeUtf8, exactBuffer, viewOf } from "./utf8.ts";

export type Bytes = Uint8Array<ArrayBuffer>;
export type BodyInit = string | Blob | FormData | URLSearchParams | ReadableStream | ArrayBuffer | ArrayBufferView;

/** A body that the host still holds: `pull` is the operation that hands over its next part, `cancel` the one that gives it up. */
export interface HostSource {
  runKey: number;
  pull: string;
  cancel: string;
  argument: { streamId: number } | undefined;
  /** Ends the reading when it aborts. */
  signal: AbortSignal | null;
}

type Source = string | Bytes | HostSource | null;

export const isHostSource = (source: Source): source is HostSource =>
  typeof source === "object" && source !== null && !(source instanceof U8);

export class Body {
  /** What the body is made of; null when it is empty or only the stream is left. */
  source: Source;
  stream: ReadableStream<Bytes> | null = null;
  used = false;
  /** The Content-Type this body brings along. */
  type: string | null;

  constructor(source: Source, type: string | null) {
    this.source = source;
    this.type = type;
  }

  /** True when nothing was given: `body` is null then. */
  get isEmpty(): boolean {
    return this.source === null && this.stream === null && !this.used;
  }

  get isUsed(): boolean {
    return this.used || (this.stream !== null && isDisturbed(this.stream));
  }

  /** Throws unless the body may still be read or handed on. */
  claim(): void {
    if (this.isUsed) throw new TypeError("The body has been used already.");
    if (this.stream?.locked) throw new TypeError("The body's stream is locked to a reader.");
  }

  /** The body as a stream, made at the first look. */
  asStream(): ReadableStream<Bytes> | null {
    if (this.stream === null && this.source !== null) {
      const { source } = this;
      this.source = null;
      this.stream = isHostSource(source) ? streamOfHost(source) : streamOfBytes(typeof source === "string" ? encodeUtf8(source) : source);
    }
    return this.stream;
  }

  /** Everything as bytes. A copy the caller may keep. */
  async bytes(): Promise<Bytes> {
    const source = this.#take();
    if (source === null) return new U8(0);
    if (typeof source === "string") return encodeUtf8(source);
    if (source instanceof U8) return source;
    return await (isReadableStream(source) ? readAll(source) : pullAll(source));
  }

  async text(): Promise<string> {
    const source = this.#take();
    if (source === null) return "";
    if (typeof source === "string") return source[0] === "\ufeff" ? stringSlice(source, 1) : source;
    if (source instanceof U8) return decodeText(source);
    return decodeText(isReadableStream(source) ? await readAll(source) : await pullAll(source));
  }

  async json(): Promise<unknown> {
    return jsonParse(await this.text());
  }

  async blob(type: string | null): Promise<Blob> {
    return new Blob([await this.bytes()], { type: type ?? "" });
  }

  async formData(type: string | null): Promise<FormData> {
    return parseFormData(await this.bytes(), type);
  }

  /** Marks the body used and gives what it is made of. */
  #take(): Source | ReadableStream<Bytes> {
    this.claim();
    if (this.stream !== null) return this.stream;
    const { source } = this;
    // An absent body can be read any number of times (Fetch "consume body").
    if (source !== null) this.used = true;
    this.source = null;
    return source;
  }

  /** Gives the body to a new owner (`new Request(request)`, sending): this one counts as used. */
  move(): Body {
    this.claim();
    const moved = new Body(this.source, this.type);
    moved.stream = this.stream;
    if (!this.isEmpty) this.used = true;
    this.source = null;
    this.stream = null;
    return moved;
  }

  /** A second body with the same content. */
  clone(): Body {
    this.claim();
    if (this.source === null && this.stream === null) return new Body(null, this.type);
    if (this.stream === null && !isHostSource(this.source)) return new Body(this.source, this.type);
    const [kept, given] = (this.asStream() as ReadableStream<Bytes>).tee();
    this.stream = kept;
    const copy = new Body(null, this.type);
    copy.stream = given;
    return copy;
  }
}

/** The body of a BodyInit (Fetch "extract"). Bytes are copied, since their owner may change them afterwards. */
export function extractBody(init: BodyInit): Body {
  if (typeof init === "string") return new Body(isWellFormed(init) ? init : toWellFormed(init), "text/plain;charset=UTF-8");
  const bytes = copyOf(init);
  if (bytes !== null) return new Body(bytes, null);
  if (isReadableStream(init)) {
    if (isDisturbed(init) || init.locked) throw new TypeError("A stream that is locked or has been read cannot be a body.");
    const body = new Body(null, null);
    body.stream = init;
    return body;
  }
  if (init instanceof Blob) return new Body(bytesOfBlob(init), init.type === "" ? null : init.type);
  if (init instanceof URLSearchParams) return new Body(`${init}`, "application/x-www-form-urlencoded;charset=UTF-8");
  if (init instanceof FormData) {
    const { bytes: encoded, type } = serializeFormData(init);
    return new Body(encoded, type);
  }
  return new Body(toWellFormed(`${init as unknown as string}`), "text/plain;charset=UTF-8");
}

/** The next part from the host, or null at the end. */
export async function pullPart(source: HostSource): Promise<Bytes | null> {
  const { runKey, pull, cancel, argument, signal } = source;
  signal?.throwIfAborted();
  const call = callHost(runKey, pull, argument);
  const { bytes } = await untilAborted(signal, call, () => promiseThen(callHost(runKey, cancel, argument), undefined, () => {}));
  return bytes === undefined ? null : new U8(bytes);
}

async function pullAll(source: HostSource): Promise<Bytes> {
  const parts: Bytes[] = [];
  let total = 0;
  for (;;) {
    const part = await pullPart(source);
    if (part === null) return concatBytes(parts, total);
    parts[parts.length] = part;
    total += viewByteLength(part);
  }
}

/** Reads a stream to its end; every chunk must be bytes. */
async function readAll(stream: ReadableStream<unknown>): Promise<Bytes> {
  const reader = stream.getReader();
  const parts: Bytes[] = [];
  let total = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return concatBytes(parts, total);
    const part = chunkBytes(value);
    parts[parts.length] = part;
    total += part.length;
  }
}

/** A chunk of a body stream as bytes: only Uint8Arrays are allowed in one. */
export function chunkBytes(value: unknown): Bytes {
  if (!(value instanceof U8)) throw new TypeError("A body stream may only hold Uint8Array chunks.");
  return viewOf(value) as Bytes;
}

function streamOfHost(source: HostSource): ReadableStream<Bytes> {
  return new ReadableStream(
    {
      type: "bytes",
      async pull(controller) {
        const part = await pullPart(source);
        if (part !== null && part.length > 0) return controller.enqueue(part);
        if (part !== null) return;
        controller.close();
        controller.byobRequest?.respond(0);
      },
      async cancel() {
        await callHost(source.runKey, source.cancel, source.argument);
      },
    },
    { highWaterMark: 0 },
  ) as ReadableStream<Bytes>;
}

/** One chunk at most 64 KiB each, so that a reader with back-pressure works on a large body in parts. */
function streamOfBytes(bytes: Bytes): ReadableStream<Bytes> {
  const partSize = 65_536;
  const total = viewByteLength(bytes);
  let at = 0;
  return new ReadableStream(
    {
      type: "bytes",
      pull(controller) {
        const end = at + partSize;
        if (at < total) controller.enqueue(new U8(bufferSlice(exactBuffer(bytesSubarray(bytes, at, mathMin(end, total))), 0)));
        at = end;
        if (at < total) return;
        controller.close();
        controller.byobRequest?.respond(0);
      },
    },
    { highWaterMark: 0 },
  ) as ReadableStream<Bytes>;
}

/** What crosses to the host for a body that is complete: text or an exact buffer. Undefined when it has to be streamed. */
export function completeBody(body: Body): string | ArrayBuffer | undefined {
  const { source } = body;
  if (typeof source === "string") return source;
  return source instanceof U8 ? exactBuffer(source) : undefined;
}
