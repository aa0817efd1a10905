/** FormData (XHR §4) and its two wire formats, multipart/form-data (RFC 7578 as HTML writes it) and urlencoded. */
import { Blob, bytesOfBlob, File } from "./blob.ts";
import { parseMediaType } from "./headers.ts";
import { randomBytes } from "./random.ts";
import { parseUrlEncoded } from "./url-search-params.ts";
import { concatBytes, decodeUtf8, encodeUtf8 } from "./utf8.ts";

type Bytes = Uint8Array<ArrayBuffer>;
type Value = string | File;

/** The entries behind a FormData, for the kit. */
let entriesOf: (form: FormData) => [string, Value][];

export class FormData {
  #entries: [string, Value][] = [];

  static {
    entriesOf = (form) => form.#entries;
  }

  constructor(form?: undefined) {
    if (form !== undefined) throw new TypeError("There are no HTML forms here: FormData takes no argument.");
  }

  append(name: string, value: string | Blob, filename?: string): void {
    this.#entries.push([`${name}`.toWellFormed(), entryValue(value, filename)]);
  }

  delete(name: string): void {
    this.#entries = this.#entries.filter((entry) => entry[0] !== `${name}`);
  }

  get(name: string): Value | null {
    return this.#entries.find((entry) => entry[0] === `${name}`)?.[1] ?? null;
  }

  getAll(name: string): Value[] {
    return this.#entries.filter((entry) => entry[0] === `${name}`).map((entry) => entry[1]);
  }

  has(name: string): boolean {
    return this.#entries.some((entry) => entry[0] === `${name}`);
  }

  set(name: string, value: string | Blob, filename?: string): void {
    const entry: [string, Value] = [`${name}`.toWellFormed(), entryValue(value, filename)];
    const at = this.#entries.findIndex(([other]) => other === entry[0]);
    if (at < 0) this.#entries.push(entry);
    else {
      this.#entries = this.#entries.filter(([other], index) => index <= at || other !== entry[0]);
      this.#entries[at] = entry;
    }
  }

  forEach(callback: (value: Value, name: string, parent: FormData) => void, thisArgument?: unknown): void {
    for (const [name, value] of this) callback.call(thisArgument, value, name, this);
  }

