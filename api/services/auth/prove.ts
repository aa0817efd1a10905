import { addJob } from "#platform/jobs.ts";
import type { Deps } from "../../deps.ts";
import type { Caller } from "../../http/caller.ts";
import { checkRate } from "../../http/rate-limit.ts";
import { Refusal, refuse } from "../../http/refusal.ts";
import { type Account, accountPolicy, emailDigest, findAccount } from "./account.ts";
import { type Attempt, clearFailures, countFailure, lockOf } from "./lockout.ts";
import { verifyPassword } from "./password-hash.ts";
import { useSecondFactor } from "./totp.ts";

/** A sign-in as it was tried: for counting, and for the audit of those that are refused. */
export interface SignInAttempt extends Attempt {
  orgSlug: string | null;
  requestId: string;
  userAgent: string | null;
}

/** What every failure hears until the password is right: an email without an account and a wrong password are not told apart. */
export const wrongCredentials = (): Refusal =>
  refuse("UNAUTHORIZED", "the email or the password is wrong: check both, or reset the password", {
    headers: { "www-authenticate": "Bearer" },
  });

/** Passwords tried for one email, over all addresses: before anything is hashed. */
export async function countPasswordAttempt(deps: Deps, email: string): Promise<void> {
  const bucket = `login:email:${emailDigest(email).toString("base64url")}`;
  checkRate(await deps.limiter.take(bucket, deps.config.loginsPerMinute), "logins a minute for this email");
}

/** Records a refused sign-in: the count toward the lock, and a job that tells the audit, in one transaction; the same work whether the email has an account. */
export async function failSignIn(
  deps: Deps,
  attempt: SignInAttempt,
  account: Account | null,
  reason: "password" | "second-factor" | "organisation",
): Promise<void> {
  await deps.db.transaction(async (trx) => {
    const { locked } = await countFailure(trx, attempt, accountPolicy(account));
    await addJob(trx, "auth.sign-in-refused", { ...attempt, reason, locked });
  });
}

/**
 * Proves that whoever asks has the account of an email: password, then lock, then second factor. Refuses with the same 401 for an unknown
 * email and a wrong password, in body and in work done; 423 and the second factor's refusals come only after a right password.
 * `chooseOrg` stands between the two factors: a code is good once, and must not be used up by a question about the organisation.
 */
export async function proveAccount<T>(
  deps: Deps,
  attempt: SignInAttempt,
  given: { password: string; code: string | undefined },
  chooseOrg: (account: Account) => T | null,
): Promise<{ account: Account; chosen: T }> {
  const account = await findAccount(deps.db, { email: attempt.email });
  const isRight = await verifyPassword(given.password, account?.password_hash ?? null);
  if (!account || !isRight) {
    await failSignIn(deps, attempt, account, "password");
    throw wrongCredentials();
  }
  const lock = await lockOf(deps.db, attempt);
  if (lock) {
    await addJob(deps.db, "auth.sign-in-refused", { ...attempt, reason: "locked", locked: false });
    throw lock;
  }
  const chosen = chooseOrg(account);
  if (chosen === null) {
    await failSignIn(deps, attempt, account, "organisation");
    throw wrongCredentials();
  }
  if (account.mfa_enrolled) await proveSecondFactor(deps, attempt, account, given.code);
  await clearFailures(deps.db, attempt.email, attempt.address);
  return { account, chosen };
}

async function proveSecondFactor(deps: Deps, attempt: SignInAttempt, account: Account, code: string | undefined): Promise<void> {
  if (code === undefined) {
    throw new Refusal(401, "MFA_REQUIRED", "this account has a second factor: send its code, or a backup code, as `code`");
  }
  if (await useSecondFactor(deps.db, deps.keyring, account.id, code)) return;
  await failSignIn(deps, attempt, account, "second-factor");
  throw new Refusal(401, "MFA_INVALID", "the code is wrong, too old, or was used before: wait for the next one, or send a backup code");
}

/**
 * Asks a signed-in member for their password again, before what a stolen session must not do. A wrong one counts toward the lock like a failed
 * sign-in, so a session is no way to guess at it: 403, or 423 while locked.
 */
export async function proveOwnPassword(deps: Deps, caller: Caller, account: Account, password: string): Promise<void> {
  await countPasswordAttempt(deps, account.email);
  const attempt: SignInAttempt = {
    email: account.email,
    orgSlug: caller.org.live.slug,
    address: caller.address,
    requestId: caller.requestId,
    userAgent: caller.userAgent,
  };
  if (!(await verifyPassword(password, account.password_hash))) {
    await failSignIn(deps, attempt, account, "password");
    throw refuse("FORBIDDEN", "the password is wrong: this needs your present one");
  }
  const lock = await lockOf(deps.db, attempt);
  if (lock) throw lock;
}
