/** crypto (Web Cryptography): the host's WebCrypto. Keys stay with the host; a CryptoKey here holds a sealed handle no program can read. */
import { currentRunKey } from "./current-run.ts";
import { DOMException } from "./dom-exception.ts";
import { callHost } from "./host.ts";
import { jsonParse, U8, viewTag } from "./primordials.ts";
import { randomBytes } from "./random.ts";
import { copyOf, viewOf } from "./utf8.ts";

type Source = ArrayBuffer | ArrayBufferView;
type Algorithm = string | ({ name: string } & Record<string, unknown>);
type Format = "raw" | "pkcs8" | "spki" | "jwk";

interface KeyInfo {
  handle: string;
  type: string;
  extractable: boolean;
  algorithm: Record<string, unknown>;
  usages: string[];
}

const construct = Symbol("construct");
let handleOf: (key: unknown) => string;
export let isCryptoKey: (value: unknown) => value is CryptoKey;

export class CryptoKey {
  #info: KeyInfo;
  #algorithm: object | null = null;
  #usages: string[] | null = null;

  static {
    handleOf = (key) => {
      if (!isCryptoKey(key)) throw new TypeError("A CryptoKey is expected.");
      return key.#info.handle;
    };
    isCryptoKey = (value): value is CryptoKey => typeof value === "object" && value !== null && #info in value;
  }

  constructor(token?: unknown, info?: unknown) {
    if (token !== construct) throw new TypeError("Illegal constructor");
    this.#info = info as KeyInfo;
  }
  get type(): string {
    return this.#info.type;
  }
  get extractable(): boolean {
    return this.#info.extractable;
  }
  get algorithm(): object {
    this.#algorithm ??= fromWire(this.#info.algorithm) as object;
    return this.#algorithm;
  }
  get usages(): string[] {
    this.#usages ??= [...this.#info.usages];
    return this.#usages;
  }
  get [Symbol.toStringTag](): string {
    return "CryptoKey";
  }
}

/** A copy of a key, as structuredClone makes it. */
export const cloneKey = (key: CryptoKey): CryptoKey =>
  new CryptoKey(construct, {
    handle: handleOf(key),
    type: key.type,
    extractable: key.extractable,
    algorithm: toWire(key.algorithm),
    usages: [...key.usages],
  });

/** Parameters as JSON: bytes and keys in the forms the host turns back. */
function toWire(value: unknown): unknown {
  if (isCryptoKey(value)) return { $key: handleOf(value) };
  const bytes = viewOf(value);
  if (bytes !== null) return { $bytes: bytes.toBase64() };
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(toWire);
  const record: Record<string, unknown> = {};
  // Members may be inherited, as with any dictionary.
  for (const key in value) record[key] = toWire((value as Record<string, unknown>)[key]);
  return record;
}

function fromWire(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  const record = value as Record<string, unknown>;
  if (typeof record.$bytes === "string") return U8.fromBase64(record.$bytes);
  return Object.fromEntries(Object.entries(record).map(([key, item]) => [key, fromWire(item)]));
}

function params(algorithm: Algorithm): unknown {
  if (typeof algorithm === "string") return { name: algorithm };
  if (typeof algorithm !== "object" || algorithm === null || algorithm.name === undefined)
    throw new TypeError("An algorithm must be a name or an object with one.");
  return toWire(algorithm);
}

function bytesOf(data: unknown): ArrayBuffer {
  const copy = copyOf(data);
  if (copy === null) throw new TypeError("The data must be an ArrayBuffer or a view of one.");
  return copy.buffer;
}

const ask = (method: string, input: object, bytes?: ArrayBuffer) => callHost(currentRunKey(), `crypto.${method}`, input, bytes);
const keyFrom = (text: string | undefined) => new CryptoKey(construct, jsonParse(text ?? ""));

export class SubtleCrypto {
  constructor(token?: unknown) {
    if (token !== construct) throw new TypeError("Illegal constructor");
  }

