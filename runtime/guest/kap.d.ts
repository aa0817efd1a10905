// biome-ignore-all lint/suspicious/noExplicitAny: as in TypeScript's own DOM library, so that programs written against it type-check unchanged
/**
 * The world of a kap: the minimum common web API (ECMA-429) and the `kap` module. Complete in itself: use it with TypeScript's
 * `lib: ["esnext"]` and nothing else. There is no DOM and no Node here.
 */

// ---------------------------------------------------------------------------------------------------------------- the kap module

declare module "kap" {
  /** A value of a query's parameter list. Objects are sent as JSON text, dates as ISO text, Uint8Arrays as bytea. */
  export type SqlValue = string | number | bigint | boolean | null | undefined | Date | Uint8Array | readonly SqlValue[] | object;
  export interface QueryResult<Row = Record<string, any>> {
    rows: Row[];
    row_count: number;
  }
  /** The kap's own PostgreSQL schema. */
  export const db: {
    /** Runs one statement with `$1`-style parameters. int8 beyond 2^53, numeric, timestamptz, intervals and arrays come back as text. */
    query<Row = Record<string, any>>(sql: string, params?: readonly SqlValue[]): Promise<QueryResult<Row>>;
    /** Runs statements in one transaction: all or none. */
    batch(statements: readonly { sql: string; params?: readonly SqlValue[] }[]): Promise<QueryResult[]>;
  };

  export interface StoredObject {
    key: string;
    /** Bytes. */
    size: number;
    etag?: string;
    last_modified?: string;
  }
  /** The kap's own files. Keys are 1 to 1,024 bytes of UTF-8; an object is at most 30 MiB. */
  export const store: {
    get(key: string): Promise<Response | null>;
    put(key: string, value: BodyInit | Response, options?: { contentType?: string }): Promise<void>;
    delete(key: string): Promise<void>;
    /** Every object whose key begins with the prefix, in key order. */
    list(options?: { prefix?: string }): Promise<{ objects: StoredObject[] }>;
  };

  /** The secrets of the kap and of the groups attached to it. */
  export const secrets: { get(name: string): string | undefined };
}

/** The second argument of every handler. */
interface KapContext {
  /** Keeps the run going until the promise settles, within the run's limits; a rejection fails the run. */
  waitUntil(promise: unknown): void;
  readonly runId: string;
  readonly kap: { readonly id: string; readonly slug: string; readonly name: string };
  /** The trigger's id. */
  readonly trigger: string;
  /** The signed-in caller, when the audience required one. */
  readonly user?: { readonly id: string; readonly email: string; readonly name: string; readonly role: string };
}

interface KapScheduledEvent {
  readonly triggerId: string;
  readonly scheduledAt: Date;
}

interface KapMailAddress {
  address: string;
  name: string;
}

interface KapAttachment {
  filename: string;
  contentType: string;
  content: Uint8Array<ArrayBuffer>;
}

interface KapMessage {
  from: KapMailAddress;
  to: KapMailAddress[];
  subject: string;
  text: string;
  html: string;
  /** Name and value of each header, in order. */
  headers: [string, string][];
  attachments: KapAttachment[];
  /** What SPF, DKIM and DMARC said. */
  auth: Record<string, any>;
}

/** What a file's default export may be, besides a single function. */
interface KapHandlers {
  fetch?(request: Request, ctx: KapContext): Response | Promise<Response>;
  scheduled?(event: KapScheduledEvent, ctx: KapContext): unknown;
  email?(message: KapMessage, ctx: KapContext): unknown;
}

// ------------------------------------------------------------------------------------------------------------------- files as text

declare module "*.txt" {
  const text: string;
  export default text;
}
declare module "*.md" {
  const text: string;
  export default text;
}
declare module "*.html" {
  const text: string;
  export default text;
}
declare module "*.css" {
  const text: string;
  export default text;
}
declare module "*.sql" {
  const text: string;
  export default text;
}
declare module "*.svg" {
  const text: string;
  export default text;
}
declare module "*.csv" {
  const text: string;
  export default text;
}

