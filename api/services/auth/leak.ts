import { isId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import { parseSecret } from "#platform/secrets.ts";
import type { Deps } from "../../deps.ts";
import { systemActor } from "../../http/caller.ts";
import { recordKapEvent } from "../kaps/kap.ts";
import { recordAuditOf } from "./audit.ts";

/** Where a leak was reported from, and where the secret was found. */
export interface LeakReport {
  address: string;
  requestId: string;
  url: string | null;
}

interface Revoked {
  id: string;
  org_id: string;
  kind: string;
  name: string;
}

/** Revokes whatever a leaked secret proves, in one transaction with its audit line. Answers the kind, or null when nothing live was found. */
export async function revokeLeaked(deps: Deps, secret: string, report: LeakReport): Promise<string | null> {
  return deps.db.transaction(async (trx) => {
    const revoked = await revokeBySecret(deps, trx, secret.trim());
    if (!revoked) return null;
    await recordAuditOf(
      trx,
      {
        org_id: revoked.org_id,
        actor: { kind: "anonymous", id: "leak-report", name: "Leak report" },
        address: report.address,
        request_id: report.requestId,
      },
      { action: "secret.leaked", target: { kind: revoked.kind, id: revoked.id, name: revoked.name }, detail: { found_at: report.url } },
    );
    return revoked.kind;
  });
}

async function revokeBySecret(deps: Deps, db: Db, secret: string): Promise<Revoked | null> {
  if (secret.includes(".")) {
    const claims = await deps.jwt.verify(secret);
    return claims && isId(claims.sid) ? revokeCredentials(db, { id: claims.sid }) : null;
  }
  const parsed = parseSecret(secret);
  if (!parsed) return null;
  const isOfKap = parsed.prefix === "kbt_" || parsed.prefix === "kes_" || parsed.prefix === "kst1_";
  if (isOfKap) return revokeKapToken(db, parsed.digest);
  const holder: { credential_id: string } | undefined = await db("credential_secrets")
    .where({ digest: parsed.digest })
    .whereRaw("(live_until is null or live_until > now())")
    .first("credential_id");
  return holder ? revokeCredentials(db, { id: holder.credential_id }) : null;
}

async function revokeCredentials(db: Db, where: { id: string }): Promise<Revoked | null> {
  const [row] = (await db("credentials")
    .where({ ...where, revoked_at: null })
    .whereRaw("(expires_at is null or expires_at > now())")
    .update({ revoked_at: db.fn.now() })
    .returning(["id", "org_id", "kind", "name"])) as Revoked[];
  return row ?? null;
}

const kapKinds: Record<string, string> = { bypass: "bypass_token", endpoint: "endpoint_secret", store: "store_token" };

async function revokeKapToken(db: Db, digest: Buffer): Promise<Revoked | null> {
  const [row] = (await db("kap_tokens")
    .where({ digest, revoked_at: null })
    .whereRaw("(expires_at is null or expires_at > now())")
    .update({ revoked_at: db.fn.now() })
    .returning(["id", "kap_id", "kind", "name"])) as { id: string; kap_id: string; kind: string; name: string }[];
  if (!row) return null;
  const kap: { org_id: string } | undefined = await db("kaps").where({ id: row.kap_id }).first("org_id");
  if (!kap) return null;
  await recordKapEvent(db, {
    kap_id: row.kap_id,
    kind: row.kind === "endpoint" ? "endpoint-secret.revoked" : "token.revoked",
    actor: systemActor,
    client: null,
    detail: { id: row.id, name: row.name, reason: "leaked" },
  });
  return { id: row.id, org_id: kap.org_id, kind: kapKinds[row.kind] ?? row.kind, name: row.name };
}
