/** Response (Fetch §5.5). A text, JSON or byte body goes to the host in one crossing; headers exist only when somebody names one. */
import { Body, type BodyInit, completeBody, extractBody } from "./body.ts";
import { type BodyMembers, defineBodyMembers } from "./body-members.ts";
import { appendTo, combined, copyFlat, fill, flatJson, flatOf, guardHeaders, Headers, type HeadersInit, headersOfFlat } from "./headers.ts";
import { host } from "./host.ts";
import { jsonStringify, regExpExec } from "./primordials.ts";
import { normalAddress, type URL } from "./url.ts";

export interface ResponseInit {
  status?: number;
  statusText?: string;
  headers?: HeadersInit;
}

/** What the host answers to fetch and store.get. Names in `headers` are lower-case. */
export interface HostResponse {
  status: number;
  statusText?: string;
  headers: string[];
  url?: string;
  redirected?: boolean;
}

export let isResponse: (value: unknown) => value is Response;
export let responseFromHost: (head: HostResponse, body: Body) => Response;
/**
 * Hands a complete response to the host, which takes the run as done when `isLast`; gives back the body when it has to be streamed instead, its
 * head sent already.
 */
export let sendHead: (runKey: number, response: Response, isLast: boolean) => Body | null;
/** The body of a response that goes to the store, its Content-Type included; the response counts as used then. */
export let moveBody: (response: Response) => { body: Body; type: string | null };

const nullBodyStatus = (status: number) => status === 101 || status === 103 || status === 204 || status === 205 || status === 304;
const noHeaders = "[]";
const textHeaders = '["content-type","text/plain;charset=UTF-8"]';
const jsonHeaders = '["content-type","application/json"]';

const emptyBody = Symbol("empty");

export interface Response extends BodyMembers {}

// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: the members are defined in the static block
export class Response {
  #status = 200;
  #statusText = "";
  #headers: Headers | null = null;
  #body: Body;
  #type: "default" | "error" | "basic" = "default";
  #url = "";
  #redirected = false;

  static {
    defineBodyMembers(
      Response.prototype,
      (response) => response.#body,
      (response) => response.#contentType(),
    );
    isResponse = (value): value is Response => typeof value === "object" && value !== null && #status in value;
    responseFromHost = (head, body) => {
      const response = new Response(emptyBody as unknown as null);
      response.#status = head.status;
      response.#statusText = head.statusText ?? "";
      response.#headers = headersOfFlat(head.headers, "immutable");
      response.#body = body;
      response.#type = "basic";
      response.#url = head.url ?? "";
      response.#redirected = head.redirected ?? false;
      return response;
    };
    sendHead = (runKey, response, isLast) => {
      const body = response.#body;
      if (response.#type === "error") throw new TypeError("A network error (Response.error()) cannot be sent to the caller.");
      body.claim();
      const headers = response.#headersJson();
      const complete = completeBody(body);
      if (complete === undefined && !body.isEmpty) {
        host.respond(runKey, response.#status, headers, undefined, true, false);
        return body;
      }
      if (!body.isEmpty) body.used = true;
      host.respond(runKey, response.#status, headers, complete, false, isLast);
      return null;
    };
    moveBody = (response) => ({ type: response.#contentType(), body: response.#body.move() });
  }

  constructor(body: BodyInit | null = null, init: ResponseInit | undefined = undefined) {
    if (typeof body === "string") this.#body = extractBody(body);
    else if ((body as unknown) === emptyBody || body === null || body === undefined) this.#body = new Body(null, null);
    else this.#body = extractBody(body);
    if (init !== undefined && init !== null) this.#initialize(init);
  }

  #initialize(init: ResponseInit): void {
    const { status, statusText, headers } = init;
    if (status !== undefined) {
      const code = Number(status) | 0;
      if (code < 200 || code > 599) throw new RangeError(`A status must be from 200 to 599, not ${code}.`);
      if (nullBodyStatus(code) && !this.#body.isEmpty) throw new TypeError(`A response of status ${code} has no body.`);
      this.#status = code;
    }
    if (statusText !== undefined) {
      const text = `${statusText}`;
      if (regExpExec(/^[\t\x20-\x7e\x80-\xff]*$/, text) === null) throw new TypeError("Invalid status text.");
      this.#statusText = text;
    }
    if (headers !== undefined) {
      const own = new Headers();
      guardHeaders(own, "response");
      fill(own, headers);
      if (this.#body.type !== null && combined(flatOf(own), "content-type") === null) appendTo(own, "content-type", this.#body.type);
      this.#headers = own;
    }
  }

  /** The headers as the host wants them, without making a Headers object for the usual cases. */
  #headersJson(): string {
    if (this.#headers !== null) return flatJson(flatOf(this.#headers));
    const { type } = this.#body;
    if (type === null) return noHeaders;
    if (type === "text/plain;charset=UTF-8") return textHeaders;
    return type === "application/json" ? jsonHeaders : flatJson(["content-type", type]);
  }

  static json(data: unknown, init?: ResponseInit): Response {
    const text = jsonStringify(data) as string | undefined;
    if (text === undefined) throw new TypeError("The value has no JSON form.");
    const response = new Response(emptyBody as unknown as null);
    response.#body = new Body(text, "application/json");
    if (init !== undefined && init !== null) response.#initialize(init);
    return response;
  }

  static redirect(url: string | URL, status = 302): Response {
    const location = normalAddress(url);
    if (status !== 301 && status !== 302 && status !== 303 && status !== 307 && status !== 308)
      throw new RangeError(`Not a redirect status: ${status}`);
    const response = new Response(null);
    response.#status = status;
    response.#headers = headersOfFlat(["location", location], "immutable");
    return response;
  }

  static error(): Response {
    const response = new Response(null);
    response.#type = "error";
    response.#status = 0;
    response.#headers = headersOfFlat([], "immutable");
    return response;
  }

  #contentType(): string | null {
    return this.#headers === null ? this.#body.type : combined(flatOf(this.#headers), "content-type");
  }

  get status(): number {
    return this.#status;
  }
  get statusText(): string {
    return this.#statusText;
  }
  get ok(): boolean {
    return this.#status >= 200 && this.#status <= 299;
  }
  get type(): string {
    return this.#type;
  }
  get url(): string {
    return this.#url;
  }
  get redirected(): boolean {
    return this.#redirected;
  }
  get headers(): Headers {
    if (this.#headers === null) {
      const { type } = this.#body;
      this.#headers = headersOfFlat(type === null ? [] : ["content-type", type], "response");
    }
    return this.#headers;
  }

  clone(): Response {
    const copy = new Response(emptyBody as unknown as null);
    copy.#body = this.#body.clone();
    copy.#status = this.#status;
    copy.#statusText = this.#statusText;
    copy.#type = this.#type;
    copy.#url = this.#url;
    copy.#redirected = this.#redirected;
    if (this.#headers !== null)
      copy.#headers = headersOfFlat(copyFlat(flatOf(this.#headers)), this.#type === "default" ? "response" : "immutable");
    return copy;
  }

  get [Symbol.toStringTag](): string {
    return "Response";
  }
}
