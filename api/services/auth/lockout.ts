import type { Db } from "#platform/postgres.ts";
import { Refusal } from "../../http/refusal.ts";
import { emailDigest } from "./account.ts";

/** Whose failures are counted: an email (with an account or not) and the network address that tries. */
export interface Attempt {
  email: string;
  address: string;
}

const forgottenAfter = "24 hours";

/**
 * Counts a failed password or second factor. At `threshold` failures in a row the account is locked for this address, and for no other: nobody
 * can lock someone out from elsewhere (decided §3). Failures during a lock do not prolong it. Returns whether this failure locked it.
 *
 * Failures are counted after the hash, and hashes run one or two at a time in a process: guesses sent all at once have at most
 * `threshold + 1` per replica looked at before the lock holds for the rest.
 */
export async function countFailure(
  db: Db,
  attempt: Attempt,
  policy: { threshold: number; lockMinutes: number },
): Promise<{ locked: boolean }> {
  const { rows } = await db.raw<{ rows: { locked_now: boolean }[] }>(
    `insert into sign_in_failures as f (email_digest, address, failures, locked_until)
     values (:digest, :address, 1, case when 1 >= :threshold then now() + make_interval(mins => :minutes) end)
     on conflict (email_digest, address) do update set
       last_failed_at = now(),
       failures = case when f.locked_until > now() then f.failures
                       when f.locked_until is not null or f.last_failed_at < now() - interval '${forgottenAfter}' then 1 else f.failures + 1 end,
       locked_until = case when f.locked_until > now() then f.locked_until
                           when (case when f.locked_until is not null or f.last_failed_at < now() - interval '${forgottenAfter}' then 1 else f.failures + 1 end) >= :threshold
                           then now() + make_interval(mins => :minutes) end
     returning locked_until = now() + make_interval(mins => :minutes) as locked_now`,
    { digest: emailDigest(attempt.email), address: attempt.address, threshold: policy.threshold, minutes: policy.lockMinutes } as never,
  );
  return { locked: rows[0]?.locked_now === true };
}

/** The 423 of an account that is locked for this address, else null. Asked only after a right password, so that a lock tells a guesser nothing. */
export async function lockOf(db: Db, attempt: Attempt): Promise<Refusal | null> {
  const row: { locked_until: Date } | undefined = await db("sign_in_failures")
    .where({ email_digest: emailDigest(attempt.email), address: attempt.address })
    .where("locked_until", ">", db.fn.now())
    .first("locked_until");
  if (!row) return null;
  const until = row.locked_until.toISOString();
  throw new Refusal(
    423,
    "ACCOUNT_LOCKED",
    `too many failed sign-ins from this address: wait until ${until}, or reset the password by mail`,
    {
      fields: { locked_until: until },
      headers: { "retry-after": String(Math.max(1, Math.ceil((row.locked_until.getTime() - Date.now()) / 1_000))) },
    },
  );
}

/** Forgets the failures of an account: at this address after a sign-in, everywhere after a reset. */
export async function clearFailures(db: Db, email: string, address?: string): Promise<void> {
  await db("sign_in_failures")
    .where({ email_digest: emailDigest(email), ...(address === undefined ? {} : { address }) })
    .delete();
}

/** Removes counts that no longer matter. */
export async function sweepFailures(db: Db): Promise<void> {
  await db.raw(
    `delete from sign_in_failures where last_failed_at < now() - interval '${forgottenAfter}' and (locked_until is null or locked_until < now())`,
  );
}
