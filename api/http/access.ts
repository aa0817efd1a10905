import type { Caller, CredentialKind, Scope } from "./caller.ts";
import { type Refusal, refuse } from "./refusal.ts";

/**
 * What a route asks of its caller. Declared beside every route, enforced in one place, shown in OpenAPI as `x-access` and in docs/access.md.
 */
export interface Access {
  /** Anyone, no credential is read. */
  open: boolean;
  /** Credential kinds that may call. */
  kinds: readonly CredentialKind[];
  /** What every other kind hears: 401 as if it were no credential here, or 403. */
  otherKinds: 401 | 403;
  /** Scope that keys and tokens need. */
  scope: Scope | null;
  /** Permission that members (sessions and JWTs) need. */
  permission: string | null;
  /** A session that must still enrol its second factor may call this one. */
  whileEnrolling: boolean;
}

const memberKinds = ["session", "jwt"] as const;

/** No credential: signup, login, public reads. */
export function open(): Access & { open: true } {
  return { open: true, kinds: [], otherKinds: 401, scope: null, permission: null, whileEnrolling: true };
}

/** Members only, with a permission or merely as a member. Keys and tokens hear 403 (`permission required`), or 401 where the service knows only members. */
export function members(
  permission: string | null,
  options: { otherKinds?: 401 | 403; whileEnrolling?: boolean; also?: readonly CredentialKind[] } = {},
): Access & { open: false } {
  return {
    open: false,
    kinds: [...memberKinds, ...(options.also ?? [])],
    otherKinds: options.otherKinds ?? 403,
    scope: null,
    permission,
    whileEnrolling: options.whileEnrolling ?? false,
  };
}

/** Keys and service tokens by scope, members by permission. `also` admits further kinds by scope. */
export function scoped(
  scope: Scope,
  permission: string | null,
  options: { kinds?: readonly CredentialKind[]; otherKinds?: 401 | 403 } = {},
): Access & { open: false } {
  return {
    open: false,
    kinds: options.kinds ?? [...memberKinds, "api_key", "service_token"],
    otherKinds: options.otherKinds ?? 403,
    scope,
    permission,
    whileEnrolling: false,
  };
}

/** Any credential of the listed kinds, without a scope or permission: who you are, streams of your own. */
export function anyOf(
  kinds: readonly CredentialKind[],
  options: { otherKinds?: 401 | 403; whileEnrolling?: boolean } = {},
): Access & { open: false } {
  return {
    open: false,
    kinds,
    otherKinds: options.otherKinds ?? 401,
    scope: null,
    permission: null,
    whileEnrolling: options.whileEnrolling ?? false,
  };
}

const unauthorized = "a valid credential is required: send an API key in x-api-key, or a session token or JWT in Authorization: Bearer";

/** 401: no credential, or one that does not hold. Unknown, revoked and expired are not told apart. */
export function unauthenticated(message: string = unauthorized): Refusal {
  return refuse("UNAUTHORIZED", message, { headers: { "www-authenticate": "Bearer" } });
}

/** The 401 of an access rule: kinds the surface does not know at all. Runs before anything is looked up. */
export function checkKind(access: Access, caller: Caller): void {
  if (!access.kinds.includes(caller.kind) && access.otherKinds === 401) {
    throw unauthenticated(`this route does not take a credential of this kind: it takes ${access.kinds.join(", ")}`);
  }
}

/** The 403s of an access rule; runs after the thing asked for is known to exist in the caller's organisation. */
export function checkRights(access: Access, caller: Caller): void {
  if (!access.kinds.includes(caller.kind))
    throw refuse("FORBIDDEN", "permission required: this needs a member's session, not a key or token");
  if (caller.mayOnlyEnrol && !access.whileEnrolling) {
    throw refuse("FORBIDDEN", "this organisation requires a second factor: enrol one with POST /v1/auth/mfa/totp, then sign in again");
  }
  if (caller.member) {
    if (access.permission !== null && !caller.member.permissions.has(access.permission)) {
      throw refuse("FORBIDDEN", `permission required: ${access.permission} (an owner or admin can give it to a role)`);
    }
  } else if (access.scope !== null && !caller.scopes.includes(access.scope)) {
    throw refuse(
      "FORBIDDEN",
      `scope required: ${access.scope} (this credential has ${caller.scopes.join(", ") || "none"}; mint one that has it)`,
    );
  }
}
