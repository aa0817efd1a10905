// biome-ignore-all lint/complexity/noArguments: the standards tell a missing argument from an undefined one
/** URLSearchParams and the application/x-www-form-urlencoded format (URL §5, §6). */
import {
  arraySort,
  bytesSubarray,
  decodeComponent,
  fromCharCode,
  getOwnPropertyDescriptor,
  isArray,
  isWellFormed,
  ownKeys,
  parseInteger,
  reflectApply,
  regExpExec,
  stringIndexOf,
  stringSlice,
  toWellFormed,
  U8,
  viewByteLength,
} from "./primordials.ts";
import { decodeUtf8, encodeUtf8 } from "./utf8.ts";

type Init = string | Iterable<Iterable<string>> | Record<string, string>;
type Pair = [name: string, value: string];
const hex = "0123456789ABCDEF";
const hexPair = /^[0-9a-f]{2}$/i;
const plainPart = /^[\w*.-]*$/;

/** Decodes one name or value: `+` is a space, `%XX` a byte, anything else as it stands. */
function decodePart(part: string): string {
  let spaced = part;
  if (stringIndexOf(part, "+") >= 0) {
    spaced = "";
    for (let index = 0; index < part.length; index++) spaced += part[index] === "+" ? " " : part[index];
  }
  if (stringIndexOf(spaced, "%") < 0) return spaced;
  try {
    return decodeComponent(spaced);
  } catch {
    const bytes = encodeUtf8(spaced);
    const total = viewByteLength(bytes);
    const out = new U8(total);
    let length = 0;
    for (let index = 0; index < total; index++) {
      const byte = bytes[index] as number;
      const digits = byte === 0x25 ? fromCharCode(bytes[index + 1] ?? 0, bytes[index + 2] ?? 0) : "";
      const isPair = regExpExec(hexPair, digits) !== null;
      out[length++] = isPair ? parseInteger(digits, 16) : byte;
      if (isPair) index += 2;
    }
    return decodeUtf8(bytesSubarray(out, 0, length));
  }
}

function encodePart(part: string): string {
  if (regExpExec(plainPart, part) !== null) return part;
  const bytes = encodeUtf8(part);
  const total = viewByteLength(bytes);
  let text = "";
  for (let index = 0; index < total; index++) {
    const byte = bytes[index] as number;
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
      text += fromCharCode(byte);
    else text += `%${hex[byte >> 4]}${hex[byte & 15]}`;
  }
  return text;
}

/** The pairs of an urlencoded string. */
export function parseUrlEncoded(text: string): Pair[] {
  const pairs: Pair[] = [];
  for (let start = 0; start <= text.length; ) {
    const found = stringIndexOf(text, "&", start);
    const end = found < 0 ? text.length : found;
    const sequence = stringSlice(text, start, end);
    start = end + 1;
    if (sequence === "") continue;
    const equals = stringIndexOf(sequence, "=");
    const name = decodePart(equals < 0 ? sequence : stringSlice(sequence, 0, equals));
    pairs[pairs.length] = [name, equals < 0 ? "" : decodePart(stringSlice(sequence, equals + 1))];
  }
  return pairs;
}

function serializeUrlEncoded(pairs: readonly Pair[]): string {
  let text = "";
  for (let index = 0; index < pairs.length; index++) {
    const pair = pairs[index] as Pair;
    text += `${index === 0 ? "" : "&"}${encodePart(pair[0])}=${encodePart(pair[1])}`;
  }
  return text;
}

/** The pairs that a rule keeps, as a list of their own. */
function kept(pairs: readonly Pair[], keeps: (pair: Pair, index: number) => boolean): Pair[] {
  const list: Pair[] = [];
  for (let index = 0; index < pairs.length; index++) {
    const pair = pairs[index] as Pair;
    if (keeps(pair, index)) list[list.length] = [pair[0], pair[1]];
  }
  return list;
}

/** The kit's way to tie a query to its URL. */
export let linkParams: (params: URLSearchParams, changed: (query: string) => void) => void;
/** Replaces all pairs by those of a new query, without telling the URL. */
export let resetParams: (params: URLSearchParams, query: string) => void;

const text = (value: unknown): string => {
  const made = `${value as string}`;
  return isWellFormed(made) ? made : toWellFormed(made);
};

