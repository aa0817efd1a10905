import type { IncomingMessage } from "node:http";
import { stringifySetCookie } from "cookie";
import { newId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import { mintSecret } from "#platform/secrets.ts";
import type { Deps } from "../../deps.ts";
import { unauthenticated } from "../../http/access.ts";
import { sessionCookieName } from "../../http/credentials.ts";
import type { Host } from "../../http/hosts.ts";
import type { Reply } from "../../http/route.ts";
import type { Account, Membership, OrgName } from "./account.ts";
import { recordAuditOf } from "./audit.ts";
import { deviceOf } from "./device.ts";

/** Whose session it is. An account that was there before comes with the hash its password was proved against. */
export type SignedInAccount = Pick<Account, "id" | "email" | "name" | "mfa_enrolled"> & { password_hash?: string };

/** Who signs in where, and what is known of the request. */
export interface SessionRequest {
  account: SignedInAccount;
  membership: Membership;
  org: OrgName;
  address: string;
  request: IncomingMessage;
  requestId: string;
  /** How the session came about, for the audit: `signup`, `login`, `invitation`, `switch-org`. */
  by: string;
  /** The session that this one comes out of, which must still live. */
  from?: string;
}

/** A session made in a transaction; `reply` is sent once that has committed. */
export interface OpenedSession extends SessionRequest {
  id: string;
  secret: string;
  expiresAt: Date;
}

/**
 * What was proved must still hold when the session is written: a password that is reset, a member who is removed or a session that is ended
 * meanwhile ends all sessions there are, and none may come after. The share locks make those changes wait for this transaction, or this one for them.
 */
async function refuseOvertaken(db: Db, { account, membership, from }: SessionRequest): Promise<void> {
  const standing: { password_hash: string } | undefined = await db("members as m")
    .join("accounts as a", "a.id", "m.account_id")
    .where({ "m.id": membership.member_id, "m.removed_at": null })
    .forShare()
    .first("a.password_hash");
  const isSame = standing && (account.password_hash === undefined || account.password_hash === standing.password_hash);
  const isAlive = from === undefined || (await db("credentials").where({ id: from, revoked_at: null }).forShare().first("id"));
  if (!isSame || !isAlive) throw unauthenticated("the password, the membership or the session has just been changed: sign in again");
}

/** Opens a session in the caller's transaction: credential, digest, audit line. */
export async function openSession(db: Db, request: SessionRequest): Promise<OpenedSession> {
  const { account, membership, org } = request;
  await refuseOvertaken(db, request);
  const id = newId();
  const { secret, digest, keyPrefix } = mintSecret("kses_");
  const expiresAt = new Date(Date.now() + membership.policy.session.lifetime_hours * 3_600_000);
  const userAgent = request.request.headers["user-agent"]?.slice(0, 500) ?? null;
  const device = deviceOf(userAgent);
  await db("credentials").insert({
    id,
    org_id: org.id,
    kind: "session",
    name: device,
    member_id: membership.member_id,
    key_prefix: keyPrefix,
    details: JSON.stringify({ device, user_agent: userAgent, address: request.address }),
    expires_at: expiresAt,
    last_used_at: db.fn.now(),
  });
  await db("credential_secrets").insert({ digest, credential_id: id });
  await recordAuditOf(
    db,
    {
      org_id: org.id,
      actor: { kind: "member", id: membership.member_id, name: account.name },
      address: request.address,
      request_id: request.requestId,
      credential: { kind: "session", id, name: device },
    },
    { action: "session.created", target: { kind: "session", id, name: device }, detail: { by: request.by } },
  );
  return { ...request, id, secret, expiresAt };
}

/**
 * The login response (spec 1 §2.4) with the session cookie. On the host of another organisation no cookie is set: it would put an
 * end to the session that host has.
 */
export async function loginReply(deps: Deps, host: Host, session: OpenedSession, status: 200 | 201 = 200): Promise<Reply> {
  const { account, membership, org } = session;
  const isForeignHost = host.zone === "org" && host.slug !== org.slug && host.slug !== membership.org.slug;
  const access = await deps.jwt.sign(
    { sid: session.id, sub: membership.member_id, org_id: org.id },
    { org_slug: org.slug, email: account.email, name: account.name },
  );
  const mustEnrol = membership.policy.mfa.mode === "enforced" && !account.mfa_enrolled;
  return {
    status,
    headers: {
      "cache-control": "no-store",
      ...(isForeignHost ? {} : { "set-cookie": sessionCookie(deps, session.secret, session.expiresAt) }),
    },
    body: {
      session_token: session.secret,
      session_expires_at: session.expiresAt.toISOString(),
      access_token: access.token,
      access_token_expires_in: access.expiresInSeconds,
      role: membership.role,
      org_id: org.id,
      org_slug: org.slug,
      org_url: deps.addresses.org(org.slug),
      member_id: membership.member_id,
      email: account.email,
      name: account.name,
      ...(mustEnrol ? { mfa_enrollment_required: true } : {}),
    },
  };
}

/** The session cookie: host-only, so no other organisation, kap or share ever sees it (decided §2). */
function sessionCookie(deps: Deps, value: string, expires: Date): string {
  return stringifySetCookie({
    name: sessionCookieName(deps.addresses.scheme),
    value,
    path: "/",
    httpOnly: true,
    sameSite: "lax",
    secure: deps.addresses.scheme === "https",
    expires,
  });
}

/** What takes the cookie away again. */
export function endedCookie(deps: Deps): string {
  return sessionCookie(deps, "", new Date(0));
}

/** The organisation a host stands for: on its own host it need not be named. */
export function orgSlugOf(host: Host): string | null {
  return host.zone === "org" ? host.slug : null;
}

/** Ends sessions of an account, in every organisation; `except` stays. A JWT dies with its session. Returns how many. */
export async function endSessionsOfAccount(db: Db, accountId: string, except: string | null): Promise<number> {
  return db("credentials")
    .where({ kind: "session", revoked_at: null })
    .whereIn("member_id", db("members").where({ account_id: accountId }).select("id"))
    .modify((query) => {
      if (except !== null) query.whereNot({ id: except });
    })
    .update({ revoked_at: db.fn.now() });
}

/** Removes sessions that have been over for a while; what they did stays in the audit. */
export async function sweepSessions(db: Db): Promise<void> {
  await db("credentials").where({ kind: "session" }).whereRaw("coalesce(revoked_at, expires_at) < now() - interval '30 days'").delete();
}