  *entries(): Generator<[string, Value], undefined, undefined> {
    for (let index = 0; index < this.#entries.length; index++) yield [...(this.#entries[index] as [string, Value])];
  }

  *keys(): Generator<string, undefined, undefined> {
    for (const [name] of this) yield name;
  }

  *values(): Generator<Value, undefined, undefined> {
    for (const [, value] of this) yield value;
  }

  get [Symbol.toStringTag](): string {
    return "FormData";
  }
  declare [Symbol.iterator]: () => Generator<[string, Value], undefined, undefined>;
}
Object.defineProperty(FormData.prototype, Symbol.iterator, { value: FormData.prototype.entries, configurable: true, writable: true });

function entryValue(value: string | Blob, filename: string | undefined): Value {
  if (!(value instanceof Blob)) {
    if (filename !== undefined) throw new TypeError("A file name needs a Blob or File as the value.");
    return `${value}`.toWellFormed();
  }
  if (value instanceof File && filename === undefined) return value;
  return new File([value], filename === undefined ? "blob" : `${filename}`, {
    type: value.type,
    ...(value instanceof File ? { lastModified: value.lastModified } : {}),
  });
}

const escapeName = (name: string) => name.replace(/\r\n?|\n/g, "%0D%0A").replaceAll('"', "%22");

/** Multipart bytes and the Content-Type with their boundary. */
export function serializeFormData(form: FormData): { bytes: Bytes; type: string } {
  const boundary = `----KapstoneFormBoundary${randomBytes(12).toHex()}`;
  const parts: Bytes[] = [];
  for (const [name, value] of entriesOf(form)) {
    const head = `--${boundary}\r\nContent-Disposition: form-data; name="${escapeName(name)}"`;
    if (typeof value === "string") parts.push(encodeUtf8(`${head}\r\n\r\n${value.replace(/\r\n?|\n/g, "\r\n")}\r\n`));
    else {
      const type = value.type === "" ? "application/octet-stream" : value.type;
      const filename = value.name.replace(/[\r\n"]/g, (character) => (character === '"' ? "%22" : character === "\r" ? "%0D" : "%0A"));
      parts.push(encodeUtf8(`${head}; filename="${filename}"\r\nContent-Type: ${type}\r\n\r\n`), bytesOfBlob(value), encodeUtf8("\r\n"));
    }
  }
  parts.push(encodeUtf8(`--${boundary}--\r\n`));
  const total = parts.reduce((sum, part) => sum + part.length, 0);
  return { bytes: concatBytes(parts, total), type: `multipart/form-data; boundary=${boundary}` };
}

/** The form a body holds, by its Content-Type. Throws a TypeError when it is neither kind or malformed. */
export function parseFormData(bytes: Bytes, contentType: string | null): FormData {
  const media = parseMediaType(contentType);
  const form = new FormData();
  if (media?.essence === "application/x-www-form-urlencoded") {
    for (const [name, value] of parseUrlEncoded(decodeUtf8(bytes))) form.append(name, value);
    return form;
  }
  const boundary = media?.essence === "multipart/form-data" ? media.parameters.boundary : undefined;
  if (boundary === undefined)
    throw new TypeError("The body is no form: its Content-Type is neither multipart/form-data with a boundary nor urlencoded.");
  parseMultipart(bytes, encodeUtf8(`--${boundary}`), form);
  return form;
}

const malformed = () => new TypeError("The multipart body is malformed.");

function parseMultipart(bytes: Bytes, delimiter: Bytes, form: FormData): void {
  let at = indexOfBytes(bytes, delimiter, 0);
  // Anything before the first delimiter is a preamble (RFC 2046 §5.1.1).
  if (at < 0 || (at > 0 && bytes[at - 1] !== 0x0a)) throw malformed();
  for (;;) {
    at += delimiter.length;
    if (bytes[at] === 0x2d && bytes[at + 1] === 0x2d) return;
    while (bytes[at] === 0x20 || bytes[at] === 0x09) at++;
    if (bytes[at] !== 0x0d || bytes[at + 1] !== 0x0a) throw malformed();
    at += 2;
    const headEnd = bytes[at] === 0x0d && bytes[at + 1] === 0x0a ? at : indexOfBytes(bytes, headDelimiter, at);
    if (headEnd < 0) throw malformed();
    const head = partHead(decodeUtf8(bytes.subarray(at, headEnd)));
    const start = headEnd === at ? at + 2 : headEnd + 4;
    const next = indexOfDelimiter(bytes, delimiter, start);
    if (next < 0) throw malformed();
    const content = bytes.subarray(start, next);
    if (head.filename === undefined) form.append(head.name, decodeUtf8(content));
    else form.append(head.name, new File([content], head.filename, { type: head.type }));
    at = next + 2;
  }
}

const headDelimiter = new Uint8Array([0x0d, 0x0a, 0x0d, 0x0a]);

function partHead(text: string): { name: string; filename: string | undefined; type: string } {
  let disposition: string | undefined;
  let type = "text/plain";
  for (const line of text.split("\r\n")) {
    const colon = line.indexOf(":");
    const key = line.slice(0, colon).trim().toLowerCase();
    if (key === "content-disposition") disposition = line.slice(colon + 1).trim();
    else if (key === "content-type") type = line.slice(colon + 1).trim();
  }
  if (disposition === undefined || !/^form-data\s*;/i.test(disposition)) throw malformed();
  const parameter = (name: string) => {
    const found = new RegExp(`;\\s*${name}=(?:"([^"]*)"|([^;\\s]*))`, "i").exec(disposition as string);
    const value = found?.[1] ?? found?.[2];
    return value?.replace(/%(0A|0D|22)/gi, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
  };
  const name = parameter("name");
  if (name === undefined) throw malformed();
  const filename = parameter("filename");
  return { name, filename, type };
}

/** Where a CRLF followed by the delimiter begins, from `from` on; an empty part's delimiter may follow at once. */
function indexOfDelimiter(bytes: Bytes, delimiter: Bytes, from: number): number {
  for (let at = from; ; at++) {
    at = indexOfBytes(bytes, delimiter, at);
    if (at < 0) return -1;
    if (bytes[at - 2] === 0x0d && bytes[at - 1] === 0x0a) return Math.max(at - 2, from - 2);
  }
}

function indexOfBytes(bytes: Bytes, wanted: Bytes, from: number): number {
  const first = wanted[0] as number;
  const last = bytes.length - wanted.length;
  for (let at = bytes.indexOf(first, from); at >= 0 && at <= last; at = bytes.indexOf(first, at + 1)) {
    let index = 1;
    while (index < wanted.length && bytes[at + index] === wanted[index]) index++;
    if (index === wanted.length) return at;
  }
  return -1;
}
