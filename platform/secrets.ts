import { hash, randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const randomChars = 43; // ceil(256 / log2(62)): 32 random bytes in base62
const checksumChars = 6; // 62^6 > 2^32

/** The forms of secrets the platform mints; each text is what the secret starts with (spec 1 §2.1, decided §3). */
export const secretPrefixes = [
  "sk_live_",
  "sk_test_",
  "sk_org_",
  "kses_",
  "at_",
  "ak_",
  "st_ci_",
  "st_deploy_",
  "st_wh_",
  "st_svc_",
  "kbt_",
  "kes_",
  "kst1_",
] as const;
export type SecretPrefix = (typeof secretPrefixes)[number];

/** What a mint returns: the full `secret` (shown once), its SHA-256 `digest` (all that is stored) and the visible `keyPrefix`. */
export interface MintedSecret {
  secret: string;
  digest: Buffer;
  keyPrefix: string;
}

function base62(value: bigint, length: number): string {
  let text = "";
  let rest = value;
  for (let i = 0; i < length; i++) {
    text = alphabet[Number(rest % 62n)] + text;
    rest /= 62n;
  }
  return text;
}

/** Made for every request: a 32-bit number needs no BigInt. */
function checksum(text: string): string {
  let sum = "";
  let rest = crc32(text);
  for (let i = 0; i < checksumChars; i++) {
    sum = (alphabet[rest % 62] as string) + sum;
    rest = Math.floor(rest / 62);
  }
  return sum;
}

/** The SHA-256 digest under which a secret is stored and looked up. */
export function digestSecret(secret: string): Buffer {
  return hash("sha256", secret, "buffer");
}

/** Mints a secret: prefix + 32 random bytes in base62 + a 6-character checksum over all before it (decided §3). */
export function mintSecret(prefix: SecretPrefix): MintedSecret {
  const body = prefix + base62(BigInt(`0x${randomBytes(32).toString("hex")}`), randomChars);
  const secret = body + checksum(body);
  return { secret, digest: digestSecret(secret), keyPrefix: secret.slice(0, prefix.length + 6) };
}

/**
 * The prefix of a presented secret. Null when it is unknown, the length is off, or the checksum does not hold: a mistyped or truncated secret
 * is refused without a database call.
 */
export function secretPrefixOf(text: string): SecretPrefix | null {
  for (const prefix of secretPrefixes) {
    if (!text.startsWith(prefix)) continue;
    if (text.length !== prefix.length + randomChars + checksumChars) continue;
    return checksum(text.slice(0, -checksumChars)) === text.slice(-checksumChars) ? prefix : null;
  }
  return null;
}

/** Reads a presented secret: its prefix and the digest by which it is looked up. Null where `secretPrefixOf` says so. */
export function parseSecret(text: string): { prefix: SecretPrefix; digest: Buffer } | null {
  const prefix = secretPrefixOf(text);
  return prefix === null ? null : { prefix, digest: digestSecret(text) };
}

/** The published pattern of each kind, for secret scanners: prefix, 43 base62 characters, 6 checksum characters. */
export function secretPattern(prefix: SecretPrefix): string {
  return `\\b${prefix}[0-9A-Za-z]{${randomChars + checksumChars}}\\b`;
}
