// biome-ignore-all lint/complexity/noArguments: the standards tell a missing argument from an undefined one
/** Request (Fetch §5.4). One that came from the host holds the raw parts and makes headers, signal and body when they are asked for. */
import { type AbortSignal, abortSignal, newSignal, whenAborted } from "./abort.ts";
import { Body, type BodyInit, extractBody } from "./body.ts";
import { type BodyMembers, defineBodyMembers } from "./body-members.ts";
import { DOMException } from "./dom-exception.ts";
import { appendTo, combined, copyFlat, fill, flatOf, guardHeaders, Headers, type HeadersInit, headersOfFlat } from "./headers.ts";
import { jsonStringify, objectCreate, regExpExec, toUpperCase } from "./primordials.ts";
import { normalAddress, type URL } from "./url.ts";

type Redirect = "follow" | "error" | "manual";
export interface RequestInit {
  method?: string;
  headers?: HeadersInit;
  body?: BodyInit | null;
  signal?: AbortSignal | null;
  redirect?: Redirect;
  duplex?: "half";
  cache?: string;
  credentials?: string;
  integrity?: string;
  keepalive?: boolean;
  mode?: string;
  referrer?: string;
  referrerPolicy?: string;
}

/** The raw parts of a request, for fetch. */
interface RequestParts {
  method: string;
  url: string;
  headers: string[];
  redirect: Redirect;
  body: Body;
  signal: AbortSignal | null;
}

const usualMethods: Record<string, true> = Object.assign(Object.create(null), {
  GET: true,
  HEAD: true,
  POST: true,
  PUT: true,
  PATCH: true,
  DELETE: true,
  OPTIONS: true,
});

/** DELETE, GET, HEAD, OPTIONS, POST and PUT are normalised; others stay as written (Fetch §2.2.1). */
function normalMethod(given: unknown): string {
  const method = `${given as string}`;
  const upper = toUpperCase(method);
  if (upper === "CONNECT" || upper === "TRACE" || upper === "TRACK") throw new TypeError(`The method ${method} is not allowed.`);
  if (upper in usualMethods) return upper === "PATCH" ? method : upper;
  if (regExpExec(/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/, method) === null) throw new TypeError(`Invalid method: ${jsonStringify(method)}`);
  return method;
}

/** A request as it came from the host. Names in `headers` are lower-case. */
export let requestFromHost: (method: string, url: string, headers: string[], body: Body) => Request;
export let requestParts: (request: Request) => RequestParts;
/** Aborts the signal of a request that came from the host. */
export let abortRequest: (request: Request, reason: unknown) => void;
export let isRequest: (value: unknown) => value is Request;

/** Options that nobody gave have no members, not even inherited ones. */
const noInit = objectCreate(null) as RequestInit;

/** Passed by the kit itself in place of an address. */
const blank = Symbol("blank");

export interface Request extends BodyMembers {}

// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: the members are defined in the static block
export class Request {
  #method = "GET";
  #url = "";
  #flat: string[] | null = null;
  #headers: Headers | null = null;
  #body: Body;
  #signal: AbortSignal | null = null;
  #abortReason: unknown = undefined;
  #redirect: Redirect = "follow";
  #init: RequestInit | null = null;

