import type { IncomingMessage, ServerResponse } from "node:http";
import type { Deps } from "../deps.ts";
import { readBody } from "../http/body.ts";
import { clientAddress } from "../http/hosts.ts";
import { checkRate } from "../http/rate-limit.ts";
import { asRefusal, Refusal, refuse } from "../http/refusal.ts";
import { requestIdOf } from "../http/request-id.ts";
import { digestLinkToken, mintLinkToken } from "../services/auth/one-time-link.ts";
import { kapNotFound } from "../services/kaps/kap.ts";
import { html } from "../services/pages/html.ts";
import { pageHeaders, renderPage, stylesheet } from "../services/pages/page.ts";
import { endKapSession, guestOfCode, useHandOver } from "./hand-over-code.ts";
import { readKapCookie, setKapCookie } from "./hand-over-cookie.ts";
import { addressWithin, pathWithin } from "./hand-over-path.ts";
import { isFromOwnPage } from "./hand-over-visitor.ts";

const enterPath = "/__kaps/enter";
const leavePath = "/__kaps/leave";
const stylePath = "/__kaps/pages.css";
const formBytes = 8 * 1024;
/** How long a browser may take to sign in before it has to set out again. */
const signInMs = 60 * 60_000;

/** Whether a request on a kap's host is for the platform's own doorway there. */
export function isDoorway(target: string | undefined): boolean {
  const path = (target ?? "/").split("?", 1)[0];
  return path === enterPath || path === leavePath || path === stylePath;
}

/** Whether the request is a visit of a person: a browser that would show a page. */
function isVisit(request: IncomingMessage): boolean {
  return (request.method === "GET" || request.method === "HEAD") && /\btext\/html\b/i.test(request.headers.accept ?? "");
}

/**
 * What a signed-out browser hears at a kap that is not public: it is sent to the organisation's host to sign in, and comes back (decided §7.3). The cookie it gets marks
 * it as the browser that set out. Null for everything that is not a person's visit: machines hear 401.
 */
export function signInRedirect(deps: Deps, kap: { slug: string; org_slug: string }, request: IncomingMessage): Refusal | null {
  if (!isVisit(request)) return null;
  return new Refusal(302, "SIGN_IN_REQUIRED", "this kap is not public: sign in where this answer leads", {
    headers: setOut(deps, kap, request, request.url ?? "/"),
  });
}

/** Sends a browser on its way to sign in. One that is on its way already keeps its mark, so that two tabs can sign in at once. */
function setOut(deps: Deps, kap: { slug: string; org_slug: string }, request: IncomingMessage, to: string): Record<string, string> {
  const { scheme } = deps.addresses;
  const mark = readKapCookie(request, "browser", scheme) ?? mintLinkToken().token;
  const entrance = new URL("/enter", deps.addresses.org(kap.org_slug));
  entrance.search = new URLSearchParams({
    kap: kap.slug,
    to: pathWithin(deps.addresses.kap(kap.slug), to),
    browser: digestLinkToken(mark).toString("base64url"),
  }).toString();
  return {
    location: entrance.href,
    "set-cookie": setKapCookie("browser", scheme, mark, new Date(Date.now() + signInMs)),
    "referrer-policy": "no-referrer",
  };
}

/** The platform's own paths on a kap's host: `/__kaps/enter`, where a one-time code becomes the cookie of that host, and `/__kaps/leave`. */
export async function serveDoorway(deps: Deps, slug: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const requestId = requestIdOf(request.headers["x-request-id"]);
  response.setHeader("x-request-id", requestId);
  for (const [name, value] of Object.entries(pageHeaders())) response.setHeader(name, value);
  try {
    const address = clientAddress(request, deps.config.trustedProxies);
    checkRate(await deps.limiter.take(`call-address:${address}`, deps.config.requestsPerMinute), "calls a minute from this address");
    await answerDoorway(deps, slug, request, response);
  } catch (error) {
    const refusal = asRefusal(error);
    if (refusal.status >= 500) deps.log.error({ err: refusal.cause ?? refusal, request_id: requestId }, "a doorway failed");
    for (const [name, value] of Object.entries(refusal.options.headers ?? {})) response.setHeader(name, value);
    answerPage(response, refusal.status, sorry("That did not work", refusal.message));
  }
}