// -------------------------------------------------------------------------------------------------------------------------- events

interface EventInit {
  bubbles?: boolean;
  cancelable?: boolean;
  composed?: boolean;
}
declare class Event {
  constructor(type: string, init?: EventInit);
  readonly type: string;
  readonly target: EventTarget | null;
  readonly currentTarget: EventTarget | null;
  readonly srcElement: EventTarget | null;
  readonly eventPhase: number;
  readonly bubbles: boolean;
  readonly cancelable: boolean;
  readonly composed: boolean;
  readonly defaultPrevented: boolean;
  readonly returnValue: boolean;
  readonly isTrusted: boolean;
  readonly timeStamp: number;
  cancelBubble: boolean;
  composedPath(): EventTarget[];
  preventDefault(): void;
  stopPropagation(): void;
  stopImmediatePropagation(): void;
  static readonly NONE: 0;
  static readonly CAPTURING_PHASE: 1;
  static readonly AT_TARGET: 2;
  static readonly BUBBLING_PHASE: 3;
}
declare class CustomEvent<T = any> extends Event {
  constructor(type: string, init?: EventInit & { detail?: T });
  readonly detail: T;
}
declare class ErrorEvent extends Event {
  constructor(type: string, init?: EventInit & { message?: string; filename?: string; lineno?: number; colno?: number; error?: any });
  readonly message: string;
  readonly filename: string;
  readonly lineno: number;
  readonly colno: number;
  readonly error: any;
}
declare class PromiseRejectionEvent extends Event {
  constructor(type: string, init: EventInit & { promise: Promise<any>; reason?: any });
  readonly promise: Promise<any>;
  readonly reason: any;
}
declare class MessageEvent<T = any> extends Event {
  constructor(
    type: string,
    init?: EventInit & { data?: T; origin?: string; lastEventId?: string; source?: MessagePort | null; ports?: MessagePort[] },
  );
  readonly data: T;
  readonly origin: string;
  readonly lastEventId: string;
  readonly source: MessagePort | null;
  readonly ports: readonly MessagePort[];
}
type EventListenerOrEventListenerObject = ((event: any) => void) | { handleEvent(event: any): void };
interface AddEventListenerOptions {
  capture?: boolean;
  once?: boolean;
  passive?: boolean;
  signal?: AbortSignal;
}
declare class EventTarget {
  addEventListener(type: string, listener: EventListenerOrEventListenerObject | null, options?: boolean | AddEventListenerOptions): void;
  removeEventListener(type: string, listener: EventListenerOrEventListenerObject | null, options?: boolean | { capture?: boolean }): void;
  dispatchEvent(event: Event): boolean;
}
declare class AbortSignal extends EventTarget {
  private constructor();
  static abort(reason?: any): AbortSignal;
  static timeout(milliseconds: number): AbortSignal;
  static any(signals: Iterable<AbortSignal>): AbortSignal;
  readonly aborted: boolean;
  readonly reason: any;
  throwIfAborted(): void;
  onabort: ((this: AbortSignal, event: Event) => any) | null;
}
declare class AbortController {
  readonly signal: AbortSignal;
  abort(reason?: any): void;
}
declare class DOMException extends Error {
  constructor(message?: string, nameOrOptions?: string | { name?: string; cause?: unknown });
  readonly name: string;
  readonly message: string;
  readonly code: number;
}
declare class MessagePort extends EventTarget {
  private constructor();
  postMessage(message: any, options?: Iterable<object> | StructuredSerializeOptions): void;
  start(): void;
  close(): void;
  onmessage: ((this: MessagePort, event: MessageEvent) => any) | null;
  onmessageerror: ((this: MessagePort, event: MessageEvent) => any) | null;
}
declare class MessageChannel {
  readonly port1: MessagePort;
  readonly port2: MessagePort;
}

// ------------------------------------------------------------------------------------------------------------------------- streams

