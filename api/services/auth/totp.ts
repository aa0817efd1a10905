import { createHash, randomBytes } from "node:crypto";
import { Secret, TOTP } from "otpauth";
import { renderSVG } from "uqr";
import type { Keyring } from "#platform/keyring.ts";
import type { Db } from "#platform/postgres.ts";

const periodSeconds = 30;
const digits = 6;
const windowSteps = 1; // a clock may be off by one step either way (RFC 6238 §5.2)
const backupCodeCount = 10;
const crockford = "0123456789abcdefghjkmnpqrstvwxyz";

function totpOf(secret: string, label: string): TOTP {
  return new TOTP({ issuer: "Kapstone", label, algorithm: "SHA1", digits, period: periodSeconds, secret: Secret.fromBase32(secret) });
}

/** A new TOTP secret (160 bits, RFC 4226 §4) as base32, as the address authenticator apps read, and as a QR code of it. */
export function newTotp(email: string): { secret: string; otpauth_url: string; qr_svg: string } {
  const totp = totpOf(new Secret({ size: 20 }).base32, email);
  const url = totp.toString();
  return { secret: totp.secret.base32, otpauth_url: url, qr_svg: renderSVG(url) };
}

/** The time step a code belongs to, within one step of now; null when it is no code of this secret. */
export function stepOfCode(secret: string, code: string, nowMs: number = Date.now()): number | null {
  const token = code.replaceAll(" ", "");
  if (!/^\d{6}$/.test(token)) return null;
  const delta = totpOf(secret, "").validate({ token, timestamp: nowMs, window: windowSteps });
  return delta === null ? null : Math.floor(nowMs / 1_000 / periodSeconds) + delta;
}

/** Stores a secret that is not yet confirmed; false when a second factor is enrolled already. */
export async function storePendingSecret(db: Db, keyring: Keyring, accountId: string, secret: string): Promise<boolean> {
  const changed = await db("accounts")
    .where({ id: accountId, mfa_enrolled: false })
    .update({ mfa_secret: keyring.seal(secret, `totp:${accountId}`), mfa_last_step: 0, updated_at: db.fn.now() });
  return changed === 1;
}

async function openSecret(db: Db, keyring: Keyring, accountId: string): Promise<string | null> {
  const row: { mfa_secret: Buffer | null } | undefined = await db("accounts").where({ id: accountId }).first("mfa_secret");
  return row?.mfa_secret ? keyring.open(row.mfa_secret, `totp:${accountId}`) : null;
}

/** Uses up a code: true once, and never again for this code or an older one. One conditional update decides between two requests. */
async function useTotp(db: Db, keyring: Keyring, accountId: string, code: string): Promise<boolean> {
  const secret = await openSecret(db, keyring, accountId);
  const step = secret === null ? null : stepOfCode(secret, code);
  if (step === null) return false;
  return (await db("accounts").where({ id: accountId }).where("mfa_last_step", "<", step).update({ mfa_last_step: step })) === 1;
}

function digestBackupCode(accountId: string, code: string): Buffer {
  const plain = code.toLowerCase().replace(/[\s-]/g, "").replace(/o/g, "0").replace(/[il]/g, "1");
  return createHash("sha256").update(`${accountId}:${plain}`).digest();
}

/** Whether a TOTP code or backup code is right; it is used up by asking. */
export async function useSecondFactor(db: Db, keyring: Keyring, accountId: string, code: string): Promise<boolean> {
  if (/^[\d ]+$/.test(code) && code.replaceAll(" ", "").length === digits) return useTotp(db, keyring, accountId, code);
  return (
    (await db("backup_codes")
      .where({ account_id: accountId, digest: digestBackupCode(accountId, code) })
      .delete()) === 1
  );
}

/** Confirms a pending secret by a code of it and makes the ten backup codes (80 bits each). Null when the code is wrong or nothing is pending. */
export async function confirmTotp(db: Db, keyring: Keyring, accountId: string, code: string): Promise<string[] | null> {
  if (!(await useTotp(db, keyring, accountId, code))) return null;
  if ((await db("accounts").where({ id: accountId, mfa_enrolled: false }).update({ mfa_enrolled: true, updated_at: db.fn.now() })) !== 1)
    return null;
  const codes = Array.from({ length: backupCodeCount }, () => {
    const letters = Array.from(randomBytes(16), (byte) => crockford[byte & 31]).join("");
    return (letters.match(/.{4}/g) ?? []).join("-");
  });
  await db("backup_codes").where({ account_id: accountId }).delete();
  await db("backup_codes").insert(codes.map((text) => ({ account_id: accountId, digest: digestBackupCode(accountId, text) })));
  return codes;
}

/** Takes the second factor away. */
export async function removeTotp(db: Db, accountId: string): Promise<void> {
  await db("accounts")
    .where({ id: accountId })
    .update({ mfa_enrolled: false, mfa_secret: null, mfa_last_step: 0, updated_at: db.fn.now() });
  await db("backup_codes").where({ account_id: accountId }).delete();
}
