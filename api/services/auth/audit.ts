import { newId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import { type Actor, actorOf, type Caller } from "../../http/caller.ts";

/** One line of the audit: what was done (`api-key.created`), to what, and what changed. Never holds a secret. */
export interface AuditEntry {
  action: string;
  target?: { kind: string; id: string; name?: string };
  detail?: object;
}

/** Who did it, from where, with which credential: for what happens without a `Caller` (sign-ins, accepted invitations, reported secrets). */
export interface AuditSource {
  org_id: string;
  actor: Omit<Actor, "kind"> & { kind: Actor["kind"] | "anonymous" };
  address: string | null;
  request_id: string | null;
  credential?: { kind: string; id: string; name: string } | null;
}

/** Writes an audit line in the transaction of the change it tells of. Every service calls this for every change it makes. */
export async function recordAudit(db: Db, caller: Caller, entry: AuditEntry): Promise<void> {
  await recordAuditOf(
    db,
    {
      org_id: caller.org.id,
      actor: actorOf(caller),
      address: caller.address,
      request_id: caller.requestId,
      credential: { kind: caller.kind, id: caller.credentialId, name: caller.credentialName },
    },
    entry,
  );
}

/** As `recordAudit`, for a source that is no `Caller`. */
export async function recordAuditOf(db: Db, source: AuditSource, entry: AuditEntry): Promise<void> {
  await db("audit_events").insert({
    id: newId(),
    org_id: source.org_id,
    action: entry.action,
    actor: JSON.stringify(source.actor),
    target: JSON.stringify(entry.target ?? {}),
    address: source.address,
    credential: source.credential ? JSON.stringify(source.credential) : null,
    request_id: source.request_id,
    detail: JSON.stringify(entry.detail ?? {}),
  });
}
