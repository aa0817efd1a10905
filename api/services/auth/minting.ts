import { newId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import { mintSecret, type SecretPrefix } from "#platform/secrets.ts";
import { actorOf, type Caller, type Scope } from "../../http/caller.ts";
import { permissionNames, permissions } from "../../http/permissions.ts";
import { refuse } from "../../http/refusal.ts";
import { recordAudit } from "./audit.ts";

/** A credential to be minted. `orgId` is the organisation it acts in: the caller's, or the test one it is paired with. */
export interface NewCredential {
  kind: "api_key" | "service_token" | "app_token" | "agent_key";
  subkind?: string;
  prefix: SecretPrefix;
  orgId: string;
  name: string;
  scopes: readonly Scope[];
  expiresAt: Date | null;
  projectId?: string | null;
  workspaceId?: string | null;
  agentId?: string;
}

export interface MintedCredential {
  id: string;
  secret: string;
  key_prefix: string;
  created_at: Date;
}

const auditName = { api_key: "api-key", service_token: "service-token", app_token: "app-token", agent_key: "agent-key" } as const;

/**
 * A credential never gets more than its minter may do (decided §3): whoever gives a scope must hold every permission that scope covers.
 * 403 naming what is missing.
 */
export function checkMayGive(caller: Caller, scopes: readonly string[]): void {
  const missing = permissionNames.filter((name) => scopes.includes(permissions[name].scope) && !caller.member?.permissions.has(name));
  if (missing.length > 0) {
    throw refuse(
      "FORBIDDEN",
      `a credential cannot do more than whoever makes it: the scopes ${scopes.join(", ")} cover permissions your role lacks (${missing.join(", ")})`,
    );
  }
}

/** Mints a credential in the caller's transaction: row, digest, audit line. The secret is in the answer and nowhere else. */
export async function mintCredential(db: Db, caller: Caller, wanted: NewCredential): Promise<MintedCredential> {
  checkMayGive(caller, wanted.scopes);
  const id = newId();
  const { secret, digest, keyPrefix } = mintSecret(wanted.prefix);
  const [row] = (await db("credentials")
    .insert({
      id,
      org_id: wanted.orgId,
      kind: wanted.kind,
      subkind: wanted.subkind ?? null,
      name: wanted.name,
      scopes: wanted.scopes,
      agent_id: wanted.agentId ?? null,
      project_id: wanted.projectId ?? null,
      workspace_id: wanted.workspaceId ?? null,
      key_prefix: keyPrefix,
      created_by: JSON.stringify(actorOf(caller)),
      expires_at: wanted.expiresAt,
    })
    .returning("created_at")) as { created_at: Date }[];
  await db("credential_secrets").insert({ digest, credential_id: id });
  await recordAudit(db, caller, {
    action: `${auditName[wanted.kind]}.created`,
    target: { kind: wanted.kind, id, name: wanted.name },
    detail: { key_prefix: keyPrefix, scopes: wanted.scopes, expires_at: wanted.expiresAt, kind: wanted.subkind },
  });
  return { id, secret, key_prefix: keyPrefix, created_at: row?.created_at ?? new Date() };
}

/** Revokes a credential in the caller's transaction: dead from the next request on, on every replica. False when it was revoked already. */
export async function revokeCredential(
  db: Db,
  caller: Caller,
  credential: { id: string; kind: NewCredential["kind"]; name: string },
): Promise<boolean> {
  const revoked = await db("credentials").where({ id: credential.id, revoked_at: null }).update({ revoked_at: db.fn.now() });
  if (revoked === 0) return false;
  await recordAudit(db, caller, {
    action: `${auditName[credential.kind]}.revoked`,
    target: { kind: credential.kind, id: credential.id, name: credential.name },
  });
  return true;
}
