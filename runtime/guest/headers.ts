/** Headers (Fetch §5.2): a flat list of lower-case names and values, sorted and combined only when somebody looks. */
import {
  arraySort,
  charCodeAt,
  fromCharCode,
  getOwnPropertyDescriptor,
  isArray,
  jsonStringify,
  objectCreate,
  ownKeys,
  reflectApply,
  regExpExec,
  stringIndexOf,
  stringSlice,
  stringTrim,
  toLowerCase,
} from "./primordials.ts";

export type HeadersInit = Headers | Iterable<Iterable<string>> | Record<string, string>;
type Guard = "none" | "request" | "response" | "immutable";

const tokenCharacters: boolean[] = [];
for (let code = 0; code < 128; code++) tokenCharacters[code] = /[!#$%&'*+\-.^_`|~0-9A-Za-z]/.test(fromCharCode(code));

/** Names seen before, with their normal form. Bounded, so that a program inventing names cannot grow it. */
let normalNames = objectCreate(null) as Record<string, string>;
let normalNamesCount = 0;

function normalName(given: unknown): string {
  const name = typeof given === "string" ? given : `${given as string}`;
  const known = normalNames[name];
  if (known !== undefined) return known;
  if (name.length === 0) throw new TypeError("A header name must not be empty.");
  for (let index = 0; index < name.length; index++) {
    if (tokenCharacters[charCodeAt(name, index)] !== true) throw new TypeError(`Invalid header name: ${jsonStringify(name)}`);
  }
  if (++normalNamesCount > 500) {
    normalNames = objectCreate(null);
    normalNamesCount = 1;
  }
  normalNames[name] = toLowerCase(name);
  return normalNames[name];
}

const isEdgeSpace = (code: number) => code === 0x20 || code === 0x09 || code === 0x0a || code === 0x0d;

function normalValue(given: unknown, name: string): string {
  const value = typeof given === "string" ? given : `${given as string}`;
  let start = 0;
  let end = value.length;
  while (start < end && isEdgeSpace(charCodeAt(value, start))) start++;
  while (end > start && isEdgeSpace(charCodeAt(value, end - 1))) end--;
  for (let index = start; index < end; index++) {
    const code = charCodeAt(value, index);
    if (code === 0 || code === 0x0a || code === 0x0d || code > 0xff) throw new TypeError(`Invalid value of the header ${name}.`);
  }
  return start === 0 && end === value.length ? value : stringSlice(value, start, end);
}

/** Names a request may not set (Fetch §2.2.2): the ones that would change the message's framing or the connection. */
const forbiddenRequestNames: Record<string, true> = Object.assign(objectCreate(null), {
  connection: true,
  "content-length": true,
  host: true,
  "keep-alive": true,
  te: true,
  trailer: true,
  "transfer-encoding": true,
  upgrade: true,
  expect: true,
});

/** The kit's way to the list behind a Headers object. */
export let flatOf: (headers: Headers) => string[];
/** `append`, whatever a program has put in its place. */
export let appendTo: (headers: Headers, name: string, value: string) => void;
let isHeaders: (value: unknown) => value is Headers;
export let guardHeaders: (headers: Headers, guard: Guard) => void;
/** A Headers object over a list whose names are lower-case already; the list is taken, not copied. */
export let headersOfFlat: (flat: string[], guard: Guard) => Headers;

export class Headers {
  /** name, value, name, value, … in the order given. */
  #flat: string[] = [];
  #guard: Guard = "none";

  constructor(init?: HeadersInit) {
    if (init !== undefined) fill(this, init);
  }

  append(name: string, value: string): void {
    appendTo(this, name, value);
  }

  delete(name: string): void {
    const normal = normalName(name);
    if (this.#isRefused(normal)) return;
    this.#remove(normal, 0);
  }

  get(name: string): string | null {
    return combined(this.#flat, normalName(name));
  }

  getSetCookie(): string[] {
    const values: string[] = [];
    const flat = this.#flat;
    for (let index = 0; index < flat.length; index += 2)
      if (flat[index] === "set-cookie") values[values.length] = flat[index + 1] as string;
    return values;
  }

  has(name: string): boolean {
    return indexOfName(this.#flat, normalName(name)) >= 0;
  }

  set(name: string, value: string): void {
    const normal = normalName(name);
    const content = normalValue(value, normal);
    if (this.#isRefused(normal)) return;
    const at = indexOfName(this.#flat, normal);
    if (at < 0) push(this.#flat, normal, content);
    else {
      this.#flat[at + 1] = content;
      this.#remove(normal, at + 2);
    }
  }

  forEach(callback: (value: string, name: string, parent: Headers) => void, thisArgument?: unknown): void {
    if (typeof callback !== "function") throw new TypeError("Headers.forEach needs a function.");
    for (let index = 0; ; index++) {
      const pair = sorted(this.#flat)[index];
      if (pair === undefined) return;
      reflectApply(callback, thisArgument, [pair[1], pair[0], this]);
    }
  }

  *entries(): Generator<[string, string], undefined, undefined> {
    // Sorted at each step, so that a change during the walk is seen as the standard says.
    for (let index = 0; ; index++) {
      const pair = sorted(this.#flat)[index];
      if (pair === undefined) return;
      yield pair;
    }
  }

  *keys(): Generator<string, undefined, undefined> {
    for (let index = 0; ; index++) {
      const pair = sorted(this.#flat)[index];
      if (pair === undefined) return;
      yield pair[0];
    }
  }

  *values(): Generator<string, undefined, undefined> {
    for (let index = 0; ; index++) {
      const pair = sorted(this.#flat)[index];
      if (pair === undefined) return;
      yield pair[1];
    }
  }

  get [Symbol.toStringTag](): string {
    return "Headers";
  }

  #isRefused(name: string): boolean {
    if (this.#guard === "none" || this.#guard === "response") return false;
    if (this.#guard === "immutable") throw new TypeError("These headers are immutable.");
    return name in forbiddenRequestNames;
  }

  #remove(name: string, from: number): void {
    const flat = this.#flat;
    let kept = from;
    for (let index = from; index < flat.length; index += 2) {
      if (flat[index] === name) continue;
      flat[kept] = flat[index] as string;
      flat[kept + 1] = flat[index + 1] as string;
      kept += 2;
    }
    flat.length = kept;
  }

  static {
    flatOf = (headers) => headers.#flat;
    appendTo = (headers, name, value) => {
      const normal = normalName(name);
      const content = normalValue(value, normal);
      if (!headers.#isRefused(normal)) push(headers.#flat, normal, content);
    };
    isHeaders = (value): value is Headers => typeof value === "object" && value !== null && #flat in value;
    guardHeaders = (headers, guard) => {
      headers.#guard = guard;
    };
    headersOfFlat = (flat, guard) => {
      const headers = new Headers();
      headers.#flat = flat;
      headers.#guard = guard;
      return headers;
    };
  }
  declare [Symbol.iterator]: () => Generator<[string, string], undefined, undefined>;
}
Object.defineProperty(Headers.prototype, Symbol.iterator, { value: Headers.prototype.entries, configurable: true, writable: true });

function push(flat: string[], name: string, value: string): void {
  flat[flat.length] = name;
  flat[flat.length] = value;
}

export function copyFlat(flat: readonly string[]): string[] {
  const copy: string[] = [];
  for (let index = 0; index < flat.length; index++) copy[index] = flat[index] as string;
  return copy;
}

function indexOfName(flat: readonly string[], name: string): number {
  for (let index = 0; index < flat.length; index += 2) if (flat[index] === name) return index;
  return -1;
}

/** All values of one (lower-case) name joined by a comma, or null. */
export function combined(flat: readonly string[], name: string): string | null {
  let joined: string | null = null;
  for (let index = 0; index < flat.length; index += 2) {
    if (flat[index] === name) joined = joined === null ? (flat[index + 1] as string) : `${joined}, ${flat[index + 1] as string}`;
  }
  return joined;
}

/** The pairs to iterate: names sorted, values combined, each Set-Cookie on its own (Fetch "sort and combine"). */
function sorted(flat: readonly string[]): [string, string][] {
  const names: string[] = [];
  for (let index = 0; index < flat.length; index += 2) {
    const name = flat[index] as string;
    let at = 0;
    while (at < names.length && names[at] !== name) at++;
    names[at] = name;
  }
  arraySort(names);
  const pairs: [string, string][] = [];
  for (let at = 0; at < names.length; at++) {
    const name = names[at] as string;
    if (name !== "set-cookie") pairs[pairs.length] = [name, combined(flat, name) as string];
    else
      for (let index = 0; index < flat.length; index += 2)
        if (flat[index] === name) pairs[pairs.length] = [name, flat[index + 1] as string];
  }
  return pairs;
}

/** Appends what a HeadersInit holds. */
export function fill(headers: Headers, init: HeadersInit): void {
  if ((typeof init !== "object" && typeof init !== "function") || init === null)
    throw new TypeError("Headers must be an object or a list of pairs.");
  if (isHeaders(init) && init[Symbol.iterator] === Headers.prototype[Symbol.iterator]) {
    const from = flatOf(init);
    for (let index = 0; index < from.length; index += 2) appendTo(headers, from[index] as string, from[index + 1] as string);
    return;
  }
  const iterate = (init as Partial<Iterable<Iterable<string>>>)[Symbol.iterator];
  if (iterate !== undefined && iterate !== null) {
    for (const entry of init as Iterable<Iterable<string>>) {
      const pair = isArray(entry) ? (entry as string[]) : [...entry];
      if (pair.length !== 2) throw new TypeError("Each header must be a pair of name and value.");
      appendTo(headers, pair[0] as string, pair[1] as string);
    }
    return;
  }
  const record = init as Record<string, string>;
  const keys = ownKeys(record);
  for (let index = 0; index < keys.length; index++) {
    const key = keys[index] as string | symbol;
    if (getOwnPropertyDescriptor(record, key)?.enumerable !== true) continue;
    if (typeof key === "symbol") throw new TypeError("A header name must be a string.");
    appendTo(headers, key, record[key] as string);
  }
}

/** The list as JSON text, made by hand so that no `toJSON` is ever asked. */
export function flatJson(flat: readonly string[]): string {
  let json = "[";
  for (let index = 0; index < flat.length; index++) {
    const text = flat[index] as string;
    // Only a primitive string passes: anything else would reach JSON.stringify as an object.
    json += `${index === 0 ? "" : ","}${jsonStringify(typeof text === "string" ? text : "")}`;
  }
  return `${json}]`;
}

/** A quoted string without its backslashes. */
function unquoted(text: string): string {
  let plain = "";
  for (let index = 0; index < text.length; index++) {
    if (text[index] === "\\" && index + 1 < text.length) index++;
    plain += text[index];
  }
  return plain;
}

/** The media type and its parameters of a Content-Type value; names lower-case, quotes removed. Null when there is none. */
export function parseMediaType(value: string | null): { essence: string; parameters: Record<string, string> } | null {
  if (value === null) return null;
  const semicolon = stringIndexOf(value, ";");
  const essence = stringTrim(toLowerCase(stringSlice(value, 0, semicolon < 0 ? undefined : semicolon)));
  if (regExpExec(/^[^\s/]+\/[^\s/]+$/, essence) === null) return null;
  const parameters = objectCreate(null) as Record<string, string>;
  if (semicolon >= 0) {
    const parameter = /;\s*([^\s=;]+)=(?:"((?:[^"\\]|\\.)*)"|([^;]*))/g;
    const rest = stringSlice(value, semicolon);
    for (let found = regExpExec(parameter, rest); found !== null; found = regExpExec(parameter, rest)) {
      const key = toLowerCase(found[1] as string);
      if (!(key in parameters)) parameters[key] = found[2] === undefined ? stringTrim(found[3] as string) : unquoted(found[2]);
    }
  }
  return { essence, parameters };
}
