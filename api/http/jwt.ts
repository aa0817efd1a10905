import { createPrivateKey, createPublicKey, generateKeyPair, type KeyObject } from "node:crypto";
import { promisify } from "node:util";
import { exportJWK, type JSONWebKeySet, type JWK, jwtVerify, SignJWT } from "jose";
import { newId } from "#platform/ids.ts";
import type { Keyring } from "#platform/keyring.ts";
import type { Postgres } from "#platform/postgres.ts";

/** What a JWT of the platform says: its session, member and organisation, and the second (Unix time) at which it ends. */
export interface JwtClaims {
  sid: string;
  sub: string;
  org_id: string;
  exp: number;
}

/** Verifies RS256 access tokens. Null for anything that is not one: wrong algorithm, type, issuer, key, or past its time. */
export interface JwtVerifier {
  verify(token: string): Promise<JwtClaims | null>;
}

/** The access tokens of a deployment: signs, verifies, publishes its keys. */
export interface Jwt extends JwtVerifier {
  /** Signs a token of 15 minutes. `shown` are further claims for front ends; nothing here trusts them. */
  sign(claims: Omit<JwtClaims, "exp">, shown?: Record<string, unknown>): Promise<{ token: string; expiresInSeconds: number }>;
  /** The public keys, the next one included before it signs. */
  jwks(): Promise<JSONWebKeySet>;
}

/** Lifetime of an access token (decided §3), in seconds. */
export const accessTokenSeconds = 15 * 60;
const tokenType = "at+jwt";
const day = 86_400_000;

/** When keys change. A key signs from `leadMs` after it was published until the next one signs, and is published for `keepMs` after that. */
export interface KeySchedule {
  rotateMs: number;
  leadMs: number;
  keepMs: number;
  /** How long this process may go on with the keys it has read: far below `leadMs`, so that a key is known everywhere before it signs. */
  readMs: number;
}
const defaultSchedule: KeySchedule = { rotateMs: 30 * day, leadMs: 3_600_000, keepMs: 3_600_000, readMs: 60_000 };

interface SigningKey {
  kid: string;
  jwk: JWK;
  publicKey: KeyObject;
  sealedPrivateKey: Buffer;
  signsFromMs: number;
}

/**
 * Access tokens over keys that live in PostgreSQL, sealed by the deployment's keyring, so that every replica signs and verifies alike.
 * Only a `kid` of ours chooses a key; whatever key a token carries or points at is not looked at (RFC 8725 §3.1, §3.10).
 */
