import type { IncomingMessage } from "node:http";
import { parseCookie } from "cookie";
import type { Deps } from "../../deps.ts";
import type { Caller } from "../../http/caller.ts";
import { presentedAs, resolveCaller, sessionCookieName } from "../../http/credentials.ts";
import type { Host } from "../../http/hosts.ts";
import { Refusal } from "../../http/refusal.ts";
import { type Branding, readBranding } from "../auth/branding.ts";

/** An organisation as its pages show it. */
export interface PageOrg {
  id: string;
  slug: string;
  name: string;
  branding: Branding;
}

/** The organisation whose host was called, or null. A test organisation looks like the live one it is paired with. */
export async function findPageOrg(deps: Deps, host: Host): Promise<PageOrg | null> {
  if (host.zone !== "org") return null;
  const row: { id: string; slug: string; name: string; live_org_id: string | null } | undefined = await deps
    .db("orgs")
    .where({ slug: host.slug })
    .first("id", "slug", "name", "live_org_id");
  if (!row) return null;
  return { id: row.id, slug: row.slug, name: row.name, branding: await readBranding(deps.db, row.live_org_id ?? row.id) };
}

/** Who is signed in on the organisation's host by its cookie, or null. */
export async function signedIn(
  deps: Deps,
  org: PageOrg,
  at: { request: IncomingMessage; address: string; requestId: string },
): Promise<Caller | null> {
  const text = parseCookie(at.request.headers.cookie ?? "")[sessionCookieName(deps.addresses.scheme)];
  if (!text) return null;
  const facts = { address: at.address, userAgent: at.request.headers["user-agent"] ?? null, requestId: at.requestId };
  try {
    const caller = await resolveCaller(deps, presentedAs("cookie", text), facts);
    return caller.org.id === org.id || caller.org.live.id === org.id ? caller : null;
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) return null;
    throw error;
  }
}