type ReadableStreamReadResult<T> = { done: false; value: T } | { done: true; value: T | undefined };
interface QueuingStrategy<T = any> {
  highWaterMark?: number;
  size?: (chunk: T) => number;
}
interface UnderlyingDefaultSource<R = any> {
  type?: undefined;
  start?(controller: ReadableStreamDefaultController<R>): any;
  pull?(controller: ReadableStreamDefaultController<R>): void | PromiseLike<void>;
  cancel?(reason?: any): void | PromiseLike<void>;
}
interface UnderlyingByteSource {
  type: "bytes";
  autoAllocateChunkSize?: number;
  start?(controller: ReadableByteStreamController): any;
  pull?(controller: ReadableByteStreamController): void | PromiseLike<void>;
  cancel?(reason?: any): void | PromiseLike<void>;
}
interface UnderlyingSink<W = any> {
  start?(controller: WritableStreamDefaultController): any;
  write?(chunk: W, controller: WritableStreamDefaultController): void | PromiseLike<void>;
  close?(): void | PromiseLike<void>;
  abort?(reason?: any): void | PromiseLike<void>;
}
interface Transformer<I = any, O = any> {
  start?(controller: TransformStreamDefaultController<O>): any;
  transform?(chunk: I, controller: TransformStreamDefaultController<O>): void | PromiseLike<void>;
  flush?(controller: TransformStreamDefaultController<O>): void | PromiseLike<void>;
  cancel?(reason: any): void | PromiseLike<void>;
}
interface StreamPipeOptions {
  preventAbort?: boolean;
  preventCancel?: boolean;
  preventClose?: boolean;
  signal?: AbortSignal;
}
interface ReadableWritablePair<R = any, W = any> {
  readable: ReadableStream<R>;
  writable: WritableStream<W>;
}
declare class ReadableStream<R = any> {
  constructor(source: UnderlyingByteSource, strategy?: { highWaterMark?: number });
  constructor(source?: UnderlyingDefaultSource<R>, strategy?: QueuingStrategy<R>);
  static from<T>(iterable: Iterable<T> | AsyncIterable<T>): ReadableStream<T>;
  readonly locked: boolean;
  cancel(reason?: any): Promise<void>;
  getReader(options: { mode: "byob" }): ReadableStreamBYOBReader;
  getReader(): ReadableStreamDefaultReader<R>;
  pipeThrough<T>(transform: ReadableWritablePair<T, R>, options?: StreamPipeOptions): ReadableStream<T>;
  pipeTo(destination: WritableStream<R>, options?: StreamPipeOptions): Promise<void>;
  tee(): [ReadableStream<R>, ReadableStream<R>];
  values(options?: { preventCancel?: boolean }): AsyncIterableIterator<R>;
  [Symbol.asyncIterator](options?: { preventCancel?: boolean }): AsyncIterableIterator<R>;
}
declare class ReadableStreamDefaultReader<R = any> {
  constructor(stream: ReadableStream<R>);
  readonly closed: Promise<void>;
  cancel(reason?: any): Promise<void>;
  read(): Promise<ReadableStreamReadResult<R>>;
  releaseLock(): void;
}
declare class ReadableStreamBYOBReader {
  constructor(stream: ReadableStream);
  readonly closed: Promise<void>;
  cancel(reason?: any): Promise<void>;
  read<T extends ArrayBufferView>(view: T, options?: { min?: number }): Promise<ReadableStreamReadResult<T>>;
  releaseLock(): void;
}
declare class ReadableStreamDefaultController<R = any> {
  private constructor();
  readonly desiredSize: number | null;
  close(): void;
  enqueue(chunk?: R): void;
  error(error?: any): void;
}
declare class ReadableByteStreamController {
  private constructor();
  readonly byobRequest: ReadableStreamBYOBRequest | null;
  readonly desiredSize: number | null;
  close(): void;
  enqueue(chunk: ArrayBufferView): void;
  error(error?: any): void;
}
declare class ReadableStreamBYOBRequest {
  private constructor();
  readonly view: Uint8Array<ArrayBuffer> | null;
  respond(bytesWritten: number): void;
  respondWithNewView(view: ArrayBufferView): void;
}
declare class WritableStream<W = any> {
  constructor(sink?: UnderlyingSink<W>, strategy?: QueuingStrategy<W>);
  readonly locked: boolean;
  abort(reason?: any): Promise<void>;
  close(): Promise<void>;
  getWriter(): WritableStreamDefaultWriter<W>;
}
declare class WritableStreamDefaultWriter<W = any> {
  constructor(stream: WritableStream<W>);
  readonly closed: Promise<void>;
  readonly desiredSize: number | null;
  readonly ready: Promise<void>;
  abort(reason?: any): Promise<void>;
  close(): Promise<void>;
  releaseLock(): void;
  write(chunk?: W): Promise<void>;
}
declare class WritableStreamDefaultController {
  private constructor();
  readonly signal: AbortSignal;
  error(error?: any): void;
}
declare class TransformStream<I = any, O = any> {
  constructor(transformer?: Transformer<I, O>, writableStrategy?: QueuingStrategy<I>, readableStrategy?: QueuingStrategy<O>);
  readonly readable: ReadableStream<O>;
  readonly writable: WritableStream<I>;
}
declare class TransformStreamDefaultController<O = any> {
  private constructor();
  readonly desiredSize: number | null;
  enqueue(chunk?: O): void;
  error(reason?: any): void;
  terminate(): void;
}
declare class ByteLengthQueuingStrategy implements QueuingStrategy<ArrayBufferView> {
  constructor(init: { highWaterMark: number });
  readonly highWaterMark: number;
  readonly size: (chunk: ArrayBufferView) => number;
}
declare class CountQueuingStrategy implements QueuingStrategy {
  constructor(init: { highWaterMark: number });
  readonly highWaterMark: number;
  readonly size: (chunk: any) => number;
}
type CompressionFormat = "gzip" | "deflate" | "deflate-raw";
declare class CompressionStream {
  constructor(format: CompressionFormat);
  readonly readable: ReadableStream<Uint8Array<ArrayBuffer>>;
  readonly writable: WritableStream<BufferSource>;
}
declare class DecompressionStream {
  constructor(format: CompressionFormat);
  readonly readable: ReadableStream<Uint8Array<ArrayBuffer>>;
  readonly writable: WritableStream<BufferSource>;
}

