import { isIP } from "node:net";
import type * as Undici from "undici";
import type { KapLimits } from "#platform/assignment.ts";
import {
  type AllowedHosts,
  allowedHosts,
  checkTarget,
  EgressRefused,
  guardedLookup,
  isPublicAddress,
  type Resolver,
} from "./egress-guard.ts";
import { type HostAnswer, type HostCall, HostRefusal, type RunAccount } from "./host-call.ts";
import { HostStreams, type PulledBody, PushedBody } from "./host-streams.ts";

const connectTimeoutMs = 10_000;
const connectionsAnOrigin = 16;
/** Answers that say they are this small come whole with their head, which saves the program two crossings. */
const wholeBytes = 64 * 1024;
const userAgent = "Kapstone";

interface FetchInput {
  streamId: number;
  method: string;
  url: string;
  headers: string[];
  redirect: "follow" | "manual" | "error";
  bodyKind: "none" | "full" | "stream";
  text?: string;
}

type Loaded = { undici: typeof Undici; dispatcher: Undici.Agent };

/** Outward fetch on behalf of programs: undici's, on connections that are checked where they lead when they are made, redirects included. */
export class OutwardFetch {
  readonly #allowed: AllowedHosts;
  readonly #resolver: Resolver | undefined;
  readonly #streams = new HostStreams();
  readonly #aborts = new Map<string, AbortController>();
  #loaded: Promise<Loaded> | null = null;

  /** `resolver` replaces the system's name resolution, for tests of what a name may resolve to. */
  constructor(egressAllow: string[], resolver?: Resolver) {
    this.#allowed = allowedHosts(egressAllow);
    this.#resolver = resolver;
  }

  #ready(): Promise<Loaded> {
    this.#loaded ??= this.#load();
    return this.#loaded;
  }

  /** undici is large; a kap that never fetches does not pay for it. */
  async #load(): Promise<Loaded> {
    // A CommonJS module: bundled into one file it has only its default export.
    const { default: undici } = (await import("undici")) as unknown as { default: typeof Undici };
    const connectors = new Map<number, Undici.buildConnector.connector>();
    const dispatcher = new undici.Agent({
      connections: connectionsAnOrigin,
      pipelining: 1,
      allowH2: false,
      maxHeaderSize: 64 * 1024,
      connect: (options, callback) => {
        const port = options.port ? Number(options.port) : options.protocol === "https:" ? 443 : 80;
        const host = options.hostname.replace(/^\[|\]$/g, "");
        // A literal address is connected to without a lookup: this is its check, on every redirect too.
        if (isIP(host) !== 0 && !isPublicAddress(host) && !this.#allowed.has(`${host.toLowerCase()}:${port}`))
          return callback(new EgressRefused(host), null);
        let connector = connectors.get(port);
        if (!connector) {
          connector = undici.buildConnector({
            timeout: connectTimeoutMs,
            allowH2: false,
            lookup: guardedLookup(port, this.#allowed, this.#resolver),
          });
          connectors.set(port, connector);
        }
        connector(options, callback);
      },
    });
    return { undici, dispatcher };
  }

  call(call: HostCall, limits: KapLimits): Promise<HostAnswer> | HostAnswer {
    const input = JSON.parse(call.text) as FetchInput;
    const key = `fetch/${call.streamKey(input.streamId)}`;
    if (call.op === "fetch") return this.#fetch(call, input, key, limits);
    if (call.op === "fetch.pull") return this.#streams.pull(key);
    if (call.op === "fetch.push") return this.#streams.push(key, call.bytes);
    if (call.op === "fetch.finish") return this.#streams.finish(key);
    if (call.op !== "fetch.cancel") throw new HostRefusal("TypeError", `There is no host call ${call.op}.`);
    this.#aborts.get(key)?.abort();
    return this.#streams.cancel(key);
  }

  async #fetch(call: HostCall, input: FetchInput, key: string, limits: KapLimits): Promise<HostAnswer> {
    const { run } = call;
    if (++run.fetches > limits.fetches) throw new HostRefusal("TypeError", `A run may fetch ${limits.fetches} times.`, "FETCH_LIMIT");
    if (call.bytes.length > limits.fetch_bytes)
      throw new HostRefusal("TypeError", `The body is larger than the ${limits.fetch_bytes} bytes a kap may send.`);
    const abort = new AbortController();
    this.#aborts.set(key, abort);
    // Kept before anything is awaited: the program may push its first piece right behind this call.
    const body = this.#body(call, input, key, limits);
    const { undici, dispatcher } = await this.#ready();
    const signal = AbortSignal.any([abort.signal, run.abort.signal]);
    try {
      checkTarget(new URL(input.url), this.#allowed);
      const headers = new undici.Headers();
      for (let at = 0; at + 1 < input.headers.length; at += 2) headers.append(input.headers[at] ?? "", input.headers[at + 1] ?? "");
      if (!headers.has("user-agent")) headers.set("user-agent", userAgent);
      const response = await undici.fetch(input.url, {
        method: input.method,
        headers,
        redirect: input.redirect,
        dispatcher,
        signal,
        ...body,
      });
      return await this.#answer(response, call, input, key, limits);
    } catch (error) {
      this.#streams.cancel(key);
      throw fetchFailure(error, input.url);
    } finally {
      this.#aborts.delete(key);
    }
  }

  #body(call: HostCall, input: FetchInput, key: string, limits: KapLimits): { body?: Undici.BodyInit; duplex?: "half" } {
    if (input.bodyKind === "none") return {};
    if (input.bodyKind === "full") return { body: input.text ?? (call.bytes as Uint8Array<ArrayBuffer>) };
    const pushed = new PushedBody(limits.fetch_bytes);
    this.#streams.keepPushed(call.run, key, pushed);
    return { body: pushed.stream as unknown as Undici.BodyInit, duplex: "half" };
  }

  async #answer(response: Undici.Response, call: HostCall, input: FetchInput, key: string, limits: KapLimits): Promise<HostAnswer> {
    const length = Number(response.headers.get("content-length") ?? Number.NaN);
    const isEncoded = response.headers.has("content-encoding");
    const headers: string[] = [];
    for (const [name, value] of response.headers) {
      // The body arrives decoded; what described its coded form would mislead.
      if (isEncoded && (name === "content-encoding" || name === "content-length")) continue;
      headers.push(name, value);
    }
    const { status, statusText, url, redirected } = response;
    const head = (bodyKind: string): string => JSON.stringify({ status, statusText, headers, url, redirected, bodyKind });
    if (response.body === null || input.method === "HEAD") {
      await response.body?.cancel();
      return { text: head("none") };
    }
    if (length > limits.fetch_bytes) {
      await response.body.cancel();
      throw tooLarge(limits.fetch_bytes);
    }
    if (length <= wholeBytes && !isEncoded) return { text: head("full"), bytes: new Uint8Array(await response.arrayBuffer()) };
    this.#streams.keepPulled(
      call.run,
      key,
      pulled(response.body.getReader() as ReadableStreamDefaultReader<Uint8Array>, limits.fetch_bytes, input.url),
    );
    return { text: head("stream") };
  }

  forget(run: RunAccount): void {
    this.#streams.forget(run);
  }

  async close(): Promise<void> {
    if (this.#loaded) await (await this.#loaded).dispatcher.destroy();
  }
}

