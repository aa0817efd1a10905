import type { Db } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";
import { findAccount } from "./account.ts";
import { recordAuditOf } from "./audit.ts";
import { enqueueMail } from "./mailing.ts";
import { mintLinkToken } from "./one-time-link.ts";

const resetMinutes = 60;

/** Makes the reset link of an account and mails it, in one transaction; an email without an account gets nothing. */
export async function mailReset(
  deps: Deps,
  wanted: { email: string; orgSlug: string | null; address: string; requestId: string },
): Promise<void> {
  const account = await findAccount(deps.db, { email: wanted.email });
  const membership = account?.memberships.find(({ org }) => org.slug === wanted.orgSlug) ?? account?.memberships[0];
  if (!account || !membership) return;
  const { token, digest } = mintLinkToken();
  await deps.db.transaction(async (trx) => {
    await trx("password_resets").insert({ digest, account_id: account.id, expires_at: new Date(Date.now() + resetMinutes * 60_000) });
    await recordAuditOf(
      trx,
      {
        org_id: membership.org.id,
        actor: { kind: "anonymous", id: account.email, name: account.email },
        address: wanted.address,
        request_id: wanted.requestId,
      },
      { action: "password.reset-requested", target: { kind: "account", id: account.id, name: account.email } },
    );
    await enqueueMail(deps, trx, {
      to: account.email,
      subject: "Reset your password",
      text: `Someone, hopefully you, asked to reset the password of ${account.email}.\n\nOpen this link within ${resetMinutes} minutes; it works once:\n${deps.addresses.org(membership.org.slug)}/reset?token=${token}\n\nIf it was not you, do nothing: the password stays as it is.\n`,
    });
  });
}

/** Every reset link of an account that is still out is void once its password is another. */
export async function endResets(db: Db, accountId: string): Promise<void> {
  await db("password_resets").where({ account_id: accountId, used_at: null }).update({ used_at: db.fn.now() });
}