// ------------------------------------------------------------------------------------------------------------------- text and bytes

type BufferSource = ArrayBuffer | ArrayBufferView;
declare class TextEncoder {
  readonly encoding: string;
  encode(input?: string): Uint8Array<ArrayBuffer>;
  encodeInto(source: string, destination: Uint8Array): { read: number; written: number };
}
interface TextDecoderOptions {
  fatal?: boolean;
  ignoreBOM?: boolean;
}
declare class TextDecoder {
  constructor(label?: string, options?: TextDecoderOptions);
  readonly encoding: string;
  readonly fatal: boolean;
  readonly ignoreBOM: boolean;
  decode(input?: BufferSource, options?: { stream?: boolean }): string;
}
declare class TextEncoderStream {
  readonly encoding: string;
  readonly readable: ReadableStream<Uint8Array<ArrayBuffer>>;
  readonly writable: WritableStream<string>;
}
declare class TextDecoderStream {
  constructor(label?: string, options?: TextDecoderOptions);
  readonly encoding: string;
  readonly fatal: boolean;
  readonly ignoreBOM: boolean;
  readonly readable: ReadableStream<string>;
  readonly writable: WritableStream<BufferSource>;
}
declare function atob(data: string): string;
declare function btoa(data: string): string;
type BlobPart = BufferSource | Blob | string;
interface BlobPropertyBag {
  type?: string;
  endings?: "transparent" | "native";
}
declare class Blob {
  constructor(parts?: Iterable<BlobPart>, options?: BlobPropertyBag);
  readonly size: number;
  readonly type: string;
  arrayBuffer(): Promise<ArrayBuffer>;
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
  slice(start?: number, end?: number, contentType?: string): Blob;
  stream(): ReadableStream<Uint8Array<ArrayBuffer>>;
  text(): Promise<string>;
}
declare class File extends Blob {
  constructor(parts: Iterable<BlobPart>, name: string, options?: BlobPropertyBag & { lastModified?: number });
  readonly name: string;
  readonly lastModified: number;
  readonly webkitRelativePath: string;
}
type FormDataEntryValue = File | string;
declare class FormData {
  append(name: string, value: string | Blob, filename?: string): void;
  delete(name: string): void;
  get(name: string): FormDataEntryValue | null;
  getAll(name: string): FormDataEntryValue[];
  has(name: string): boolean;
  set(name: string, value: string | Blob, filename?: string): void;
  forEach(callback: (value: FormDataEntryValue, name: string, parent: FormData) => void, thisArg?: any): void;
  entries(): IterableIterator<[string, FormDataEntryValue]>;
  keys(): IterableIterator<string>;
  values(): IterableIterator<FormDataEntryValue>;
  [Symbol.iterator](): IterableIterator<[string, FormDataEntryValue]>;
}
interface StructuredSerializeOptions {
  transfer?: Iterable<object>;
}
declare function structuredClone<T = any>(value: T, options?: StructuredSerializeOptions): T;

