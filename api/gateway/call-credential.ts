import type { IncomingMessage } from "node:http";
import type { Deps } from "../deps.ts";
import { unauthenticated } from "../http/access.ts";
import { type Presented, presentedAs, resolveCaller } from "../http/credentials.ts";
import { clientAddress, type Host } from "../http/hosts.ts";
import { Refusal, refuse } from "../http/refusal.ts";
import { requestIdOf } from "../http/request-id.ts";
import { type KapRow, kapNotFound } from "../services/kaps/kap.ts";
import { readKapCookie } from "./hand-over-cookie.ts";
import { findVisitor, isFromOwnPage, mayEnter } from "./hand-over-visitor.ts";
import { matchingSecret, readSignature, type Signature, signatureSkewSeconds } from "./signature.ts";

/** What a call of a kap presents, and what of it the program must not see. */
export interface CallCredential {
  tokenKind: "bypass" | "endpoint" | null;
  token: string | null;
  signature: Signature | null;
  /** A member's session token, presented as Bearer or in X-Session-Token. */
  session: Presented | null;
  /** The value of this host's own cookie, where nothing else is presented. */
  cookie: string | null;
  /** Path and query as the program sees them. */
  target: string;
  /** Header names (lowercase) that are taken away. */
  consumed: ReadonlySet<string>;
  /** Set when a member was recognised. */
  isMember: boolean;
  user: { id: string; email: string; name: string; role: string } | null;
}

const secretPath = /^\/__kaps\/e\/([^/?]+)(.*)$/s;
const nothing: ReadonlySet<string> = new Set();
const authorizationOnly: ReadonlySet<string> = new Set(["authorization"]);
const signatureOnly: ReadonlySet<string> = new Set(["x-kaps-signature"]);
const both: ReadonlySet<string> = new Set(["authorization", "x-kaps-signature"]);

/**
 * Reads the credential of a call: a bypass token as Bearer, an endpoint secret in the path, a signature, a member's session, or
 * the cookie of the kap's own host. An `Authorization` that is none of the platform's belongs to the program and is passed on untouched.
 */
export function readCallCredential(host: Host, request: IncomingMessage, scheme: "http" | "https"): CallCredential {
  const target = request.url ?? "/";
  const header = request.headers["x-kaps-signature"];
  const signature = typeof header === "string" ? readSignature(header, Date.now()) : null;
  const bearer = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? "")?.[1] ?? null;
  const base = { signature, session: null, cookie: null, isMember: false, user: null };
  const path = secretPath.exec(target);
  if (path) {
    const rest = path[2] as string;
    if (rest.startsWith("/__kaps/")) throw kapNotFound("at this address: /__kaps/ belongs to the platform");
    return {
      ...base,
      tokenKind: "endpoint",
      token: path[1] as string,
      target: rest.startsWith("/") ? rest : `/${rest}`,
      consumed: signature ? both : bearer?.startsWith("kbt_") ? authorizationOnly : nothing,
    };
  }
  if (host.zone === "runtime" || target.startsWith("/__kaps/")) throw kapNotFound("at this address: /__kaps/ belongs to the platform");
  if (bearer?.startsWith("kbt_"))
    return { ...base, tokenKind: "bypass", token: bearer, target, consumed: signature ? both : authorizationOnly };
  const session = readSession(request, bearer);
  if (session) {
    const isBearer = session.via === "authorization";
    return {
      ...base,
      tokenKind: null,
      token: null,
      target,
      session,
      consumed: isBearer ? (signature ? both : authorizationOnly) : signature ? signatureOnly : nothing,
    };
  }
  const cookie = signature ? null : readKapCookie(request, "visitor", scheme);
  return { ...base, tokenKind: null, token: null, cookie, target, consumed: signature ? signatureOnly : nothing };
}

/** A member's session. The header of that name may be the program's own: only what has the form of ours is read. */
function readSession(request: IncomingMessage, bearer: string | null): Presented | null {
  if (bearer?.startsWith("kses_")) return presentedAs("authorization", bearer);
  const header = request.headers["x-session-token"];
  return typeof header === "string" && header.startsWith("kses_") ? presentedAs("x-session-token", header) : null;
}

/**
 * Proves what needs more than a digest look-up: a signature (any live endpoint secret of the kap may have made it; an exact repeat within the
 * window is refused), a member's session, and the host's cookie. Returns who called, or null when nothing was proved.
 */
