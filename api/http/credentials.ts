import type { IncomingMessage } from "node:http";
import { parseCookie } from "cookie";
import { isId } from "#platform/ids.ts";
import { digestSecret, secretPrefixOf } from "#platform/secrets.ts";
import type { Deps } from "../deps.ts";
import { unauthenticated } from "./access.ts";
import type { Caller, CredentialKind } from "./caller.ts";
import { lookUpSecret } from "./credential-lookup.ts";
import { byRuntimeToken, bySession, byStoreToken, type CredentialRow, touch } from "./credential-row.ts";
import { permissionsOfRole } from "./permissions.ts";
import { Refusal, refuse } from "./refusal.ts";

/** A credential as it stands on the request, before it is known to hold. */
export interface Presented {
  text: string;
  via: "x-api-key" | "authorization" | "x-session-token" | "cookie";
  /** SHA-256 of the text: what a secret is found by, and what the requests of a credential are counted under. */
  digest: Buffer;
}

/** A credential's text with its digest, taken once a request. */
export function presentedAs(via: Presented["via"], text: string): Presented {
  return { text, via, digest: digestSecret(text) };
}

/** The name of the session cookie; `__Host-` on https, so that no sibling host can set it (decided §2). */
export function sessionCookieName(scheme: "http" | "https"): string {
  return scheme === "https" ? "__Host-kapstone_session" : "kapstone_session";
}

/**
 * The one credential of a request. Two of different kinds are refused with 400: which of them acted must never be a guess.
 * A cookie is sent by browsers unasked, so beside an explicit credential it does not count.
 */
export function presentedCredential(request: IncomingMessage, cookieName: string): Presented | null {
  const found: Pick<Presented, "text" | "via">[] = [];
  const key = request.headers["x-api-key"];
  if (typeof key === "string" && key !== "") found.push({ text: key, via: "x-api-key" });
  const authorization = request.headers.authorization;
  if (authorization !== undefined) {
    if (isRepeated(request, "authorization"))
      throw refuse("BAD_REQUEST", "the request carries Authorization more than once: send exactly one");
    const match = /^Bearer +(\S+)$/i.exec(authorization.trim());
    found.push({ text: match?.[1] ?? "", via: "authorization" });
  }
  const session = request.headers["x-session-token"];
  if (typeof session === "string" && session !== "") found.push({ text: session, via: "x-session-token" });
  if (new Set(found.map((entry) => entry.text)).size > 1) {
    throw refuse(
      "BAD_REQUEST",
      `the request carries more than one credential (${found.map((entry) => entry.via).join(" and ")}): send exactly one`,
    );
  }
  if (found[0]) return presentedAs(found[0].via, found[0].text);
  const cookie = request.headers.cookie === undefined ? undefined : parseCookie(request.headers.cookie)[cookieName];
  return cookie ? presentedAs("cookie", cookie) : null;
}

/** Whether a request carries a header more than once where Node's parser keeps the first without a word. `name` in lower case. */
export function isRepeated(request: IncomingMessage, name: string): boolean {
  let count = 0;
  for (let at = 0; at < request.rawHeaders.length; at += 2) {
    const header = request.rawHeaders[at] as string;
    if (header.length === name.length && header.toLowerCase() === name) count += 1;
  }
  return count > 1;
}

/** Where each kind may stand (spec 1 §2.1): keys in x-api-key, sessions and app tokens as Bearer. */
const placeOf: Record<string, readonly Presented["via"][]> = {
  api_key: ["x-api-key"],
  service_token: ["x-api-key"],
  agent_key: ["x-api-key"],
  store_token: ["authorization"],
  session: ["authorization", "x-session-token", "cookie"],
  app_token: ["authorization"],
};

/** What is known of a request beside its credential. */
export interface RequestFacts {
  address: string;
  userAgent: string | null;
  requestId: string;
}

/**
 * Finds who a credential stands for by one indexed read on the primary. Throws 401 when it does not hold; unknown, revoked, expired
 * and malformed are not told apart. `last_used_at` is written at most once a minute per credential, off the response path (every five
 * seconds for a session under an idle timeout, which must not end while it is used).
 */
export async function resolveCaller(deps: Deps, presented: Presented, facts: RequestFacts): Promise<Caller> {
  const { row, kind, expiresAt } = await findCredential(deps, presented);
  if (row.stale_use) noteUse(deps, row.id, facts.address);
  return callerOf(row, { ...facts, kind, expiresAt, viaCookie: presented.via === "cookie" });
}

