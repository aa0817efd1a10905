import { newId } from "#platform/ids.ts";
import type { Keyring } from "#platform/keyring.ts";
import type { Db } from "#platform/postgres.ts";
import type { Actor } from "../../http/caller.ts";

/** Whose secret it is: a kap's own, or a group's. */
export type Owner = { kap_id: string } | { group_id: string };

/** A secret without its value. */
export interface SecretEntry {
  name: string;
  group_id: string | null;
  group_name: string | null;
}

/** What a sealed secret is bound to. */
function secretContext(id: string): string {
  return `secret:${id}`;
}

/** All secrets a kap sees, its own and those of its groups, with their values: for its runtime's assignment and nothing else. */
export async function effectiveSecrets(db: Db, keyring: Keyring, kapId: string): Promise<Record<string, string>> {
  const rows: { id: string; name: string; sealed_value: Buffer }[] = await db("kap_secret_names as n")
    .join("secrets as s", "s.id", "n.secret_id")
    .where("n.kap_id", kapId)
    .orderBy("n.name")
    .select("s.id", "n.name", "s.sealed_value");
  return Object.fromEntries(rows.map((row) => [row.name, keyring.open(row.sealed_value, secretContext(row.id))]));
}

/** The names a kap sees and where each comes from. */
export function secretsOfKap(db: Db, kapId: string): Promise<SecretEntry[]> {
  return db("kap_secret_names as n")
    .join("secrets as s", "s.id", "n.secret_id")
    .leftJoin("secret_groups as g", "g.id", "s.group_id")
    .where("n.kap_id", kapId)
    .orderBy("n.name")
    .select("n.name", "s.group_id", "g.name as group_name");
}

/** The names of a group's secrets. */
export function secretsOfGroup(db: Db, groupId: string): Promise<{ id: string; name: string }[]> {
  return db("secrets").where({ group_id: groupId }).orderBy("name").select("id", "name");
}

/**
 * Writes a secret's value. The caller holds the owner's row, so nobody writes the same name beside it. Returns its id and whether it is new.
 */
export async function putSecret(
  trx: Db,
  keyring: Keyring,
  secret: { owner: Owner; name: string; value: string; actor: Actor },
): Promise<{ id: string; isNew: boolean }> {
  const { owner, name, value, actor } = secret;
  const existing: { id: string } | undefined = await trx("secrets")
    .where({ ...owner, name })
    .first("id");
  const id = existing?.id ?? newId();
  const columns = { sealed_value: keyring.seal(value, secretContext(id)), set_at: trx.fn.now(), set_by: JSON.stringify(actor) };
  if (existing) await trx("secrets").where({ id }).update(columns);
  else await trx("secrets").insert({ id, ...owner, name, ...columns });
  return { id, isNew: !existing };
}