  async digest(algorithm: Algorithm, data: Source): Promise<ArrayBuffer> {
    return (await ask("digest", { algorithm: params(algorithm) }, bytesOf(data))).bytes as ArrayBuffer;
  }
  async encrypt(algorithm: Algorithm, key: CryptoKey, data: Source): Promise<ArrayBuffer> {
    return (await ask("encrypt", { algorithm: params(algorithm), key: handleOf(key) }, bytesOf(data))).bytes as ArrayBuffer;
  }
  async decrypt(algorithm: Algorithm, key: CryptoKey, data: Source): Promise<ArrayBuffer> {
    return (await ask("decrypt", { algorithm: params(algorithm), key: handleOf(key) }, bytesOf(data))).bytes as ArrayBuffer;
  }
  async sign(algorithm: Algorithm, key: CryptoKey, data: Source): Promise<ArrayBuffer> {
    return (await ask("sign", { algorithm: params(algorithm), key: handleOf(key) }, bytesOf(data))).bytes as ArrayBuffer;
  }
  async verify(algorithm: Algorithm, key: CryptoKey, signature: Source, data: Source): Promise<boolean> {
    const proof = { $bytes: new U8(bytesOf(signature)).toBase64() };
    return (await ask("verify", { algorithm: params(algorithm), key: handleOf(key), signature: proof }, bytesOf(data))).text === "true";
  }
  async generateKey(
    algorithm: Algorithm,
    extractable: boolean,
    usages: Iterable<string>,
  ): Promise<CryptoKey | { publicKey: CryptoKey; privateKey: CryptoKey }> {
    const { text } = await ask("generateKey", { algorithm: params(algorithm), extractable: Boolean(extractable), usages: [...usages] });
    const made = jsonParse(text ?? "") as KeyInfo | { publicKey: KeyInfo; privateKey: KeyInfo };
    if (!("privateKey" in made)) return new CryptoKey(construct, made);
    return { publicKey: new CryptoKey(construct, made.publicKey), privateKey: new CryptoKey(construct, made.privateKey) };
  }
  async importKey(
    format: Format,
    data: Source | object,
    algorithm: Algorithm,
    extractable: boolean,
    usages: Iterable<string>,
  ): Promise<CryptoKey> {
    const input = { format: `${format}`, algorithm: params(algorithm), extractable: Boolean(extractable), usages: [...usages] };
    const isJwk = input.format === "jwk";
    if (isJwk && (typeof data !== "object" || data === null || viewOf(data) !== null)) throw new TypeError("A JWK must be an object.");
    const { text } = await ask("importKey", isJwk ? { ...input, jwk: data } : input, isJwk ? undefined : bytesOf(data));
    return keyFrom(text);
  }
  async exportKey(format: Format, key: CryptoKey): Promise<ArrayBuffer | object> {
    const { text, bytes } = await ask("exportKey", { format: `${format}`, key: handleOf(key) });
    return bytes ?? (jsonParse(text ?? "") as object);
  }
  async deriveBits(algorithm: Algorithm, key: CryptoKey, length: number | null = null): Promise<ArrayBuffer> {
    return (await ask("deriveBits", { algorithm: params(algorithm), key: handleOf(key), length })).bytes as ArrayBuffer;
  }
  async deriveKey(
    algorithm: Algorithm,
    key: CryptoKey,
    derived: Algorithm,
    extractable: boolean,
    usages: Iterable<string>,
  ): Promise<CryptoKey> {
    const input = {
      algorithm: params(algorithm),
      key: handleOf(key),
      derived: params(derived),
      extractable: Boolean(extractable),
      usages: [...usages],
    };
    return keyFrom((await ask("deriveKey", input)).text);
  }
  async wrapKey(format: Format, key: CryptoKey, wrappingKey: CryptoKey, algorithm: Algorithm): Promise<ArrayBuffer> {
    const input = { format: `${format}`, key: handleOf(key), wrappingKey: handleOf(wrappingKey), algorithm: params(algorithm) };
    return (await ask("wrapKey", input)).bytes as ArrayBuffer;
  }
  async unwrapKey(
    format: Format,
    wrapped: Source,
    unwrappingKey: CryptoKey,
    algorithm: Algorithm,
    unwrapped: Algorithm,
    extractable: boolean,
    usages: Iterable<string>,
  ): Promise<CryptoKey> {
    const input = {
      format: `${format}`,
      unwrappingKey: handleOf(unwrappingKey),
      algorithm: params(algorithm),
      unwrapped: params(unwrapped),
      extractable: Boolean(extractable),
      usages: [...usages],
    };
    return keyFrom((await ask("unwrapKey", input, bytesOf(wrapped))).text);
  }
  get [Symbol.toStringTag](): string {
    return "SubtleCrypto";
  }
}

const subtle = new SubtleCrypto(construct);
const integerArrays = /^(?:Int|Uint|BigInt|BigUint)\d+(?:Clamped)?Array$/;

export class Crypto {
  constructor(token?: unknown) {
    if (token !== construct) throw new TypeError("Illegal constructor");
  }
  get subtle(): SubtleCrypto {
    return subtle;
  }
  getRandomValues<T extends ArrayBufferView>(array: T): T {
    const view = viewOf(array);
    if (view === null || !integerArrays.test(viewTag(array) ?? ""))
      throw new DOMException("getRandomValues needs an array of integers.", "TypeMismatchError");
    if (view.length > 65_536)
      throw new DOMException(`At most 65,536 random bytes are given at once, not ${view.length}.`, "QuotaExceededError");
    view.set(randomBytes(view.length));
    return array;
  }
  randomUUID(): string {
    const bytes = randomBytes(16);
    bytes[6] = ((bytes[6] as number) & 0x0f) | 0x40;
    bytes[8] = ((bytes[8] as number) & 0x3f) | 0x80;
    const hex = bytes.toHex();
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
  }
  get [Symbol.toStringTag](): string {
    return "Crypto";
  }
}

export const crypto = new Crypto(construct);