/** Whether the credential of a request still holds: what a stream asks again and again, so that revocation ends it. */
export async function stillHolds(deps: Deps, request: IncomingMessage): Promise<boolean> {
  try {
    const presented = presentedCredential(request, sessionCookieName(deps.addresses.scheme));
    if (!presented) return false;
    await findCredential(deps, presented);
    return true;
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) return false;
    throw error;
  }
}

async function findCredential(
  deps: Deps,
  presented: Presented,
): Promise<{ row: CredentialRow; kind: CredentialKind; expiresAt: Date | null }> {
  const { hot } = deps.postgres;
  const first = async (query: { name: string; text: string }, value: unknown): Promise<CredentialRow> => {
    const { rows } = await hot.query<CredentialRow>({ ...query, values: [value] });
    if (!rows[0]) throw unauthenticated();
    return rows[0];
  };
  if (presented.via === "authorization" && presented.text.includes(".")) {
    const claims = await deps.jwt.verify(presented.text);
    if (!claims || !isId(claims.sid)) throw unauthenticated();
    const row = await first(bySession, claims.sid);
    if (row.org_id !== claims.org_id || row.member_id !== claims.sub) throw unauthenticated();
    return { row, kind: "jwt", expiresAt: new Date(claims.exp * 1000) };
  }
  if (presented.via === "authorization" && runtimeTokenForm.test(presented.text)) {
    const row = await first(byRuntimeToken, presented.digest);
    return { row, kind: row.kind, expiresAt: null };
  }
  const prefix = secretPrefixOf(presented.text);
  if (!prefix) throw unauthenticated();
  const row = prefix === "kst1_" ? await first(byStoreToken, presented.digest) : await lookUpSecret(hot, presented.digest);
  if (!row || !placeOf[row.kind]?.includes(presented.via)) throw unauthenticated();
  return { row, kind: row.kind, expiresAt: row.expires_at };
}

/** A runtime's token is 32 random bytes and nothing else: it never leaves the platform, so it has no prefix for scanners. */
const runtimeTokenForm = /^[\w-]{43}$/;

/** Writes the use of a credential; a key used from an address it was never used from is told in the organisation's anomaly feed. */
function noteUse(deps: Deps, credentialId: string, address: string): void {
  const write = async (): Promise<void> => {
    const { rows } = await deps.postgres.hot.query<{ id: string; org_id: string; kind: string; name: string }>({
      ...touch,
      values: [credentialId, address],
    });
    for (const { id, org_id, kind, name } of rows) {
      await deps.events.publish(deps.db, { org_id, kind: "anomaly.key-new-address", payload: { credential: { kind, id, name }, address } });
    }
  };
  write().catch((error: unknown) => deps.log.warn({ err: error }, "the use of a credential was not written"));
}

function callerOf(row: CredentialRow, facts: RequestFacts & { kind: CredentialKind; expiresAt: Date | null; viaCookie: boolean }): Caller {
  const isMember = row.member_id !== null && row.role !== null && row.account_id !== null;
  return {
    kind: facts.kind,
    credentialId: row.id,
    credentialName: row.name,
    subkind: row.subkind,
    org: {
      id: row.org_id,
      slug: row.org_slug,
      name: row.org_name,
      mode: row.org_mode,
      live: { id: row.live_org_id, slug: row.live_org_slug },
    },
    scopes: row.scopes,
    expiresAt: facts.expiresAt,
    member: isMember
      ? {
          id: row.member_id as string,
          accountId: row.account_id as string,
          email: row.email as string,
          name: row.account_name as string,
          role: row.role as string,
          permissions: row.role_permissions ? new Set(row.role_permissions) : permissionsOfRole(row.role as string),
        }
      : null,
    agent: row.agent_id === null ? null : { id: row.agent_id, name: row.agent_name ?? "" },
    mayOnlyEnrol: isMember && row.mfa_enforced && row.mfa_enrolled !== true,
    projectId: row.project_id,
    workspaceId: row.workspace_id,
    kapId: row.kap_id,
    viaCookie: facts.viaCookie,
    address: facts.address,
    userAgent: facts.userAgent,
    requestId: facts.requestId,
  };
}