// ------------------------------------------------------------------------------------------------------------------------ addresses

declare class URLSearchParams {
  constructor(init?: string | URLSearchParams | Record<string, string> | Iterable<readonly [string, string]>);
  readonly size: number;
  append(name: string, value: string): void;
  delete(name: string, value?: string): void;
  get(name: string): string | null;
  getAll(name: string): string[];
  has(name: string, value?: string): boolean;
  set(name: string, value: string): void;
  sort(): void;
  toString(): string;
  forEach(callback: (value: string, name: string, parent: URLSearchParams) => void, thisArg?: any): void;
  entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
}
declare class URL {
  constructor(url: string | URL, base?: string | URL);
  static canParse(url: string | URL, base?: string | URL): boolean;
  static parse(url: string | URL, base?: string | URL): URL | null;
  href: string;
  readonly origin: string;
  protocol: string;
  username: string;
  password: string;
  host: string;
  hostname: string;
  port: string;
  pathname: string;
  search: string;
  readonly searchParams: URLSearchParams;
  hash: string;
  toString(): string;
  toJSON(): string;
}
interface URLPatternInit {
  protocol?: string;
  username?: string;
  password?: string;
  hostname?: string;
  port?: string;
  pathname?: string;
  search?: string;
  hash?: string;
  baseURL?: string;
}
interface URLPatternComponentResult {
  input: string;
  groups: Record<string, string | undefined>;
}
interface URLPatternResult {
  inputs: (string | URLPatternInit)[];
  protocol: URLPatternComponentResult;
  username: URLPatternComponentResult;
  password: URLPatternComponentResult;
  hostname: URLPatternComponentResult;
  port: URLPatternComponentResult;
  pathname: URLPatternComponentResult;
  search: URLPatternComponentResult;
  hash: URLPatternComponentResult;
}
declare class URLPattern {
  constructor(input: string | URLPatternInit, baseURL: string, options?: { ignoreCase?: boolean });
  constructor(input?: string | URLPatternInit, options?: { ignoreCase?: boolean });
  readonly protocol: string;
  readonly username: string;
  readonly password: string;
  readonly hostname: string;
  readonly port: string;
  readonly pathname: string;
  readonly search: string;
  readonly hash: string;
  readonly hasRegExpGroups: boolean;
  test(input?: string | URL | URLPatternInit, baseURL?: string): boolean;
  exec(input?: string | URL | URLPatternInit, baseURL?: string): URLPatternResult | null;
}

// ---------------------------------------------------------------------------------------------------------------------------- fetch