export async function proveSignature(
  deps: Deps,
  host: Host,
  credential: CallCredential,
  request: IncomingMessage,
  body: Buffer | null,
): Promise<string | null> {
  const signed = credential.signature ? await proveBySecret(deps, host, credential.signature, request, body) : null;
  const member = credential.session ? await proveMember(deps, host, credential, credential.session, request) : null;
  const visitor = credential.cookie === null ? null : await proveVisitor(deps, host, credential, credential.cookie, request);
  return member ?? signed ?? visitor;
}

/**
 * Browsers send cookies unasked: one that is over, or whose holder is not on the list any more, is as good as none, and a change sent by a page of another host is
 * refused (of a public kap it is an anonymous one).
 */
async function proveVisitor(
  deps: Deps,
  host: Host,
  credential: CallCredential,
  cookie: string,
  request: IncomingMessage,
): Promise<string | null> {
  if (host.zone !== "kap") return null;
  const visitor = await findVisitor(deps.postgres.hot, host.slug, cookie);
  if (!visitor) return null;
  const origin = `${deps.addresses.scheme}://${request.headers.host}`;
  if (!isFromOwnPage(request, origin)) {
    if (visitor.audience === "public") return null;
    throw new Refusal(
      403,
      "ORIGIN_MISMATCH",
      `a change made with the kap's cookie must come from a page of the kap: send Origin: ${origin}`,
    );
  }
  credential.user = visitor.user;
  credential.isMember = visitor.isOwn;
  return visitor.caller;
}

async function proveBySecret(
  deps: Deps,
  host: Host,
  signature: Signature,
  request: IncomingMessage,
  body: Buffer | null,
): Promise<string | null> {
  if (host.zone !== "kap") return null;
  const { rows } = await deps.postgres.hot.query<{ id: string; kap_id: string; name: string; sealed_value: Buffer }>({
    name: "endpoint-secrets",
    text: `select t.id, t.kap_id, t.name, t.sealed_value from kaps k join kap_tokens t on t.kap_id = k.id
           where k.slug = $1 and t.kind = 'endpoint' and t.revoked_at is null and (t.expires_at is null or t.expires_at > now())`,
    values: [host.slug],
  });
  const secrets = rows.map((row) => deps.keyring.open(row.sealed_value, `endpoint:${row.id}`));
  const index = matchingSecret(secrets, signature, {
    method: request.method ?? "GET",
    target: request.url ?? "/",
    body: body ?? Buffer.alloc(0),
  });
  const row = rows[index];
  if (!row) {
    throw new Refusal(
      401,
      "INVALID_SIGNATURE",
      "no live endpoint secret of this kap made this signature: sign kaps-endpoint-v1, METHOD, TARGET, t and the exact body, joined by newlines",
    );
  }
  const { rowCount } = await deps.postgres.hot.query({
    name: "endpoint-signature-seen",
    text: `insert into endpoint_signatures (kap_id, signature, expires_at) values ($1, $2, now() + make_interval(secs => $3)) on conflict do nothing`,
    values: [row.kap_id, signature.mac, signatureSkewSeconds * 2 + 1],
  });
  if (rowCount === 0)
    throw new Refusal(401, "REPLAYED_SIGNATURE", "this exact signature has been used: sign each request anew with the current time");
  return `endpoint:${row.name}`;
}

async function proveMember(
  deps: Deps,
  host: Host,
  credential: CallCredential,
  presented: Presented,
  request: IncomingMessage,
): Promise<string | null> {
  const caller = await resolveCaller(deps, presented, {
    address: clientAddress(request, deps.config.trustedProxies),
    userAgent: request.headers["user-agent"] ?? null,
    requestId: requestIdOf(request.headers["x-request-id"]),
  });
  const member = caller.member;
  if (!member || host.zone !== "kap") throw unauthenticated();
  if (caller.mayOnlyEnrol) throw refuse("FORBIDDEN", "this organisation requires a second factor: enrol one, then call the kap");
  const { rows } = await deps.postgres.hot.query<Pick<KapRow, "org_id" | "audience" | "invited">>({
    name: "kap-audience",
    text: "select org_id, audience, invited from kaps where slug = $1",
    values: [host.slug],
  });
  const kap = rows[0];
  if (!kap) throw kapNotFound(host.slug);
  const isOwn = kap.org_id === caller.org.id;
  if (!mayEnter(kap, { email: member.email, isOwn, isGuest: false })) {
    if (!isOwn) throw kapNotFound(host.slug);
    throw new Refusal(403, "FORBIDDEN", "this kap is open to the people on its list only: ask for an invitation");
  }
  credential.user = { id: member.id, email: member.email, name: member.name, role: member.role };
  credential.isMember = isOwn;
  return `member:${member.email}`;
}
