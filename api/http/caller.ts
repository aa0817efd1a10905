/** The kinds of credential a caller can hold (spec 1 §2.1; decided §3 `credential.kind`), and the kap store's own. */
export const credentialKinds = ["api_key", "service_token", "session", "jwt", "app_token", "agent_key", "store_token", "runtime"] as const;
export type CredentialKind = (typeof credentialKinds)[number];

export const scopes = ["read", "write", "admin"] as const;
export type Scope = (typeof scopes)[number];

/** Who is calling: found by one indexed read on the primary for every request, never cached (revocation holds from the next request on). */
export interface Caller {
  kind: CredentialKind;
  /** The credential's id; of a JWT that of its session. */
  credentialId: string;
  credentialName: string;
  /** `live`, `test` or `org` of an API key, the token type of a service token. */
  subkind: string | null;
  /** `live` is the organisation that has the members, roles and settings: itself, or the one that a test organisation is paired with. */
  org: { id: string; slug: string; name: string; mode: "live" | "test"; live: { id: string; slug: string } };
  /** Scopes of keys and tokens; empty for members. */
  scopes: readonly string[];
  expiresAt: Date | null;
  member: { id: string; accountId: string; email: string; name: string; role: string; permissions: ReadonlySet<string> } | null;
  agent: { id: string; name: string } | null;
  /** A second factor is enforced and not enrolled: this session may do nothing but enrol. */
  mayOnlyEnrol: boolean;
  projectId: string | null;
  workspaceId: string | null;
  /** Of a store token or a runtime: the only kap it may touch. */
  kapId: string | null;
  /** Whether the credential came as a cookie, so that changes need a matching Origin. */
  viaCookie: boolean;
  address: string;
  userAgent: string | null;
  requestId: string;
}

/** Who did it, as stored in records, history and audit. */
export interface Actor {
  kind: "member" | "key" | "agent" | "token" | "runtime" | "system";
  id: string;
  name: string;
}

/** The actor a caller acts as. */
export function actorOf(caller: Caller): Actor {
  if (caller.member) return { kind: "member", id: caller.member.id, name: caller.member.name };
  if (caller.agent) return { kind: "agent", id: caller.agent.id, name: caller.agent.name };
  const kind = caller.kind === "api_key" ? "key" : caller.kind === "runtime" ? "runtime" : "token";
  return { kind, id: caller.credentialId, name: caller.credentialName };
}

/** The system acting on its own: retention, schedules, purges. */
export const systemActor: Actor = { kind: "system", id: "system", name: "Kapstone" };