export class URLSearchParams {
  #pairs: Pair[] = [];
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
      if (#pairs in init && init[Symbol.iterator] === URLSearchParams.prototype[Symbol.iterator])
        this.#pairs = kept(init.#pairs, () => true);
      else if (typeof (init as Partial<Iterable<unknown>>)[Symbol.iterator] === "function")
        this.#addAll(init as Iterable<Iterable<string>>);
      else this.#addRecord(init as Record<string, string>);
      return;
    }
    const query = text(init);
    this.#pairs = parseUrlEncoded(query[0] === "?" ? stringSlice(query, 1) : query);
  }

  #add(name: string, value: string): void {
    this.#pairs[this.#pairs.length] = [name, value];
  }

  /** What the program iterates over is its own affair, as are its iterators. */
  #addAll(entries: Iterable<Iterable<string>>): void {
    for (const entry of entries) {
      if ((typeof entry !== "object" && typeof entry !== "function") || entry === null)
        throw new TypeError("Each query pair must be a sequence.");
      const pair = isArray(entry) ? (entry as string[]) : [...entry];
      if (pair.length !== 2) throw new TypeError("Each query pair must have a name and a value.");
      this.#add(text(pair[0]), text(pair[1]));
    }
  }

  #addRecord(record: Record<string, string>): void {
    const keys = ownKeys(record);
    for (let index = 0; index < keys.length; index++) {
      const key = keys[index] as string | symbol;
      if (!getOwnPropertyDescriptor(record, key)?.enumerable) continue;
      if (typeof key === "symbol") throw new TypeError("A query name must be a string.");
      const name = text(key);
      const value = text(record[key]);
      // Two keys may become one name by their replacement of lone surrogates: the last value wins, in the first one's place.
      const at = this.#indexOf(name);
      if (at < 0) this.#add(name, value);
      else this.#pairs[at] = [name, value];
    }
  }

  #indexOf(name: string): number {
    for (let index = 0; index < this.#pairs.length; index++) if ((this.#pairs[index] as Pair)[0] === name) return index;
    return -1;
  }

  get size(): number {
    return this.#pairs.length;
  }

  append(name: string, value: string): void {
    need(arguments.length, 2);
    this.#add(text(name), text(value));
    this.#tell();
  }

  delete(name: string, value?: string): void {
    need(arguments.length, 1);
    const wanted = text(name);
    const only = value === undefined ? null : text(value);
    this.#pairs = kept(this.#pairs, (pair) => pair[0] !== wanted || (only !== null && pair[1] !== only));
    this.#tell();
  }

  get(name: string): string | null {
    need(arguments.length, 1);
    const at = this.#indexOf(text(name));
    return at < 0 ? null : (this.#pairs[at] as Pair)[1];
  }

  getAll(name: string): string[] {
    need(arguments.length, 1);
    const wanted = text(name);
    const values: string[] = [];
    for (let index = 0; index < this.#pairs.length; index++) {
      const pair = this.#pairs[index] as Pair;
      if (pair[0] === wanted) values[values.length] = pair[1];
    }
    return values;
  }

  has(name: string, value?: string): boolean {
    need(arguments.length, 1);
    const wanted = text(name);
    const only = value === undefined ? null : text(value);
    return kept(this.#pairs, (pair) => pair[0] === wanted && (only === null || pair[1] === only)).length > 0;
  }

  set(name: string, value: string): void {
    need(arguments.length, 2);
    const wanted = text(name);
    const content = text(value);
    const at = this.#indexOf(wanted);
    if (at < 0) this.#add(wanted, content);
    else {
      this.#pairs = kept(this.#pairs, (pair, index) => index <= at || pair[0] !== wanted);
      this.#pairs[at] = [wanted, content];
    }
    this.#tell();
  }

  sort(): void {
    arraySort(this.#pairs, (a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0));
    this.#tell();
  }

  forEach(callback: (value: string, name: string, parent: URLSearchParams) => void, thisArgument?: unknown): void {
    if (typeof callback !== "function") throw new TypeError("URLSearchParams.forEach needs a function.");
    for (let index = 0; index < this.#pairs.length; index++) {
      const pair = this.#pairs[index] as Pair;
      reflectApply(callback, thisArgument, [pair[1], pair[0], this]);
    }
  }

  *entries(): Generator<Pair, undefined, undefined> {
    for (let index = 0; index < this.#pairs.length; index++) {
      const pair = this.#pairs[index] as Pair;
      yield [pair[0], pair[1]];
    }
  }

  *keys(): Generator<string, undefined, undefined> {
    for (let index = 0; index < this.#pairs.length; index++) yield (this.#pairs[index] as Pair)[0];
  }

  *values(): Generator<string, undefined, undefined> {
    for (let index = 0; index < this.#pairs.length; index++) yield (this.#pairs[index] as Pair)[1];
  }

  toString(): string {
    return serializeUrlEncoded(this.#pairs);
  }

  get [Symbol.toStringTag](): string {
    return "URLSearchParams";
  }

  #tell(): void {
    this.#changed?.(serializeUrlEncoded(this.#pairs));
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
