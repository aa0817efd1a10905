import type pg from "pg";
import type { Db } from "#platform/postgres.ts";
import { digestLinkToken, mintLinkToken } from "../services/auth/one-time-link.ts";

/** How long the code of a hand-over is good: it is used by the redirect it is in. */
const memberSeconds = 60;
/** How long a mailed link is good, in minutes. */
export const guestLinkMinutes = 15;
/** How long a guest stays known to a kap's host without a new link; being taken off the list ends it at once. */
const guestDays = 7;

/** Who a code is for: the session of a member in the browser that set out, or an address. */
export type HandOver = { credentialId: string; browser: Buffer } | { email: string };

/** Mints a code that is good once, for one kap. Only its digest is stored. */
export async function mintHandOver(db: Db, kapId: string, who: HandOver): Promise<string> {
  const { token, digest } = mintLinkToken();
  const isMember = "credentialId" in who;
  await db("kap_handovers").insert({
    digest,
    kap_id: kapId,
    ...(isMember ? { credential_id: who.credentialId, browser: who.browser } : { email: who.email }),
    expires_at: db.raw("now() + make_interval(secs => ?)", [isMember ? memberSeconds : guestLinkMinutes * 60]),
  });
  return token;
}

/** A cookie made from a code. */
export interface EnteredSession {
  value: string;
  expiresAt: Date;
}

/**
 * Uses up a code on the host of the kap it was made for, and makes the cookie's record, in one statement: of any number of uses one wins. A member's code is good only
 * in the browser that set out (its cookie's digest is the code's), so that nobody is signed in as somebody else by a link. Codes and cookies that are over go with it.
 */
const enter = {
  name: "kap-enter",
  text: `with used as (
      delete from kap_handovers where digest = $1 returning kap_id, credential_id, browser, email, expires_at
    ), swept as (
      delete from kap_handovers where expires_at < now() - interval '1 hour' and digest <> $1
    ), ended as (
      delete from kap_sessions where expires_at < now()
    )
    insert into kap_sessions (digest, kap_id, credential_id, email, expires_at)
    select $3, u.kap_id, u.credential_id, u.email, coalesce(c.expires_at, now() + make_interval(days => $5))
    from used u join kaps k on k.id = u.kap_id left join credentials c on c.id = u.credential_id
    where k.slug = $2 and u.expires_at > now() and (u.credential_id is null or u.browser = $4)
    returning expires_at`,
};

/** Uses up a code. Null when it is none, was used, is too old, is another kap's, or was meant for another browser. */
export async function useHandOver(
  hot: pg.Pool,
  use: { code: string; slug: string; browser: string | null },
): Promise<EnteredSession | null> {
  const { token, digest } = mintLinkToken();
  const browser = use.browser === null ? null : digestLinkToken(use.browser);
  const { rows } = await hot.query<{ expires_at: Date }>({
    ...enter,
    values: [digestLinkToken(use.code), use.slug, digest, browser, guestDays],
  });
  return rows[0] ? { value: token, expiresAt: rows[0].expires_at } : null;
}

/** The address a mailed code was sent to while the code is good, without using it up: programs that look through mail open links too. */
export async function guestOfCode(hot: pg.Pool, code: string, slug: string): Promise<string | null> {
  const { rows } = await hot.query<{ email: string }>({
    name: "kap-guest-of-code",
    text: `select h.email from kap_handovers h join kaps k on k.id = h.kap_id
           where h.digest = $1 and k.slug = $2 and h.email is not null and h.expires_at > now()`,
    values: [digestLinkToken(code), slug],
  });
  return rows[0]?.email ?? null;
}

/** Ends a cookie of a kap's host. */
export async function endKapSession(hot: pg.Pool, cookie: string): Promise<void> {
  await hot.query({ name: "kap-leave", text: "delete from kap_sessions where digest = $1", values: [digestLinkToken(cookie)] });
}
