import type { Keyring } from "#platform/keyring.ts";
import type { Knex } from "#platform/postgres.ts";

/** Where sealed values lie, and what each is bound to. */
const places = [
  { table: "secrets", column: "sealed_value", context: "secret:" },
  { table: "kap_tokens", column: "sealed_value", context: "endpoint:" },
  { table: "kaps", column: "role_password", context: "kap-role:" },
] as const;
const batch = 200;

/**
 * Seals every stored value of kaps anew with the keyring's first key: after it has run, older keys can be taken out of KAPSTONE_KEYS. A value that
 * changes meanwhile is left alone (it has just been sealed with the first key). Safe to repeat and to interrupt. Returns how many it sealed;
 * throws at the end, naming them, when some could not be opened.
 */
export async function resealSecrets(db: Knex, keyring: Keyring): Promise<number> {
  let sealed = 0;
  const unreadable: string[] = [];
  for (const { table, column, context } of places) {
    for (let after = "00000000-0000-0000-0000-000000000000"; ; ) {
      const rows: { id: string; value: Buffer }[] = await db(table)
        .where("id", ">", after)
        .whereRaw("octet_length(??) > 0", [column])
        .orderBy("id")
        .limit(batch)
        .select("id", { value: column });
      for (const { id, value } of rows) {
        if (!keyring.isStale(value)) continue;
        const fresh = sealAnew(keyring, value, context + id);
        if (fresh)
          sealed += await db(table)
            .where({ id, [column]: value })
            .update({ [column]: fresh });
        else unreadable.push(context + id);
      }
      const last = rows.at(-1);
      if (!last) break;
      after = last.id;
    }
  }
  if (unreadable.length > 0) throw new Error(`no deployment key opens ${unreadable.join(", ")}: keep the older keys, or set these anew`);
  return sealed;
}

/** Null when no key of the ring opens the value: one damaged row must not keep the others under an old key. */
function sealAnew(keyring: Keyring, value: Buffer, context: string): Buffer | null {
  let plain: string;
  try {
    plain = keyring.open(value, context);
  } catch {
    return null;
  }
  return keyring.seal(plain, context);
}