const tooLarge = (maxBytes: number): HostRefusal =>
  new HostRefusal("TypeError", `The answer is larger than the ${maxBytes} bytes a fetch may bring.`, "FETCH_TOO_LARGE");

function pulled(reader: ReadableStreamDefaultReader<Uint8Array>, maxBytes: number, url: string): PulledBody {
  let bytes = 0;
  const cancel = (): void => void reader.cancel().catch(() => undefined);
  return {
    async pull() {
      const { done, value } = await reader.read().catch((error: unknown) => Promise.reject(fetchFailure(error, url)));
      if (done) return null;
      bytes += value.length;
      if (bytes <= maxBytes) return value;
      cancel();
      throw tooLarge(maxBytes);
    },
    cancel,
  };
}

/** What went wrong, in words that name neither an address of the host's network nor a file of the platform. */
function fetchFailure(error: unknown, url: string): Error {
  if (error instanceof HostRefusal) return error;
  const causes: unknown[] = [error];
  for (let at = 0; at < causes.length && causes.length < 16; at++) {
    const { cause, errors } = (causes[at] ?? {}) as { cause?: unknown; errors?: unknown[] };
    if (cause) causes.push(cause);
    if (Array.isArray(errors)) causes.push(...errors);
  }
  const refused = causes.find((cause) => cause instanceof EgressRefused);
  if (refused instanceof EgressRefused) return new HostRefusal("TypeError", refused.message, "EGRESS_REFUSED");
  const host = causes.find((cause) => cause instanceof HostRefusal);
  if (host instanceof HostRefusal) return host;
  if (error instanceof Error && error.name === "AbortError") return new HostRefusal("AbortError", "The fetch was aborted.");
  const code = causes.map((cause) => (cause as { code?: unknown } | null)?.code).find((found) => typeof found === "string") as
    | string
    | undefined;
  const reason =
    code ?? (error instanceof TypeError ? (error.cause instanceof Error ? error.cause.message : error.message) : "network error");
  return new HostRefusal("TypeError", `fetch failed: ${hostOf(url)}: ${reason}`, code);
}

const hostOf = (url: string): string => (URL.canParse(url) ? new URL(url).host : "the address");
