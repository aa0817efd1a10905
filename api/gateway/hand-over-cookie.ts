import type { IncomingMessage } from "node:http";
import { parseCookie, stringifySetCookie } from "cookie";
import { sessionCookieName } from "../http/credentials.ts";

type Scheme = "http" | "https";

/** The cookies a kap's host has of the platform's: who the visitor is, and which browser set out to sign in. `__Host-` on https, so that no sibling host can set them. */
const names = { visitor: "kapstone_kap", browser: "kapstone_browser" } as const;
export type KapCookie = keyof typeof names;

/** The full name of a kap host's cookie. */
export function kapCookieName(cookie: KapCookie, scheme: Scheme): string {
  return scheme === "https" ? `__Host-${names[cookie]}` : names[cookie];
}

/** The value of a kap host's cookie as the request carries it, or null. */
export function readKapCookie(request: IncomingMessage, cookie: KapCookie, scheme: Scheme): string | null {
  const header = request.headers.cookie;
  return header === undefined ? null : (parseCookie(header)[kapCookieName(cookie, scheme)] ?? null);
}

/** A `Set-Cookie` of a kap's host: host-only, out of reach of the page's scripts, not sent along by other sites but on a visit (decided §2). */
export function setKapCookie(cookie: KapCookie, scheme: Scheme, value: string, expires: Date): string {
  return stringifySetCookie({
    name: kapCookieName(cookie, scheme),
    value,
    path: "/",
    httpOnly: true,
    sameSite: "lax",
    secure: scheme === "https",
    expires,
  });
}

const platformCookies: ReadonlySet<string> = new Set(
  (["http", "https"] as const).flatMap((scheme) => [
    sessionCookieName(scheme),
    kapCookieName("visitor", scheme),
    kapCookieName("browser", scheme),
  ]),
);

/**
 * A `Cookie` header without the platform's cookies: the program never sees one (decided §7.4). Null when nothing is left. What remains is passed
 * on byte for byte.
 */
export function withoutPlatformCookies(header: string): string | null {
  if (!header.includes("kapstone_")) return header;
  const kept = header.split(";").filter((pair) => !platformCookies.has((pair.split("=", 1)[0] ?? "").trim()));
  const rest = kept.join(";").trim();
  return rest === "" ? null : rest;
}
