import { isId, newId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import { type Actor, actorOf, type Caller } from "../../http/caller.ts";
import { type Addresses, slugPattern } from "../../http/hosts.ts";
import { Refusal } from "../../http/refusal.ts";
import { recordAudit } from "../auth/audit.ts";

/** A kap as PostgreSQL keeps it. */
export interface KapRow {
  id: string;
  org_id: string;
  workspace_id: string | null;
  slug: string;
  name: string;
  audience: "members" | "invited" | "public";
  invited: string[];
  audience_revision: number;
  state: "active" | "disabled" | "deleted";
  disabled: { by: Actor; at: string; reason: string } | null;
  current_version_id: string;
  revision: number;
  schema_name: string;
  role_name: string;
  role_password: Buffer;
  bucket: string;
  created_at: Date;
  created_by: Actor;
  updated_at: Date;
  deleted_at: Date | null;
  recover_until: Date | null;
  purged_at: Date | null;
}

/** 404 of the kaps service. */
export function kapNotFound(idOrSlug: string): Refusal {
  return new Refusal(404, "KAP_NOT_FOUND", `no kap ${idOrSlug} in this organisation: check its id or slug`);
}

/**
 * Finds a kap of the caller's organisation by id or slug, in whatever state; a workspace chosen by the caller narrows it. Refuses with 404.
 * For `load` of every kap route: what a deleted or disabled kap may still do is decided later, by `refuseDeleted` and `refuseDisabled`.
 */
export async function findKap(db: Db, caller: Caller, idOrSlug: string): Promise<KapRow> {
  const named = isId(idOrSlug) ? { id: idOrSlug } : slugPattern.test(idOrSlug) ? { slug: idOrSlug } : null;
  const row: KapRow | undefined =
    named &&
    (await db("kaps")
      .where({ org_id: caller.org.id, ...named })
      .first());
  if (
    !row ||
    (caller.workspaceId !== null && row.workspace_id !== caller.workspaceId) ||
    (caller.kapId !== null && caller.kapId !== row.id)
  ) {
    throw kapNotFound(idOrSlug);
  }
  return row;
}

/** 410: a deleted kap takes no change and serves nothing until it is recovered. */
export function refuseDeleted(kap: KapRow): void {
  if (kap.state !== "deleted") return;
  const until = kap.recover_until?.toISOString();
  const isOver = kap.recover_until !== null && kap.recover_until.getTime() <= Date.now();
  throw new Refusal(
    410,
    "KAP_DELETED",
    isOver
      ? `the kap ${kap.slug} was deleted and could be recovered until ${until}: it is gone`
      : `the kap ${kap.slug} was deleted: recover it until ${until} with POST /v1/orgs/${kap.org_id}/kaps/${kap.id}/recover`,
    { details: { deleted_at: kap.deleted_at, recover_until: kap.recover_until } },
  );
}

/** A disabled kap refuses with who, when and why (spec 3 §3 B): 409 on run-now and dry-run, 503 on a call. */
export function refuseDisabled(kap: Pick<KapRow, "slug" | "state" | "disabled">, status: 409 | 503): void {
  if (kap.state !== "disabled" || !kap.disabled) return;
  const { by, at, reason } = kap.disabled;
  throw new Refusal(
    status,
    "KAP_DISABLED",
    `the kap ${kap.slug} was disabled by ${by.name} at ${at}: ${reason}. An organisation member can enable it again`,
    {
      details: { by, at, reason },
    },
  );
}

/** Writes an event of a kap's history, in the transaction of the change. `detail` never holds a secret's value. */
export async function recordKapEvent(
  db: Db,
  event: { kap_id: string; kind: string; actor: Actor; client: string | null; detail?: object },
): Promise<void> {
  await db("kap_events").insert({ id: newId(), ...event, actor: JSON.stringify(event.actor), detail: JSON.stringify(event.detail ?? {}) });
}

/** Writes a member's change of a kap into its history and the organisation's audit, in the transaction of the change. */
export async function recordKapChange(
  db: Db,
  caller: Caller,
  client: string | null,
  change: { kap_id: string; kind: string; detail?: object },
): Promise<void> {
  await recordKapEvent(db, { ...change, actor: actorOf(caller), client });
  await recordAudit(db, caller, {
    action: `kap.${change.kind}`,
    target: { kind: "kap", id: change.kap_id },
    ...(change.detail ? { detail: change.detail } : {}),
  });
}

/** Takes the kap's row for the rest of the transaction, as it stands now, and refuses with 410 when it has been deleted meanwhile. */
export async function lockKap(trx: Db, kapId: string): Promise<KapRow> {
  const row: KapRow | undefined = await trx("kaps").where({ id: kapId }).forNoKeyUpdate().first();
  if (!row) throw kapNotFound(kapId);
  refuseDeleted(row);
  return row;
}

/** Makes every runtime of the kap read its assignment anew before its next request: call it in the transaction of any change a runtime must know. Returns the new revision. */
export async function bumpRevision(db: Db, kapId: string): Promise<number> {
  const rows: { revision: number }[] = await db("kaps")
    .where({ id: kapId })
    .increment("revision", 1)
    .update({ updated_at: db.fn.now() })
    .returning("revision");
  return rows[0]?.revision ?? 0;
}

/** The kap as the contract shows it (decided §7.3). */
export function presentKap(kap: KapRow, addresses: Addresses): Record<string, unknown> {
  return {
    id: kap.id,
    slug: kap.slug,
    name: kap.name,
    org_id: kap.org_id,
    address: addresses.kap(kap.slug),
    mail_address: `${kap.slug}@${addresses.mailDomain}`,
    audience: kap.audience,
    state: kap.state,
    disabled: kap.disabled,
    current_version_id: kap.current_version_id,
    created_at: kap.created_at,
    created_by: kap.created_by,
    updated_at: kap.updated_at,
    deleted_at: kap.deleted_at,
    recover_until: kap.recover_until,
  };
}