async function answerDoorway(deps: Deps, slug: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const origin = deps.addresses.kap(slug);
  const url = new URL(request.url ?? "/", origin);
  if (url.pathname === stylePath && request.method === "GET") {
    response.writeHead(200, { "content-type": "text/css; charset=utf-8", "cache-control": "public, max-age=3600" }).end(stylesheet());
    return;
  }
  if (url.pathname === enterPath && request.method === "GET") {
    const code = url.searchParams.get("code");
    if (code === null) return setOutFrom(deps, slug, request, response, url.searchParams.get("to"));
    return enter(deps, slug, request, response, { code, to: url.searchParams.get("to"), isConfirmed: false });
  }
  const allow = url.pathname === leavePath ? "POST" : url.pathname === enterPath ? "GET, POST" : "GET";
  if (request.method !== "POST" || url.pathname === stylePath) {
    throw refuse("METHOD_NOT_ALLOWED", `${request.method} is not a method of this path: it has ${allow}`, { headers: { allow } });
  }
  if (!isFromOwnPage(request, origin))
    throw new Refusal(403, "ORIGIN_MISMATCH", "this form was sent from another site: open the kap itself");
  const form = new URLSearchParams((await readBody(request, formBytes)).toString("utf8"));
  if (url.pathname === leavePath) return leave(deps, request, response, addressWithin(origin, form.get("to")));
  return enter(deps, slug, request, response, { code: form.get("code") ?? "", to: form.get("to"), isConfirmed: true });
}

async function setOutFrom(deps: Deps, slug: string, request: IncomingMessage, response: ServerResponse, to: string | null): Promise<void> {
  const { rows } = await deps.postgres.hot.query<{ slug: string; org_slug: string }>({
    name: "kap-org-slug",
    text: "select k.slug, o.slug as org_slug from kaps k join orgs o on o.id = k.org_id where k.slug = $1",
    values: [slug],
  });
  if (!rows[0]) throw kapNotFound(slug);
  response.writeHead(302, setOut(deps, rows[0], request, to ?? "/")).end();
}

/**
 * Uses up a code and gives this host's cookie. A code from a mail is used up only when the person says so: mail scanners open every link. A member's, which came by a
 * redirect, is used at once.
 */
async function enter(
  deps: Deps,
  slug: string,
  request: IncomingMessage,
  response: ServerResponse,
  given: { code: string; to: string | null; isConfirmed: boolean },
): Promise<void> {
  const { scheme } = deps.addresses;
  const origin = deps.addresses.kap(slug);
  const { code } = given;
  const guest = given.isConfirmed ? null : await guestOfCode(deps.postgres.hot, code, slug);
  if (guest !== null) return answerPage(response, 200, confirmation(slug, guest, code, pathWithin(origin, given.to)));
  const browser = readKapCookie(request, "browser", scheme);
  const entered = await useHandOver(deps.postgres.hot, { code, slug, browser });
  if (!entered) return answerPage(response, 410, linkOver(slug, pathWithin(origin, given.to)));
  response
    .writeHead(given.isConfirmed ? 303 : 302, {
      location: addressWithin(origin, given.to),
      "set-cookie": [setKapCookie("visitor", scheme, entered.value, entered.expiresAt), setKapCookie("browser", scheme, "", new Date(0))],
    })
    .end();
}

async function leave(deps: Deps, request: IncomingMessage, response: ServerResponse, to: string): Promise<void> {
  const { scheme } = deps.addresses;
  const cookie = readKapCookie(request, "visitor", scheme);
  if (cookie !== null) await endKapSession(deps.postgres.hot, cookie);
  response.writeHead(303, { location: to, "set-cookie": setKapCookie("visitor", scheme, "", new Date(0)) }).end();
}

function answerPage(response: ServerResponse, status: number, body: string): void {
  response
    .writeHead(status, { "content-type": "text/html; charset=utf-8", "content-length": Buffer.byteLength(body) })
    .end(response.req.method === "HEAD" ? undefined : body);
}

function confirmation(slug: string, email: string, code: string, to: string): string {
  return renderPage({
    title: `Open ${slug}`,
    stylePath,
    main: html`
      <h1>Open ${slug}</h1>
      <p>You were invited as <strong>${email}</strong>.</p>
      <form method="post" action="${enterPath}">
        <input type="hidden" name="code" value="${code}">
        <input type="hidden" name="to" value="${to}">
        <button type="submit">Continue</button>
      </form>
      <p class="hint">The link works once. The kap will know you by this address.</p>`,
  });
}

function linkOver(slug: string, to: string): string {
  return renderPage({
    title: "This link is over",
    stylePath,
    main: html`
      <h1>This link is over</h1>
      <p>It was used already, is too old, or was opened in another browser than the one that asked for it.</p>
      <p><a class="button" href="${enterPath}?${new URLSearchParams({ to }).toString()}">Try again</a></p>
      <p class="hint">If this page comes back, allow cookies for ${slug}.</p>`,
  });
}

function sorry(title: string, message: string): string {
  return renderPage({
    title,
    stylePath,
    main: html`<h1>${title}</h1><p>${message}</p><p><a class="button" href="/">Go to the kap</a></p>`,
  });
}