export function createJwt(options: {
  postgres: Postgres;
  keyring: Keyring;
  issuer: string;
  schedule?: Partial<KeySchedule>;
  clock?: () => number;
}): Jwt {
  const { postgres, keyring, issuer, clock = Date.now } = options;
  const schedule = { ...defaultSchedule, ...options.schedule };
  let known: { keys: SigningKey[]; readAtMs: number } | null = null;
  let reading: Promise<SigningKey[]> | null = null;
  let signer: { kid: string; privateKey: KeyObject } | null = null;

  async function readKeys(): Promise<SigningKey[]> {
    const rows = await rotateAndList(postgres, keyring, schedule, clock());
    known = {
      readAtMs: clock(),
      keys: rows.map((row) => ({
        kid: row.kid,
        jwk: row.public_jwk,
        publicKey: createPublicKey({ key: row.public_jwk, format: "jwk" } as Parameters<typeof createPublicKey>[0]),
        sealedPrivateKey: row.sealed_private_key,
        signsFromMs: row.signs_from.getTime(),
      })),
    };
    return known.keys;
  }

  async function keys(): Promise<SigningKey[]> {
    if (known && clock() - known.readAtMs < schedule.readMs) return published(known.keys);
    reading ??= readKeys().finally(() => {
      reading = null;
    });
    return published(await reading);
  }

  /** Newest first; a key leaves once its successor has signed for `keepMs`. */
  function published(list: SigningKey[]): SigningKey[] {
    return list.filter((_, index) => {
      const successor = list[index - 1];
      return !successor || successor.signsFromMs + schedule.keepMs > clock();
    });
  }

  return {
    async sign(claims, shown = {}) {
      const key = (await keys()).find((candidate) => candidate.signsFromMs <= clock());
      if (!key) throw new Error("no signing key signs yet");
      if (signer?.kid !== key.kid) {
        signer = { kid: key.kid, privateKey: createPrivateKey(keyring.open(key.sealedPrivateKey, `signing-key:${key.kid}`)) };
      }
      const now = Math.floor(clock() / 1000);
      const token = await new SignJWT({ ...shown, sid: claims.sid, org_id: claims.org_id })
        .setProtectedHeader({ alg: "RS256", typ: tokenType, kid: key.kid })
        .setSubject(claims.sub)
        .setIssuer(issuer)
        .setAudience(issuer)
        .setJti(newId())
        .setIssuedAt(now)
        .setExpirationTime(now + accessTokenSeconds)
        .sign(signer.privateKey);
      return { token, expiresInSeconds: accessTokenSeconds };
    },
    async verify(token) {
      const ring = await keys();
      try {
        const { payload } = await jwtVerify(
          token,
          ({ kid }) => {
            const key = ring.find((candidate) => candidate.kid === kid);
            if (!key) throw new Error("no key of ours");
            return key.publicKey;
          },
          {
            algorithms: ["RS256"],
            typ: tokenType,
            issuer,
            audience: issuer,
            requiredClaims: ["exp", "iat", "sub", "sid", "org_id"],
            currentDate: new Date(clock()),
          },
        );
        const { sid, sub, org_id, exp } = payload;
        if (typeof sid !== "string" || typeof sub !== "string" || typeof org_id !== "string" || exp === undefined) return null;
        return { sid, sub, org_id, exp };
      } catch {
        return null; // whatever is wrong with it, it is no token of ours
      }
    },
    async jwks() {
      return { keys: (await keys()).map(({ kid, jwk }) => ({ ...jwk, kid, alg: "RS256", use: "sig" })) };
    },
  };
}

interface SigningKeyRow {
  kid: string;
  public_jwk: JWK;
  sealed_private_key: Buffer;
  signs_from: Date;
}

/** Lists the keys that may still matter, newest first; makes the next one when the newest is due (and the first one, which signs at once). */
async function rotateAndList(postgres: Postgres, keyring: Keyring, schedule: KeySchedule, nowMs: number): Promise<SigningKeyRow[]> {
  const list = (): Promise<SigningKeyRow[]> =>
    postgres
      .knex("signing_keys")
      .where("created_at", ">", new Date(nowMs - 2 * schedule.rotateMs - schedule.leadMs - schedule.keepMs))
      .orderBy("signs_from", "desc")
      .select("kid", "public_jwk", "sealed_private_key", "signs_from");
  const isDue = (newest: SigningKeyRow | undefined): boolean =>
    !newest || nowMs >= newest.signs_from.getTime() + schedule.rotateMs - schedule.leadMs;
  const rows = await list();
  if (!isDue(rows[0])) return rows;
  const { publicKey, privateKey } = await promisify(generateKeyPair)("rsa", { modulusLength: 2048 });
  const jwk = await exportJWK(publicKey);
  await postgres.knex.transaction(async (trx) => {
    await trx.raw("lock table signing_keys in share row exclusive mode"); // replicas make one key, not one each
    const newest: SigningKeyRow | undefined = await trx("signing_keys").orderBy("signs_from", "desc").first();
    if (!isDue(newest)) return;
    const kid = newId();
    const pem = privateKey.export({ format: "pem", type: "pkcs8" }).toString();
    await trx("signing_keys").insert({
      kid,
      public_jwk: JSON.stringify(jwk),
      sealed_private_key: keyring.seal(pem, `signing-key:${kid}`),
      created_at: new Date(nowMs),
      signs_from: new Date(newest ? nowMs + schedule.leadMs : nowMs),
    });
  });
  return list();
}
