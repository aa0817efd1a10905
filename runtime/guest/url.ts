// biome-ignore-all lint/complexity/noArguments: the standards tell a missing argument from an undefined one
/**
 * URL (URL standard §6.1). Everyday addresses are taken apart here; every other input, and every setter, is answered by the host's parser, so
 * that hosts (IDNA, IPv4, IPv6), percent-encoding and relative references are exactly the standard's.
 */

import { syncText } from "./host.ts";
import { defineProperty, jsonParse, plainProperty, regExpExec, stringSlice } from "./primordials.ts";
import { linkParams, resetParams, URLSearchParams } from "./url-search-params.ts";
import { wireJson } from "./wire-json.ts";

interface Parts {
  href: string;
  protocol: string;
  username: string;
  password: string;
  hostname: string;
  port: string;
  pathname: string;
  search: string;
  hash: string;
  origin: string;
}

/**
 * An http(s) address that is its own normal form: lower-case host of letters, digits and hyphens whose last label begins with a letter and has no
 * `xn--`, a path and query of characters that are never escaped. Dot segments and default ports are sorted out after the match.
 */
const plain =
  /^(https?:)\/\/((?:[a-z0-9-]+\.)*[a-z][a-z0-9-]*)(?::([1-9][0-9]{0,3}))?(\/[\w\-.~!$&'()*+,;=:@%/]*)?(\?[\w\-.~!$&()*+,;=:@%/?]*)?(#[\w\-.~!$&'()*+,;=:@%/?]*)?$/;
const irregular = /xn--|\/\.|%2e/i;

function parsePlain(input: string): Parts | null {
  if (input.length > 2048) return null;
  const found = regExpExec(plain, input);
  if (found === null || regExpExec(irregular, input) !== null) return null;
  const protocol = found[1] as string;
  const hostname = found[2] as string;
  const port = found[3] ?? "";
  if (port === (protocol === "http:" ? "80" : "443")) return null;
  const pathname = found[4] ?? "/";
  const search = found[5] ?? "";
  const hash = found[6] ?? "";
  const origin = `${protocol}//${hostname}${port === "" ? "" : `:${port}`}`;
  const href = `${origin}${pathname}${search}${hash}`;
  return {
    href,
    protocol,
    username: "",
    password: "",
    hostname,
    port,
    pathname,
    search: search === "?" ? "" : search,
    hash: hash === "#" ? "" : hash,
    origin,
  };
}

/** The host's answer, a JSON list in the order of `Parts`; null when the input is no URL. */
function parseByHost(op: string, argument: readonly unknown[]): Parts | null {
  const answer = syncText(op, wireJson(argument));
  if (answer === "") return null;
  const list = jsonParse(answer) as string[];
  return {
    href: list[0],
    protocol: list[1],
    username: list[2],
    password: list[3],
    hostname: list[4],
    port: list[5],
    pathname: list[6],
    search: list[7],
    hash: list[8],
    origin: list[9],
  } as Parts;
}

function parse(url: unknown, base: unknown): Parts | null {
  const input = `${url as string}`;
  if (base === undefined) return parsePlain(input) ?? parseByHost("url.parse", [input]);
  const against = `${base as string}`;
  // A path against a plain address needs no crossing either.
  if (input[0] === "/" && input[1] !== "/") {
    const from = parsePlain(against);
    const joined = from === null ? null : parsePlain(from.origin + input);
    if (joined !== null) return joined;
  }
  return parseByHost("url.parse", [input, against]);
}

const invalid = (input: unknown): TypeError => new TypeError(`Invalid URL: ${stringSlice(`${input as string}`, 0, 200)}`);

export class URL {
  #parts: Parts;
  #params: URLSearchParams | null = null;

  constructor(url: string | URL, base?: string | URL) {
    if (arguments.length === 0) throw new TypeError("URL needs an address.");
    const parts = parse(url, base);
    if (parts === null) {
      throw defineProperty(invalid(url), "code", plainProperty("ERR_INVALID_URL", true));
    }
    this.#parts = parts;
  }

  static canParse(url: string | URL, base?: string | URL): boolean {
    return parse(url, base) !== null;
  }

  static parse(url: string | URL, base?: string | URL): URL | null {
    const parts = parse(url, base);
    return parts === null ? null : new URL(parts.href);
  }

  get href(): string {
    return this.#parts.href;
  }
  set href(value: string) {
    const parts = parse(value, undefined);
    if (parts === null) throw invalid(value);
    this.#replace(parts);
  }
  get origin(): string {
    return this.#parts.origin;
  }
  get protocol(): string {
    return this.#parts.protocol;
  }
  set protocol(value: string) {
    this.#set("protocol", value);
  }
  get username(): string {
    return this.#parts.username;
  }
  set username(value: string) {
    this.#set("username", value);
  }
  get password(): string {
    return this.#parts.password;
  }
  set password(value: string) {
    this.#set("password", value);
  }
  get host(): string {
    const { hostname, port } = this.#parts;
    return port === "" ? hostname : `${hostname}:${port}`;
  }
  set host(value: string) {
    this.#set("host", value);
  }
  get hostname(): string {
    return this.#parts.hostname;
  }
  set hostname(value: string) {
    this.#set("hostname", value);
  }
  get port(): string {
    return this.#parts.port;
  }
  set port(value: string) {
    this.#set("port", value);
  }
  get pathname(): string {
    return this.#parts.pathname;
  }
  set pathname(value: string) {
    this.#set("pathname", value);
  }
  get search(): string {
    return this.#parts.search;
  }
  set search(value: string) {
    this.#set("search", value);
  }
  get hash(): string {
    return this.#parts.hash;
  }
  set hash(value: string) {
    this.#set("hash", value);
  }

  get searchParams(): URLSearchParams {
    if (this.#params === null) {
      this.#params = new URLSearchParams(this.#parts.search);
      linkParams(this.#params, (query) => {
        this.#parts = parseByHost("url.set", [this.#parts.href, "search", query]) ?? this.#parts;
      });
    }
    return this.#params;
  }

  toString(): string {
    return this.#parts.href;
  }
  toJSON(): string {
    return this.#parts.href;
  }
  get [Symbol.toStringTag](): string {
    return "URL";
  }

  #set(part: string, value: unknown): void {
    const parts = parseByHost("url.set", [this.#parts.href, part, `${value as string}`]);
    if (parts !== null) this.#replace(parts);
  }

  #replace(parts: Parts): void {
    this.#parts = parts;
    if (this.#params !== null) resetParams(this.#params, stringSlice(parts.search, 1));
  }
}

/** The normal form of an address, for `new Request`; throws a TypeError when it is none or carries credentials. */
export function normalAddress(input: unknown, base?: string): string {
  const parts = parse(input, base);
  if (parts === null) throw invalid(input);
  if (parts.username !== "" || parts.password !== "")
    throw new TypeError("An address with a user name or password cannot be requested: use an Authorization header.");
  return parts.href;
}
