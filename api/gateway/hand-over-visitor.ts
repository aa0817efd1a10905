import type { IncomingMessage } from "node:http";
import type pg from "pg";
import { digestLinkToken } from "../services/auth/one-time-link.ts";
import type { KapRow } from "../services/kaps/kap.ts";

/** Who a kap's own cookie stands for. */
export interface Visitor {
  audience: KapRow["audience"];
  /** `member:…` or `guest:…`, for X-Kap-Caller. */
  caller: string;
  user: { id: string; email: string; name: string; role: string };
  /** Whether it is a member of the kap's organisation. */
  isOwn: boolean;
}

/** Whether an address is on the list of a kap: itself, or its `@domain` (decided §7.3). Both are lowercase. */
export function isListed(invited: readonly string[], email: string): boolean {
  const domain = email.slice(email.lastIndexOf("@"));
  return invited.some((entry) => entry === email || entry === domain);
}

/**
 * The audience rule: `members` are those of the organisation; `invited` only who is listed, members too; `public` is anyone (decided §7.3). An account elsewhere
 * proves no address (signing up does not), so who is listed and no member of the organisation comes in by a mailed link only.
 */
export function mayEnter(kap: Pick<KapRow, "audience" | "invited">, visitor: { email: string; isOwn: boolean; isGuest: boolean }): boolean {
  if (kap.audience === "public") return true;
  if (kap.audience === "members") return visitor.isOwn;
  return (visitor.isOwn || visitor.isGuest) && isListed(kap.invited, visitor.email);
}

interface VisitorRow {
  audience: KapRow["audience"];
  invited: string[];
  guest: string | null;
  org_id: string;
  session_org_id: string | null;
  member_id: string | null;
  email: string | null;
  name: string | null;
  role: string | null;
}

/**
 * One statement on every call that carries the cookie: cookie, kap, session, membership, policy. Nothing of it is cached, so the end of the session, removal from the
 * organisation or the list, and a change of the audience hold from the next request on. A session in use is marked so, that an idle timeout does not end it.
 */
const statement = `
with s as (
  select k.org_id, k.audience, k.invited, s.email as guest, c.id as credential_id, c.org_id as session_org_id, c.last_used_at,
         m.id as member_id, m.role, a.email, a.name, (l.settings #>> '{session,idle_timeout_minutes}')::int as idle_minutes
  from kap_sessions s
  join kaps k on k.id = s.kap_id
  left join credentials c on c.id = s.credential_id and c.kind = 'session' and c.revoked_at is null and (c.expires_at is null or c.expires_at > now())
  left join orgs o on o.id = c.org_id
  left join orgs l on l.id = coalesce(o.live_org_id, o.id)
  left join members m on m.id = c.member_id and m.removed_at is null
  left join accounts a on a.id = m.account_id
  where s.digest = $1 and k.slug = $2 and s.expires_at > now()
    and (s.email is not null or (a.id is not null and (a.mfa_enrolled or l.settings #>> '{mfa,mode}' is distinct from 'enforced')))
), alive as (
  select * from s where idle_minutes is null or last_used_at > now() - make_interval(mins => idle_minutes)
), used as (
  update credentials c set last_used_at = now() from alive
  where c.id = alive.credential_id and c.last_used_at < now() - case when alive.idle_minutes is null then interval '1 minute' else interval '5 seconds' end
)
select audience, invited, guest, org_id, session_org_id, member_id, email, name, role from alive`;

/** Finds who a cookie of a kap's host stands for. Null when it is over, or its holder may not reach the kap any more. */
export async function findVisitor(hot: pg.Pool, slug: string, cookie: string): Promise<Visitor | null> {
  const { rows } = await hot.query<VisitorRow>({ name: "kap-visitor", text: statement, values: [digestLinkToken(cookie), slug] });
  const row = rows[0];
  if (!row) return null;
  const visitor = visitorOf(row);
  return mayEnter(row, { email: visitor.user.email, isOwn: visitor.isOwn, isGuest: row.guest !== null }) ? visitor : null;
}

function visitorOf(row: VisitorRow): Visitor {
  if (row.guest !== null) {
    const user = { id: `guest:${row.guest}`, email: row.guest, name: row.guest, role: "guest" };
    return { audience: row.audience, caller: user.id, user, isOwn: false };
  }
  const user = { id: row.member_id ?? "", email: row.email ?? "", name: row.name ?? "", role: row.role ?? "" };
  return { audience: row.audience, caller: `member:${user.email}`, user, isOwn: row.session_org_id === row.org_id };
}

/** Whether a request comes from a page of the kap's own host, as browsers tell it. Reading is left to `SameSite` and to the browser's own rules. */
export function isFromOwnPage(request: IncomingMessage, origin: string): boolean {
  if (request.method === "GET" || request.method === "HEAD" || request.method === "OPTIONS") return true;
  if (request.headers.origin !== undefined) return request.headers.origin === origin;
  const site = request.headers["sec-fetch-site"];
  return site === undefined || site === "same-origin" || site === "none";
}
