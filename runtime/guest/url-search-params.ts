// biome-ignore-all lint/complexity/noArguments: the standards tell a missing argument from an undefined one
/** URLSearchParams and the application/x-www-form-urlencoded format (URL §5, §6). */
import { decodeUtf8, encodeUtf8 } from "./utf8.ts";

type Init = string | Iterable<Iterable<string>> | Record<string, string>;
const hex = "0123456789ABCDEF";

/** Decodes one name or value: `+` is a space, `%XX` a byte, anything else as it stands. */
function decodePart(part: string): string {
  const spaced = part.includes("+") ? part.replaceAll("+", " ") : part;
  if (!spaced.includes("%")) return spaced;
  try {
    return decodeURIComponent(spaced);
  } catch {
    const bytes = encodeUtf8(spaced);
    const out = new Uint8Array(bytes.length);
    let length = 0;
    for (let index = 0; index < bytes.length; index++) {
      const byte = bytes[index] as number;
      const digits = byte === 0x25 ? String.fromCharCode(bytes[index + 1] ?? 0, bytes[index + 2] ?? 0) : "";
      const isPair = /^[0-9a-f]{2}$/i.test(digits);
      out[length++] = isPair ? Number.parseInt(digits, 16) : byte;
      if (isPair) index += 2;
    }
    return decodeUtf8(out.subarray(0, length));
  }
}

function encodePart(part: string): string {
  if (/^[\w*.-]*$/.test(part)) return part;
  let text = "";
  for (const byte of encodeUtf8(part)) {
    if (byte === 0x20) text += "+";
    else if (
      (byte >= 0x30 && byte <= 0x39) ||
      (byte >= 0x41 && byte <= 0x5a) ||
      (byte >= 0x61 && byte <= 0x7a) ||
      byte === 0x2a ||
      byte === 0x2d ||
      byte === 0x2e ||
      byte === 0x5f
    )
      text += String.fromCharCode(byte);
    else text += `%${hex[byte >> 4]}${hex[byte & 15]}`;
  }
  return text;
}

/** The pairs of an urlencoded string. */
export function parseUrlEncoded(text: string): [string, string][] {
  const pairs: [string, string][] = [];
  for (const sequence of text.split("&")) {
    if (sequence === "") continue;
    const equals = sequence.indexOf("=");
    pairs.push(equals < 0 ? [decodePart(sequence), ""] : [decodePart(sequence.slice(0, equals)), decodePart(sequence.slice(equals + 1))]);
  }
  return pairs;
}

const serializeUrlEncoded = (pairs: readonly (readonly [string, string])[]): string =>
  pairs.map(([name, value]) => `${encodePart(name)}=${encodePart(value)}`).join("&");

/** The kit's way to tie a query to its URL. */
export let linkParams: (params: URLSearchParams, changed: (query: string) => void) => void;
/** Replaces all pairs by those of a new query, without telling the URL. */
export let resetParams: (params: URLSearchParams, query: string) => void;

const text = (value: unknown): string => {
  const made = `${value as string}`;
  return made.isWellFormed() ? made : made.toWellFormed();
};

export class URLSearchParams {
  #pairs: [string, string][] = [];
  #changed: ((query: string) => void) | null = null;

  static {
    linkParams = (params, changed) => {
      params.#changed = changed;
    };
    resetParams = (params, query) => {
      params.#pairs = parseUrlEncoded(query);
    };
  }

