import type { IncomingMessage, ServerResponse } from "node:http";
import type { Dispatcher } from "undici";
import { secretPrefixOf } from "#platform/secrets.ts";
import { withoutPlatformCookies } from "./hand-over-cookie.ts";
import { dataPool } from "./runtime-client.ts";

/** How a forwarded call ended, when it is not simply answered. */
export type ForwardOutcome =
  | { kind: "answered" }
  /** The runtime reports a failed run before the first byte: the gateway answers in its own words. */
  | { kind: "failed"; outcome: string; status: number; detail: string; retryAfter: string | null }
  /** The runtime does not serve this kap (any more), or could not be reached: nothing has run. */
  | { kind: "unassigned" }
  /** The connection broke after the request was sent and before an answer came: it may have run. */
  | { kind: "broken"; detail: string }
  /** The answer had begun when it broke: the caller's connection has been cut. */
  | { kind: "cut"; detail: string }
  | { kind: "client-gone" };

const hopByHop = new Set([
  "connection",
  "keep-alive",
  "transfer-encoding",
  "te",
  "trailer",
  "upgrade",
  "proxy-authorization",
  "proxy-authenticate",
  "proxy-connection",
  "expect",
]);
const cookieDomain = /;\s*domain=[^;]*/gi;
/** A program's cookies are its own host's (decided §7.4). */
export const withoutDomain = (setCookie: string): string => setCookie.replace(cookieDomain, "");
const maxDetailBytes = 64 * 1024;

/** A secret of ours where our credentials stand; what a program's own callers put there is the program's. */
function isPlatformCredential(name: string, value: string): boolean {
  if (name === "x-api-key" || name === "x-session-token") return secretPrefixOf(value) !== null;
  return name === "authorization" && secretPrefixOf(value.replace(/^Bearer +/i, "")) !== null;
}

/** The caller's headers as the program may see them, flat: without hop-by-hop headers, the platform's own, and those the gateway consumed. */
export function forwardedHeaders(request: IncomingMessage, drop: ReadonlySet<string>): string[] {
  const raw = request.rawHeaders;
  const headers: string[] = [];
  for (let i = 0; i < raw.length; i += 2) {
    const name = (raw[i] as string).toLowerCase();
    if (hopByHop.has(name) || drop.has(name) || name.startsWith("x-kapstone-") || name === "x-kap-caller") continue;
    const value = name === "cookie" ? withoutPlatformCookies(raw[i + 1] as string) : (raw[i + 1] as string);
    if (value === null || isPlatformCredential(name, value)) continue;
    headers.push(name, value); // in lower case, as the program reads them
  }
  return headers;
}

export interface ForwardRequest {
  address: string;
  method: string;
  path: string;
  headers: string[];
  body: IncomingMessage | Buffer | null;
  /** Sent with the answer beside the program's own headers. */
  answerHeaders: string[];
}

/**
 * Streams a call to a runtime and its answer back, with back-pressure both ways. Resolves when the exchange is over; never rejects.
 * Written on undici's dispatch interface: no Response object, no stream wrapper, raw headers through.
 */
export function forward(request: ForwardRequest, response: ServerResponse): Promise<ForwardOutcome> {
  return new Promise((resolve) => {
    let controller: Dispatcher.DispatchController | undefined;
    let failure: { outcome: string; status: number; retryAfter: string | null; chunks: Buffer[]; size: number } | null = null;
    let settled = false;
    let started = false;
    let sent = false;
    const settle = (outcome: ForwardOutcome): void => {
      if (settled) return;
      settled = true;
      response.off("close", onClose);
      response.off("drain", onDrain);
      resolve(outcome);
    };
    const onClose = (): void => {
      if (response.writableFinished) return;
      settle({ kind: "client-gone" });
      controller?.abort(new Error("the caller went away"));
    };
    const onDrain = (): void => controller?.resume();
    response.on("close", onClose);

    dataPool(request.address).dispatch(
      { method: request.method as Dispatcher.HttpMethod, path: request.path, headers: request.headers, body: request.body },
      {
        onRequestStart(active) {
          controller = active;
          sent = true;
          if (settled) active.abort(new Error("the caller went away"));
        },
        onResponseStart(_active, status, headers) {
          if (status < 200) return;
          const outcome = headers["x-kapstone-outcome"];
          if (typeof outcome === "string") {
            failure = {
              outcome,
              status,
              retryAfter: typeof headers["retry-after"] === "string" ? headers["retry-after"] : null,
              chunks: [],
              size: 0,
            };
            return;
          }
          started = true;
          const flat: string[] = request.answerHeaders;
          for (const [name, value] of Object.entries(headers)) {
            if (value === undefined || hopByHop.has(name) || name === "x-kap-run-id" || name === "x-request-id") continue;
            if (name === "set-cookie") {
              for (const cookie of Array.isArray(value) ? value : [value]) flat.push(name, withoutDomain(cookie));
            } else if (Array.isArray(value)) for (const item of value) flat.push(name, item);
            else flat.push(name, value);
          }
          // A body the program has not read to its end would stand before the next request of this connection: there is none.
          if (request.body !== null && "complete" in request.body && !request.body.complete) response.shouldKeepAlive = false;
          response.writeHead(status, flat);
        },
        onResponseData(active, chunk) {
          if (failure) {
            if (failure.size < maxDetailBytes) failure.chunks.push(chunk);
            failure.size += chunk.length;
            return;
          }
          if (response.write(chunk)) return;
          active.pause();
          response.once("drain", onDrain);
        },
        onResponseEnd() {
          if (failure) {
            if (failure.outcome === "unassigned") settle({ kind: "unassigned" });
            else settle({ kind: "failed", ...failure, detail: detailOf(Buffer.concat(failure.chunks)) });
            return;
          }
          response.end();
          settle({ kind: "answered" });
        },
        onResponseError(_active, error) {
          if (settled) return;
          const code = "code" in error ? String(error.code) : "";
          if (started) {
            response.destroy();
            settle({ kind: "cut", detail: error.message });
          } else if (
            !sent ||
            code === "ECONNREFUSED" ||
            code === "ENOENT" ||
            code === "UND_ERR_CONNECT_TIMEOUT" ||
            code === "EHOSTUNREACH"
          ) {
            settle({ kind: "unassigned" });
          } else settle({ kind: "broken", detail: error.message });
        },
      },
    );
  });
}

function detailOf(body: Buffer): string {
  try {
    const parsed = JSON.parse(body.toString("utf8")) as { detail?: unknown };
    return typeof parsed.detail === "string" ? parsed.detail : "";
  } catch {
    return "";
  }
}