type HeadersInit = Headers | Record<string, string> | Iterable<readonly [string, string]>;
type BodyInit = string | BufferSource | Blob | FormData | URLSearchParams | ReadableStream<Uint8Array>;
declare class Headers {
  constructor(init?: HeadersInit);
  append(name: string, value: string): void;
  delete(name: string): void;
  get(name: string): string | null;
  getSetCookie(): string[];
  has(name: string): boolean;
  set(name: string, value: string): void;
  forEach(callback: (value: string, name: string, parent: Headers) => void, thisArg?: any): void;
  entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
}
interface Body {
  readonly body: ReadableStream<Uint8Array<ArrayBuffer>> | null;
  readonly bodyUsed: boolean;
  arrayBuffer(): Promise<ArrayBuffer>;
  blob(): Promise<Blob>;
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
  formData(): Promise<FormData>;
  json(): Promise<any>;
  text(): Promise<string>;
}
type RequestInfo = string | URL | Request;
type RequestRedirect = "follow" | "error" | "manual";
interface RequestInit {
  method?: string;
  headers?: HeadersInit;
  body?: BodyInit | null;
  redirect?: RequestRedirect;
  signal?: AbortSignal | null;
  /** Needed when the body is a stream. */
  duplex?: "half";
  cache?: string;
  credentials?: string;
  integrity?: string;
  keepalive?: boolean;
  mode?: string;
  referrer?: string;
  referrerPolicy?: string;
}
interface Request extends Body {}
declare class Request {
  constructor(input: RequestInfo, init?: RequestInit);
  readonly method: string;
  readonly url: string;
  readonly headers: Headers;
  readonly redirect: RequestRedirect;
  readonly signal: AbortSignal;
  readonly cache: string;
  readonly credentials: string;
  readonly destination: string;
  readonly duplex: "half";
  readonly integrity: string;
  readonly keepalive: boolean;
  readonly mode: string;
  readonly referrer: string;
  readonly referrerPolicy: string;
  clone(): Request;
}
interface ResponseInit {
  status?: number;
  statusText?: string;
  headers?: HeadersInit;
}
interface Response extends Body {}
declare class Response {
  constructor(body?: BodyInit | null, init?: ResponseInit | Response);
  static json(data: any, init?: ResponseInit): Response;
  static redirect(url: string | URL, status?: number): Response;
  static error(): Response;
  readonly status: number;
  readonly statusText: string;
  readonly ok: boolean;
  readonly headers: Headers;
  readonly redirected: boolean;
  readonly type: string;
  readonly url: string;
  clone(): Response;
}
declare function fetch(input: RequestInfo, init?: RequestInit): Promise<Response>;

// --------------------------------------------------------------------------------------------------------------------------- crypto