  constructor(init: Init = "") {
    if ((typeof init === "object" && init !== null) || typeof init === "function") {
      if (init instanceof URLSearchParams && init[Symbol.iterator] === URLSearchParams.prototype[Symbol.iterator]) {
        this.#pairs = init.#pairs.map(([name, value]) => [name, value]);
      } else if (typeof (init as Partial<Iterable<unknown>>)[Symbol.iterator] === "function") {
        for (const entry of init as Iterable<Iterable<string>>) {
          if ((typeof entry !== "object" && typeof entry !== "function") || entry === null)
            throw new TypeError("Each query pair must be a sequence.");
          const pair = [...entry];
          if (pair.length !== 2) throw new TypeError("Each query pair must have a name and a value.");
          this.#pairs.push([text(pair[0]), text(pair[1])]);
        }
      } else {
        const record = new Map<string, string>();
        for (const key of Reflect.ownKeys(init)) {
          if (!Object.getOwnPropertyDescriptor(init, key)?.enumerable) continue;
          if (typeof key === "symbol") throw new TypeError("A query name must be a string.");
          record.set(text(key), text((init as Record<string, string>)[key]));
        }
        this.#pairs = [...record];
      }
      return;
    }
    const query = text(init);
    this.#pairs = parseUrlEncoded(query[0] === "?" ? query.slice(1) : query);
  }

  get size(): number {
    return this.#pairs.length;
  }

  append(name: string, value: string): void {
    need(arguments.length, 2);
    this.#pairs.push([text(name), text(value)]);
    this.#tell();
  }

  delete(name: string, value?: string): void {
    need(arguments.length, 1);
    const wanted = text(name);
    const only = value === undefined ? null : text(value);
    this.#pairs = this.#pairs.filter((pair) => pair[0] !== wanted || (only !== null && pair[1] !== only));
    this.#tell();
  }

  get(name: string): string | null {
    need(arguments.length, 1);
    const wanted = text(name);
    for (const pair of this.#pairs) if (pair[0] === wanted) return pair[1];
    return null;
  }

  getAll(name: string): string[] {
    need(arguments.length, 1);
    const wanted = text(name);
    return this.#pairs.filter((pair) => pair[0] === wanted).map((pair) => pair[1]);
  }

  has(name: string, value?: string): boolean {
    need(arguments.length, 1);
    const wanted = text(name);
    const only = value === undefined ? null : text(value);
    return this.#pairs.some((pair) => pair[0] === wanted && (only === null || pair[1] === only));
  }

  set(name: string, value: string): void {
    need(arguments.length, 2);
    const wanted = text(name);
    const content = text(value);
    const at = this.#pairs.findIndex((pair) => pair[0] === wanted);
    if (at < 0) this.#pairs.push([wanted, content]);
    else {
      this.#pairs = this.#pairs.filter((pair, index) => index <= at || pair[0] !== wanted);
      this.#pairs[at] = [wanted, content];
    }
    this.#tell();
  }

  sort(): void {
    this.#pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    this.#tell();
  }

  forEach(callback: (value: string, name: string, parent: URLSearchParams) => void, thisArgument?: unknown): void {
    if (typeof callback !== "function") throw new TypeError("URLSearchParams.forEach needs a function.");
    for (const [name, value] of this) callback.call(thisArgument, value, name, this);
  }

  *entries(): Generator<[string, string], undefined, undefined> {
    for (let index = 0; index < this.#pairs.length; index++) yield [...(this.#pairs[index] as [string, string])];
  }

  *keys(): Generator<string, undefined, undefined> {
    for (const [name] of this) yield name;
  }

  *values(): Generator<string, undefined, undefined> {
    for (const [, value] of this) yield value;
  }

  toString(): string {
    return serializeUrlEncoded(this.#pairs);
  }

  get [Symbol.toStringTag](): string {
    return "URLSearchParams";
  }

  #tell(): void {
    this.#changed?.(this.toString());
  }
  declare [Symbol.iterator]: () => Generator<[string, string], undefined, undefined>;
}
Object.defineProperty(URLSearchParams.prototype, Symbol.iterator, {
  value: URLSearchParams.prototype.entries,
  configurable: true,
  writable: true,
});

function need(given: number, wanted: number): void {
  if (given < wanted) throw new TypeError(`${wanted} argument${wanted > 1 ? "s" : ""} required, but only ${given} given.`);
}
