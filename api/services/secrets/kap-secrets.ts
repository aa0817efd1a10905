import type { Deps } from "../../deps.ts";
import { actorOf, type Caller } from "../../http/caller.ts";
import { notFound } from "../../http/refusal.ts";
import { lockKap, recordKapChange } from "../kaps/kap.ts";
import { groupNotFound, lockGroup, recordGroupChange } from "./group.ts";
import { confirmRefresh, markRefresh } from "./refresh.ts";
import { claimNames } from "./secret-names.ts";
import { putSecret, secretsOfGroup } from "./secrets.ts";

/** Sets a secret of a kap's own. Returns whether a runtime has yet to confirm it. */
export async function setKapSecret(
  deps: Deps,
  caller: Caller,
  client: string | null,
  kapId: string,
  name: string,
  value: string,
): Promise<boolean> {
  await deps.db.transaction(async (trx) => {
    await lockKap(trx, kapId);
    const actor = actorOf(caller);
    const { id, isNew } = await putSecret(trx, deps.keyring, { owner: { kap_id: kapId }, name, value, actor });
    if (isNew) await claimNames(trx, [{ kap_id: kapId, secret_id: id, name }]);
    await recordKapChange(trx, caller, client, { kap_id: kapId, kind: "secret.set", detail: { name } });
    await markRefresh(deps, trx, [kapId]);
  });
  return confirmRefresh(deps, [kapId]);
}

/** Deletes a secret of a kap's own; 404 when it has none of that name (one of a group's is deleted in its group). */
export async function deleteKapSecret(deps: Deps, caller: Caller, client: string | null, kapId: string, name: string): Promise<boolean> {
  await deps.db.transaction(async (trx) => {
    await lockKap(trx, kapId);
    const deleted = await trx("secrets").where({ kap_id: kapId, name }).delete(); // its name goes with it
    if (deleted === 0) throw notFound(`the secret ${name} of this kap`);
    await recordKapChange(trx, caller, client, { kap_id: kapId, kind: "secret.deleted", detail: { name } });
    await markRefresh(deps, trx, [kapId]);
  });
  return confirmRefresh(deps, [kapId]);
}

/** Attaches a group to a kap: the kap sees the group's secrets from its next request on. Attaching it again changes nothing. */
export async function attachGroup(deps: Deps, caller: Caller, client: string | null, kapId: string, groupId: string): Promise<boolean> {
  await deps.db.transaction(async (trx) => {
    const group = await lockGroup(trx, caller.org.id, groupId);
    const kap = await lockKap(trx, kapId);
    const added: unknown[] = await trx("kap_secret_groups")
      .insert({ kap_id: kapId, group_id: groupId })
      .onConflict()
      .ignore()
      .returning("kap_id");
    if (added.length === 0) return;
    const secrets = await secretsOfGroup(trx, groupId);
    await claimNames(
      trx,
      secrets.map((secret) => ({ kap_id: kapId, secret_id: secret.id, name: secret.name })),
    );
    const detail = { group_id: groupId, group_name: group.name };
    await recordKapChange(trx, caller, client, { kap_id: kapId, kind: "group.attached", detail });
    await recordGroupChange(trx, caller, client, { group_id: groupId, kind: "attached", detail: { kap_id: kapId, kap_slug: kap.slug } });
    await markRefresh(deps, trx, [kapId]);
  });
  return confirmRefresh(deps, [kapId]);
}

/** Detaches a group from a kap; 404 when it is not attached. */
export async function detachGroup(deps: Deps, caller: Caller, client: string | null, kapId: string, groupId: string): Promise<boolean> {
  await deps.db.transaction(async (trx) => {
    const group = await lockGroup(trx, caller.org.id, groupId);
    const kap = await lockKap(trx, kapId);
    const removed = await trx("kap_secret_groups").where({ kap_id: kapId, group_id: groupId }).delete();
    if (removed === 0) throw groupNotFound(groupId);
    await trx("kap_secret_names")
      .where({ kap_id: kapId })
      .whereIn("secret_id", trx("secrets").where({ group_id: groupId }).select("id"))
      .delete();
    const detail = { group_id: groupId, group_name: group.name };
    await recordKapChange(trx, caller, client, { kap_id: kapId, kind: "group.detached", detail });
    await recordGroupChange(trx, caller, client, { group_id: groupId, kind: "detached", detail: { kap_id: kapId, kap_slug: kap.slug } });
    await markRefresh(deps, trx, [kapId]);
  });
  return confirmRefresh(deps, [kapId]);
}