type AlgorithmIdentifier = string | { name: string; [parameter: string]: any };
type KeyFormat = "jwk" | "pkcs8" | "raw" | "spki";
type KeyUsage = "decrypt" | "deriveBits" | "deriveKey" | "encrypt" | "sign" | "unwrapKey" | "verify" | "wrapKey";
type KeyType = "private" | "public" | "secret";
interface JsonWebKey {
  kty?: string;
  alg?: string;
  ext?: boolean;
  key_ops?: string[];
  [member: string]: any;
}
interface CryptoKeyPair {
  publicKey: CryptoKey;
  privateKey: CryptoKey;
}
declare class CryptoKey {
  private constructor();
  readonly type: KeyType;
  readonly extractable: boolean;
  readonly algorithm: { name: string; [parameter: string]: any };
  readonly usages: KeyUsage[];
}
declare class SubtleCrypto {
  private constructor();
  digest(algorithm: AlgorithmIdentifier, data: BufferSource): Promise<ArrayBuffer>;
  encrypt(algorithm: AlgorithmIdentifier, key: CryptoKey, data: BufferSource): Promise<ArrayBuffer>;
  decrypt(algorithm: AlgorithmIdentifier, key: CryptoKey, data: BufferSource): Promise<ArrayBuffer>;
  sign(algorithm: AlgorithmIdentifier, key: CryptoKey, data: BufferSource): Promise<ArrayBuffer>;
  verify(algorithm: AlgorithmIdentifier, key: CryptoKey, signature: BufferSource, data: BufferSource): Promise<boolean>;
  generateKey(
    algorithm:
      | { name: "AES-CBC" | "AES-CTR" | "AES-GCM" | "AES-KW"; length: number }
      | { name: "HMAC"; hash: AlgorithmIdentifier; length?: number },
    extractable: boolean,
    usages: Iterable<KeyUsage>,
  ): Promise<CryptoKey>;
  generateKey(
    algorithm:
      | "Ed25519"
      | "X25519"
      | { name: "ECDSA" | "ECDH"; namedCurve: string }
      | { name: "RSASSA-PKCS1-v1_5" | "RSA-PSS" | "RSA-OAEP"; modulusLength: number; publicExponent: Uint8Array; hash: AlgorithmIdentifier }
      | { name: "Ed25519" | "X25519" },
    extractable: boolean,
    usages: Iterable<KeyUsage>,
  ): Promise<CryptoKeyPair>;
  generateKey(algorithm: AlgorithmIdentifier, extractable: boolean, usages: Iterable<KeyUsage>): Promise<CryptoKey | CryptoKeyPair>;
  importKey(
    format: "jwk",
    data: JsonWebKey,
    algorithm: AlgorithmIdentifier,
    extractable: boolean,
    usages: Iterable<KeyUsage>,
  ): Promise<CryptoKey>;
  importKey(
    format: Exclude<KeyFormat, "jwk">,
    data: BufferSource,
    algorithm: AlgorithmIdentifier,
    extractable: boolean,
    usages: Iterable<KeyUsage>,
  ): Promise<CryptoKey>;
  importKey(
    format: KeyFormat,
    data: BufferSource | JsonWebKey,
    algorithm: AlgorithmIdentifier,
    extractable: boolean,
    usages: Iterable<KeyUsage>,
  ): Promise<CryptoKey>;
  exportKey(format: "jwk", key: CryptoKey): Promise<JsonWebKey>;
  exportKey(format: Exclude<KeyFormat, "jwk">, key: CryptoKey): Promise<ArrayBuffer>;
  exportKey(format: KeyFormat, key: CryptoKey): Promise<ArrayBuffer | JsonWebKey>;
  deriveBits(algorithm: AlgorithmIdentifier, key: CryptoKey, length?: number | null): Promise<ArrayBuffer>;
  deriveKey(
    algorithm: AlgorithmIdentifier,
    key: CryptoKey,
    derived: AlgorithmIdentifier,
    extractable: boolean,
    usages: Iterable<KeyUsage>,
  ): Promise<CryptoKey>;
  wrapKey(format: KeyFormat, key: CryptoKey, wrappingKey: CryptoKey, algorithm: AlgorithmIdentifier): Promise<ArrayBuffer>;
  unwrapKey(
    format: KeyFormat,
    wrapped: BufferSource,
    unwrappingKey: CryptoKey,
    algorithm: AlgorithmIdentifier,
    unwrapped: AlgorithmIdentifier,
    extractable: boolean,
    usages: Iterable<KeyUsage>,
  ): Promise<CryptoKey>;
}
declare class Crypto {
  private constructor();
  readonly subtle: SubtleCrypto;
  getRandomValues<T extends ArrayBufferView>(array: T): T;
  randomUUID(): `${string}-${string}-${string}-${string}-${string}`;
}
declare var crypto: Crypto;

// ------------------------------------------------------------------------------------------------------- time, log and global scope

declare function setTimeout<A extends any[]>(callback: (...args: A) => void, delay?: number, ...args: A): number;
/** For `new Promise((resolve) => setTimeout(resolve, delay))`, whatever the promise is of. */
declare function setTimeout(callback: (_: undefined) => void, delay?: number): number;
declare function setInterval<A extends any[]>(callback: (...args: A) => void, delay?: number, ...args: A): number;
declare function clearTimeout(timer?: number): void;
declare function clearInterval(timer?: number): void;
declare function queueMicrotask(callback: () => void): void;
declare function reportError(error: any): void;
declare function addEventListener(
  type: string,
  listener: EventListenerOrEventListenerObject | null,
  options?: boolean | AddEventListenerOptions,
): void;
declare function removeEventListener(
  type: string,
  listener: EventListenerOrEventListenerObject | null,
  options?: boolean | { capture?: boolean },
): void;
declare function dispatchEvent(event: Event): boolean;
declare var onerror: ((event: ErrorEvent) => any) | null;
declare var onunhandledrejection: ((event: PromiseRejectionEvent) => any) | null;
declare var onrejectionhandled: ((event: PromiseRejectionEvent) => any) | null;
declare var self: typeof globalThis;

