import { isId, newId } from "#platform/ids.ts";
import type { Keyring } from "#platform/keyring.ts";
import type { Db } from "#platform/postgres.ts";
import { mintSecret, type SecretPrefix } from "#platform/secrets.ts";
import type { Actor } from "../../http/caller.ts";
import { notFound } from "../../http/refusal.ts";

export type TokenKind = "bypass" | "endpoint" | "store";

/** A token of a kap as PostgreSQL keeps it: a digest, and of an endpoint secret, which is an HMAC key, the sealed value. */
export interface TokenRow {
  id: string;
  kap_id: string;
  kind: TokenKind;
  name: string;
  digest: Buffer;
  sealed_value: Buffer | null;
  scopes: string[];
  created_at: Date;
  created_by: Actor;
  expires_at: Date | null;
  revoked_at: Date | null;
}

const prefixes = { bypass: "kbt_", endpoint: "kes_", store: "kst1_" } as const satisfies Record<TokenKind, SecretPrefix>;

/** What a sealed endpoint secret is bound to. */
export function endpointContext(tokenId: string): string {
  return `endpoint:${tokenId}`;
}

/** Mints a token of a kap. The secret is returned once and never stored in clear. */
export async function mintToken(
  db: Db,
  keyring: Keyring,
  token: { kapId: string; kind: TokenKind; name: string; actor: Actor; scopes?: readonly string[]; expiresAt?: Date },
): Promise<{ row: TokenRow; secret: string }> {
  const { secret, digest } = mintSecret(prefixes[token.kind]);
  const id = newId();
  const [row]: TokenRow[] = await db("kap_tokens")
    .insert({
      id,
      kap_id: token.kapId,
      kind: token.kind,
      name: token.name,
      digest,
      sealed_value: token.kind === "endpoint" ? keyring.seal(secret, endpointContext(id)) : null,
      scopes: token.scopes ?? [],
      created_by: JSON.stringify(token.actor),
      expires_at: token.expiresAt ?? null,
    })
    .returning("*");
  if (!row) throw new Error("the token was not written");
  return { row, secret };
}

/** All tokens of one kind, revoked ones too, oldest first. */
export function tokensOf(db: Db, kapId: string, kind: TokenKind): Promise<TokenRow[]> {
  return db("kap_tokens").where({ kap_id: kapId, kind }).orderBy("id");
}

/** Finds a token of a kap, or refuses with 404. */
export async function findToken(db: Db, kapId: string, kind: TokenKind, id: string): Promise<TokenRow> {
  const row: TokenRow | undefined = isId(id) ? await db("kap_tokens").where({ id, kap_id: kapId, kind }).first() : undefined;
  if (!row) throw notFound(`the token ${id}`);
  return row;
}

/** Revokes a token for good. `revoked` is false when it had been revoked before: then nothing changes. */
export async function revokeToken(db: Db, token: TokenRow): Promise<{ row: TokenRow; revoked: boolean }> {
  const [row]: TokenRow[] = await db("kap_tokens")
    .where({ id: token.id })
    .whereNull("revoked_at")
    .update({ revoked_at: db.fn.now() })
    .returning("*");
  return row ? { row, revoked: true } : { row: await findToken(db, token.kap_id, token.kind, token.id), revoked: false };
}

/** A token without what proves it. */
export function presentToken(token: TokenRow): Record<string, unknown> {
  return {
    id: token.id,
    name: token.name,
    ...(token.kind === "store" ? { scopes: token.scopes, expires_at: token.expires_at } : {}),
    created_at: token.created_at,
    created_by: token.created_by,
    revoked_at: token.revoked_at,
  };
}
