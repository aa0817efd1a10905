import type { Db } from "#platform/postgres.ts";
import { mintSecret, type SecretPrefix } from "#platform/secrets.ts";

/** The secret of a key after a rotation, and until when its previous one still holds. */
export interface Rotation {
  secret: string;
  key_prefix: string;
  previous_valid_until: Date | null;
}

const prefixOf: Record<string, SecretPrefix> = { live: "sk_live_", test: "sk_test_", org: "sk_org_" };

/** The prefix of a key's secrets by its kind; it survives rotation. */
export function keyPrefixOf(kind: string): SecretPrefix {
  const prefix = prefixOf[kind];
  if (!prefix) throw new Error(`an API key of the unknown kind ${kind}`);
  return prefix;
}

/**
 * Gives a key a new secret (spec 1 §3): with `overlapHours` the present secret becomes the previous one and holds for that long, but never longer
 * than the key; whatever was the previous one before ends. Without, the new secret is the only one. Null when the key is revoked or expired.
 *
 * A key has one current secret (`live_until` null) and at most one previous, by two unique indexes. The row lock makes rotations of one
 * key follow one another; each statement after it sees what the one before has left.
 */
export async function rotateKey(db: Db, key: { id: string; subkind: string }, overlapHours: number): Promise<Rotation | null> {
  const locked: { expires_at: Date | null } | undefined = await db("credentials")
    .where({ id: key.id, kind: "api_key", revoked_at: null })
    .whereRaw("(expires_at is null or expires_at > now())")
    .forUpdate()
    .first("expires_at");
  if (!locked) return null;
  const { secret, digest, keyPrefix } = mintSecret(keyPrefixOf(key.subkind));
  await db("credential_secrets")
    .where({ credential_id: key.id })
    .modify((query) => {
      if (overlapHours > 0) query.whereNotNull("live_until");
    })
    .delete();
  const [previous] = (await db("credential_secrets")
    .where({ credential_id: key.id })
    .update({ live_until: db.raw("least(now() + make_interval(hours => ?), ?::timestamptz)", [overlapHours, locked.expires_at] as never) })
    .returning("live_until")) as { live_until: Date }[];
  await db("credential_secrets").insert({ digest, credential_id: key.id });
  await db("credentials").where({ id: key.id }).update({ key_prefix: keyPrefix });
  return { secret, key_prefix: keyPrefix, previous_valid_until: previous?.live_until ?? null };
}
