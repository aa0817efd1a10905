import type { Keyring } from "#platform/keyring.ts";
import type { Knex } from "#platform/postgres.ts";

/**
 * Every column of the deployment that holds sealed values, and what each value is bound to: a rotation is whole only when nothing is left out.
 * `before` sorts before every key.
 */
export const sealedColumns = [
  { table: "secrets", key: "id", column: "sealed_value", context: "secret:", before: nowhere() },
  { table: "kap_tokens", key: "id", column: "sealed_value", context: "endpoint:", before: nowhere() },
  { table: "kaps", key: "id", column: "role_password", context: "kap-role:", before: nowhere() },
  { table: "accounts", key: "id", column: "mfa_secret", context: "totp:", before: nowhere() },
  { table: "signing_keys", key: "kid", column: "sealed_private_key", context: "signing-key:", before: "" },
] as const;

function nowhere(): string {
  return "00000000-0000-0000-0000-000000000000";
}

const batch = 200;

/**
 * Seals every stored value anew with the keyring's first key: after it has run, older keys can be taken out of KAPSTONE_KEYS. A value that
 * changes meanwhile is left alone (it has just been sealed with the first key). Safe to repeat and to interrupt. Returns how many it sealed;
 * throws at the end, naming them, when some could not be opened.
 */
export async function resealSecrets(db: Knex, keyring: Keyring): Promise<number> {
  let sealed = 0;
  const unreadable: string[] = [];
  for (const { table, key, column, context, before } of sealedColumns) {
    for (let after: string = before; ; ) {
      const rows: { key: string; value: Buffer }[] = await db(table)
        .where(key, ">", after)
        .whereRaw("octet_length(??) > 0", [column])
        .orderBy(key)
        .limit(batch)
        .select({ key, value: column });
      for (const row of rows) {
        if (!keyring.isStale(row.value)) continue;
        const fresh = sealAnew(keyring, row.value, context + row.key);
        if (!fresh) unreadable.push(context + row.key);
        else sealed += await db(table).where(key, row.key).where(column, row.value).update(column, fresh);
      }
      const last = rows.at(-1);
      if (!last) break;
      after = last.key;
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
