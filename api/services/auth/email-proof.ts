import type { Db } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";
import type { Account } from "./account.ts";
import { enqueueMail } from "./mailing.ts";
import { mintLinkToken } from "./one-time-link.ts";
import { removeTotp } from "./totp.ts";

const listedCredentials = 50;

/**
 * Anybody can sign up with any email. What a link proves that went to the mailbox and nowhere else: a reset of the password, or the link made here. An
 * invitation proves nothing, since whoever invites is shown the same link (decided §3: `accept_url`).
 *
 * Mails that a second factor was enrolled, with a link that proves the email, in the caller's transaction; nothing once it is proved.
 */
export async function mailProof(deps: Deps, db: Db, account: Pick<Account, "id" | "email">, orgSlug: string): Promise<void> {
  const { token, digest } = mintLinkToken();
  const isWanted = await db("accounts").where({ id: account.id, email_proved_at: null }).update({ email_proof_digest: digest });
  if (isWanted === 0) return;
  const origin = deps.addresses.org(orgSlug);
  await enqueueMail(deps, db, {
    to: account.email,
    subject: "A second factor was set up",
    text: `A second factor was set up for the account of ${account.email}.\n\nIf that was you, open this link while you are signed in, to prove that this address is yours:\n${origin}/confirm?token=${token}\n\nUntil then a reset of the password takes the second factor away; from then on it stays.\n\nIf it was not you, somebody made this account in your name. Reset the password to take it over; what they set up goes:\n${origin}/forgot\n`,
  });
}

/** A credential that an account made, in words for its holder. */
interface MadeCredential {
  kind: string;
  name: string;
  key_prefix: string;
  org: string;
}

/** What still holds of the credentials that an account's members have minted, newest first. They belong to their organisations (spec 1 §5.1). */
async function credentialsMadeBy(db: Db, accountId: string): Promise<MadeCredential[]> {
  const { rows } = await db.raw<{ rows: MadeCredential[] }>(
    `select c.kind, c.name, c.key_prefix, o.name as org
     from members m
     join orgs o on o.id = m.org_id or o.live_org_id = m.org_id
     join credentials c on c.org_id = o.id and c.created_by->>'kind' = 'member' and c.created_by->>'id' = m.id::text
     where m.account_id = ? and c.revoked_at is null and (c.expires_at is null or c.expires_at > now())
     order by c.created_at desc limit ?`,
    [accountId, listedCredentials] as never,
  );
  return rows;
}

/**
 * Notes that a reset link was redeemed. The first proof of an email takes away the second factor that was enrolled before it: it may be that of a stranger
 * who signed up with this email, and its owner would be locked out. Credentials stay, and are listed in the mail that tells of all this. Null when the email
 * was proved before.
 */
export async function proveByReset(
  deps: Deps,
  db: Db,
  account: Pick<Account, "id" | "email">,
): Promise<{ isFactorRemoved: boolean } | null> {
  const [first] = (await db("accounts")
    .where({ id: account.id, email_proved_at: null })
    .update({ email_proved_at: db.fn.now(), email_proof_digest: null })
    .returning("mfa_enrolled")) as { mfa_enrolled: boolean }[];
  if (!first) return null;
  await removeTotp(db, account.id);
  const credentials = await credentialsMadeBy(db, account.id);
  if (first.mfa_enrolled || credentials.length > 0) {
    await enqueueMail(deps, db, {
      to: account.email,
      subject: "Your password was set anew",
      text: [
        `The password of ${account.email} was set by a mailed link: the first proof that this address is yours. All sessions have ended.`,
        ...(first.mfa_enrolled
          ? [
              "A second factor that had been set up before is removed, with its backup codes. Sign in with the password, and set up your own.",
            ]
          : []),
        ...(credentials.length > 0 ? [standing(credentials)] : []),
      ].join("\n\n"),
    });
  }
  return { isFactorRemoved: first.mfa_enrolled };
}

function standing(credentials: MadeCredential[]): string {
  const lines = credentials.map(({ kind, name, key_prefix, org }) => `  ${kind.replace("_", " ")} "${name}" (${key_prefix}…) of ${org}`);
  return `These credentials were made from this account before, and still hold: they belong to their organisations. Revoke what you do not know, and look at the members too.\n${lines.join("\n")}\n`;
}