interface PerformanceEntry {
  readonly name: string;
  readonly entryType: string;
  readonly startTime: number;
  readonly duration: number;
  readonly detail: any;
}
declare class Performance extends EventTarget {
  private constructor();
  /** Whole milliseconds since timeOrigin. */
  now(): number;
  readonly timeOrigin: number;
  mark(name: string, options?: { startTime?: number; detail?: any }): PerformanceEntry;
  measure(
    name: string,
    start?: string | { start?: string | number; end?: string | number; duration?: number; detail?: any },
    end?: string,
  ): PerformanceEntry;
  clearMarks(name?: string): void;
  clearMeasures(name?: string): void;
  getEntries(): PerformanceEntry[];
  getEntriesByName(name: string, type?: string): PerformanceEntry[];
  getEntriesByType(type: string): PerformanceEntry[];
  toJSON(): any;
}
declare var performance: Performance;
declare class Navigator {
  private constructor();
  readonly userAgent: string;
}
declare var navigator: Navigator;

interface Console {
  assert(condition?: any, ...data: any[]): void;
  clear(): void;
  count(label?: string): void;
  countReset(label?: string): void;
  debug(...data: any[]): void;
  dir(item?: any, options?: any): void;
  dirxml(...data: any[]): void;
  error(...data: any[]): void;
  group(...data: any[]): void;
  groupCollapsed(...data: any[]): void;
  groupEnd(): void;
  info(...data: any[]): void;
  log(...data: any[]): void;
  table(data?: any, columns?: string[]): void;
  time(label?: string): void;
  timeEnd(label?: string): void;
  timeLog(label?: string, ...data: any[]): void;
  trace(...data: any[]): void;
  warn(...data: any[]): void;
}
declare var console: Console;

// ---------------------------------------------------------------------------------------------------------------------- WebAssembly

declare namespace WebAssembly {
  type ImportValue = ((...args: any[]) => any) | Global | Memory | Table | number | bigint;
  type Imports = Record<string, Record<string, ImportValue>>;
  class Module {
    constructor(bytes: BufferSource);
    static exports(module: Module): { name: string; kind: string }[];
    static imports(module: Module): { module: string; name: string; kind: string }[];
    static customSections(module: Module, name: string): ArrayBuffer[];
  }
  class Instance {
    constructor(module: Module, imports?: Imports);
    readonly exports: Record<string, any>;
  }
  class Memory {
    constructor(descriptor: { initial: number; maximum?: number });
    readonly buffer: ArrayBuffer;
    grow(pages: number): number;
  }
  class Table {
    constructor(descriptor: { element: "anyfunc" | "externref"; initial: number; maximum?: number }, value?: any);
    readonly length: number;
    get(index: number): any;
    set(index: number, value?: any): void;
    grow(count: number, value?: any): number;
  }
  class Global<T = any> {
    constructor(descriptor: { value: string; mutable?: boolean }, value?: T);
    value: T;
    valueOf(): T;
  }
  class CompileError extends Error {}
  class LinkError extends Error {}
  class RuntimeError extends Error {}
  function validate(bytes: BufferSource): boolean;
  function compile(bytes: BufferSource): Promise<Module>;
  function instantiate(bytes: BufferSource, imports?: Imports): Promise<{ module: Module; instance: Instance }>;
  function instantiate(module: Module, imports?: Imports): Promise<Instance>;
  function compileStreaming(source: Response | PromiseLike<Response>): Promise<Module>;
  function instantiateStreaming(
    source: Response | PromiseLike<Response>,
    imports?: Imports,
  ): Promise<{ module: Module; instance: Instance }>;
}
