import { isId, newId } from "#platform/ids.ts";
import { type Db, isUniqueViolation } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";
import { type Actor, actorOf, type Caller } from "../../http/caller.ts";
import { notFound, type Refusal, refuse } from "../../http/refusal.ts";
import { recordAudit } from "../auth/audit.ts";
import { confirmRefresh, markRefresh } from "./refresh.ts";
import { claimNames } from "./secret-names.ts";
import { putSecret } from "./secrets.ts";

/** A group of secrets that kaps of one organisation share. */
export interface GroupRow {
  id: string;
  org_id: string;
  name: string;
  created_at: Date;
  created_by: Actor;
  deleted_at: Date | null;
}

export function presentGroup(group: Pick<GroupRow, "id" | "name">): { id: string; name: string } {
  return { id: group.id, name: group.name };
}

export function groupNotFound(id: string): Refusal {
  return notFound(`the secret group ${id}`);
}

/** Finds a group of an organisation, or refuses with 404. */
export async function findGroup(db: Db, orgId: string, id: string): Promise<GroupRow> {
  const row: GroupRow | undefined = isId(id)
    ? await db("secret_groups").where({ id, org_id: orgId }).whereNull("deleted_at").first()
    : undefined;
  if (!row) throw groupNotFound(id);
  return row;
}

/** Takes the group's row for the rest of the transaction: who attaches it and who changes its secrets wait for each other, so neither misses the other. */
export async function lockGroup(trx: Db, orgId: string, id: string): Promise<GroupRow> {
  const row: GroupRow | undefined = isId(id)
    ? await trx("secret_groups").where({ id, org_id: orgId }).whereNull("deleted_at").forUpdate().first()
    : undefined;
  if (!row) throw groupNotFound(id);
  return row;
}

/** Writes a change of a group into its history and the organisation's audit, in the transaction of the change. `detail` never holds a value. */
export async function recordGroupChange(
  db: Db,
  caller: Caller,
  client: string | null,
  change: { group_id: string; kind: string; detail?: object },
): Promise<void> {
  const { group_id, kind, detail } = change;
  await db("secret_group_events").insert({
    id: newId(),
    group_id,
    kind,
    actor: JSON.stringify(actorOf(caller)),
    client,
    detail: JSON.stringify(detail ?? {}),
  });
  await recordAudit(db, caller, {
    action: `secret-group.${kind}`,
    target: { kind: "secret-group", id: group_id },
    ...(detail ? { detail } : {}),
  });
}

function nameTaken(error: unknown, name: string): unknown {
  if (!isUniqueViolation(error, "secret_groups_name")) return error;
  return refuse("CONFLICT", `a secret group named ${name} exists already: choose another name`);
}

/** Creates a group; 409 when a live one of the organisation has the name. */
export async function createGroup(deps: Deps, caller: Caller, client: string | null, name: string): Promise<GroupRow> {
  try {
    return await deps.db.transaction(async (trx) => {
      const actor = actorOf(caller);
      const [group]: GroupRow[] = await trx("secret_groups")
        .insert({ id: newId(), org_id: caller.org.id, name, created_by: JSON.stringify(actor) })
        .returning("*");
      if (!group) throw new Error("the group was not written");
      await recordGroupChange(trx, caller, client, { group_id: group.id, kind: "created", detail: { name } });
      return group;
    });
  } catch (error) {
    throw nameTaken(error, name);
  }
}

/** Renames a group. */
export async function renameGroup(deps: Deps, caller: Caller, client: string | null, id: string, name: string): Promise<GroupRow> {
  try {
    return await deps.db.transaction(async (trx) => {
      const before = await lockGroup(trx, caller.org.id, id);
      if (before.name === name) return before;
      await trx("secret_groups").where({ id }).update({ name });
      const detail = { before: before.name, after: name };
      await recordGroupChange(trx, caller, client, { group_id: id, kind: "renamed", detail });
      return { ...before, name };
    });
  } catch (error) {
    throw nameTaken(error, name);
  }
}

/** Deletes a group and its secrets; 409 while a kap that is not purged has it attached. */
export async function deleteGroup(deps: Deps, caller: Caller, client: string | null, id: string): Promise<GroupRow> {
  return deps.db.transaction(async (trx) => {
    const group = await lockGroup(trx, caller.org.id, id);
    const kaps: { slug: string; deleted_at: Date | null }[] = await trx("kap_secret_groups as a")
      .join("kaps as k", "k.id", "a.kap_id")
      .where("a.group_id", id)
      .orderBy("k.slug")
      .limit(20)
      .select("k.slug", "k.deleted_at");
    if (kaps.length > 0) {
      const names = kaps.map((kap) => (kap.deleted_at === null ? kap.slug : `${kap.slug} (deleted, can be recovered)`));
      const first = kaps.some((kap) => kap.deleted_at !== null) ? "; a deleted kap has to be recovered for that, or be purged" : "";
      throw refuse("CONFLICT", `the group ${group.name} is attached to ${names.join(", ")}: detach it there first${first}`, {
        details: { kaps: kaps.map((kap) => kap.slug) },
      });
    }
    await trx("secrets").where({ group_id: id }).delete();
    await trx("secret_groups").where({ id }).update({ deleted_at: trx.fn.now() });
    await recordGroupChange(trx, caller, client, { group_id: id, kind: "deleted" });
    return group;
  });
}

/** The kaps that see a group, taken for the rest of the transaction. Always the group first, then kaps in this order, then names: nobody waits in a circle. */
async function lockAttachedKaps(trx: Db, groupId: string): Promise<string[]> {
  const rows: { id: string }[] = await trx("kaps")
    .whereIn("id", trx("kap_secret_groups").where({ group_id: groupId }).select("kap_id"))
    .orderBy("id")
    .forNoKeyUpdate()
    .select("id");
  return rows.map((row) => row.id);
}

/** Sets a secret of a group: every attached kap sees it from its next request on. Returns whether a runtime has yet to confirm it. */
export async function setGroupSecret(
  deps: Deps,
  caller: Caller,
  client: string | null,
  groupId: string,
  name: string,
  value: string,
): Promise<boolean> {
  const kapIds = await deps.db.transaction(async (trx) => {
    await lockGroup(trx, caller.org.id, groupId);
    const attached = await lockAttachedKaps(trx, groupId);
    const actor = actorOf(caller);
    const { id, isNew } = await putSecret(trx, deps.keyring, { owner: { group_id: groupId }, name, value, actor });
    if (isNew) {
      await claimNames(
        trx,
        attached.map((kapId) => ({ kap_id: kapId, secret_id: id, name })),
      );
    }
    await recordGroupChange(trx, caller, client, { group_id: groupId, kind: "secret.set", detail: { name } });
    await markRefresh(deps, trx, attached);
    return attached;
  });
  return confirmRefresh(deps, kapIds);
}

/** Deletes a secret of a group; 404 when the group has none of that name. */
export async function deleteGroupSecret(
  deps: Deps,
  caller: Caller,
  client: string | null,
  groupId: string,
  name: string,
): Promise<boolean> {
  const kapIds = await deps.db.transaction(async (trx) => {
    await lockGroup(trx, caller.org.id, groupId);
    const attached = await lockAttachedKaps(trx, groupId);
    const deleted = await trx("secrets").where({ group_id: groupId, name }).delete(); // its names go with it
    if (deleted === 0) throw notFound(`the secret ${name} of this group`);
    await recordGroupChange(trx, caller, client, { group_id: groupId, kind: "secret.deleted", detail: { name } });
    await markRefresh(deps, trx, attached);
    return attached;
  });
  return confirmRefresh(deps, kapIds);
}