  static {
    defineBodyMembers(
      Request.prototype,
      (request) => request.#body,
      (request) => request.#contentType(),
    );
    requestFromHost = (method, url, headers, body) => {
      const request = new Request(blank as unknown as string);
      request.#method = method;
      request.#url = url;
      request.#flat = headers;
      request.#body = body;
      return request;
    };
    requestParts = (request) => ({
      method: request.#method,
      url: request.#url,
      headers: request.#headers === null ? (request.#flat ?? []) : flatOf(request.#headers),
      redirect: request.#redirect,
      body: request.#body,
      signal: request.#signal,
    });
    abortRequest = (request, reason) => {
      if (request.#signal === null) request.#abortReason = reason;
      else abortSignal(request.#signal, reason);
    };
    isRequest = (value): value is Request => typeof value === "object" && value !== null && #method in value;
  }

  constructor(input: string | URL | Request, init: RequestInit = noInit) {
    if ((input as unknown) === blank) {
      this.#body = new Body(null, null);
      return;
    }
    if (arguments.length === 0) throw new TypeError("Request needs an address or a request.");
    const from = isRequest(input) ? input : null;
    const given = init ?? noInit;
    this.#url = from === null ? normalAddress(input) : from.#url;
    this.#method = given.method === undefined ? (from === null ? "GET" : from.#method) : normalMethod(given.method);
    const redirect = given.redirect ?? (from === null ? "follow" : from.#redirect);
    if (redirect !== "follow" && redirect !== "error" && redirect !== "manual")
      throw new TypeError(`Unknown redirect mode: ${redirect as string}`);
    this.#redirect = redirect;
    const signal = given.signal === undefined ? (from === null ? null : from.signal) : given.signal;
    if (signal !== null && signal !== undefined) {
      if (typeof signal.throwIfAborted !== "function") throw new TypeError("The signal must be an AbortSignal.");
      const own = newSignal();
      if (signal.aborted) abortSignal(own, signal.reason);
      else whenAborted(signal, () => abortSignal(own, signal.reason));
      this.#signal = own;
    }
    const headers = new Headers();
    guardHeaders(headers, "request");
    if (given.headers !== undefined) fill(headers, given.headers);
    else if (from !== null) fill(headers, from.headers);
    this.#headers = headers;
    if (given.body !== undefined && given.body !== null) {
      this.#requireBodyMethod();
      this.#body = extractBody(given.body);
      if (this.#body.stream !== null && given.duplex !== "half")
        throw new TypeError('A request with a stream as its body needs `duplex: "half"`.');
      if (this.#body.type !== null && combined(flatOf(headers), "content-type") === null)
        appendTo(headers, "content-type", this.#body.type);
    } else if (from !== null && given.body === undefined) {
      if (!from.#body.isEmpty) this.#requireBodyMethod();
      this.#body = from.#body.move();
    } else this.#body = new Body(null, null);
    this.#init = { ...(from === null ? null : from.#init), ...given };
  }

  #requireBodyMethod(): void {
    if (this.#method === "GET" || this.#method === "HEAD") throw new TypeError(`A ${this.#method} request has no body.`);
  }

  get method(): string {
    return this.#method;
  }
  get url(): string {
    return this.#url;
  }
  get headers(): Headers {
    this.#headers ??= headersOfFlat(this.#flat ?? [], "immutable");
    return this.#headers;
  }
  get signal(): AbortSignal {
    if (this.#signal === null) {
      this.#signal = newSignal();
      if (this.#abortReason !== undefined) abortSignal(this.#signal, this.#abortReason);
    }
    return this.#signal;
  }
  get redirect(): Redirect {
    return this.#redirect;
  }
  get cache(): string {
    return this.#init?.cache ?? "default";
  }
  get credentials(): string {
    return this.#init?.credentials ?? "same-origin";
  }
  get destination(): string {
    return "";
  }
  get integrity(): string {
    return this.#init?.integrity ?? "";
  }
  get keepalive(): boolean {
    return Boolean(this.#init?.keepalive);
  }
  get mode(): string {
    return this.#init?.mode ?? "cors";
  }
  get referrer(): string {
    return this.#init?.referrer ?? "about:client";
  }
  get referrerPolicy(): string {
    return this.#init?.referrerPolicy ?? "";
  }
  get duplex(): "half" {
    return "half";
  }
  get isReloadNavigation(): boolean {
    return false;
  }
  get isHistoryNavigation(): boolean {
    return false;
  }

  clone(): Request {
    const copy = new Request(blank as unknown as string);
    copy.#body = this.#body.clone();
    copy.#method = this.#method;
    copy.#url = this.#url;
    copy.#redirect = this.#redirect;
    copy.#init = this.#init;
    const headers = headersOfFlat(copyFlat(flatOf(this.headers)), "request");
    copy.#headers = headers;
    const own = newSignal();
    const { signal } = this;
    if (signal.aborted) abortSignal(own, signal.reason);
    else whenAborted(signal, () => abortSignal(own, signal.reason));
    copy.#signal = own;
    return copy;
  }

  #contentType(): string | null {
    return this.#headers === null ? combined(this.#flat ?? [], "content-type") : combined(flatOf(this.#headers), "content-type");
  }

  get [Symbol.toStringTag](): string {
    return "Request";
  }
}

/** The reason given when a caller goes away or the run is about to end. */
export const abortReason = (reason: string): unknown =>
  reason === "timeout"
    ? new DOMException("The run has reached its time limit.", "TimeoutError")
    : new DOMException("The caller is gone.", "AbortError");
