import { randomInt } from "node:crypto";
import { z } from "zod";
import { addJob } from "#platform/jobs.ts";
import type { Db } from "#platform/postgres.ts";
import { members, open } from "../../http/access.ts";
import type { Caller } from "../../http/caller.ts";
import { refuse } from "../../http/refusal.ts";
import { route } from "../../http/route.ts";
import { type Account, accountPolicy, findAccount } from "./account.ts";
import { recordAudit, recordAuditOf } from "./audit.ts";
import { proveByReset } from "./email-proof.ts";
import { clearFailures } from "./lockout.ts";
import { digestLinkToken } from "./one-time-link.ts";
import { checkNewPassword } from "./password.ts";
import { hashPassword } from "./password-hash.ts";
import { endResets } from "./password-reset.ts";
import { countPasswordAttempt, proveOwnPassword } from "./prove.ts";
import { emailText, passwordText } from "./schema.ts";
import { endSessionsOfAccount, orgSlugOf } from "./session.ts";

/** The account of a member caller. */
export async function accountOf(db: Db, caller: Caller): Promise<Account> {
  const account = caller.member && (await findAccount(db, { id: caller.member.accountId }));
  if (!account) throw new Error("a member without an account");
  return account;
}

const change = route({
  method: "POST",
  path: "/v1/auth/password",
  summary: "Change your password; your other sessions end",
  access: members(null),
  body: z.strictObject({ current_password: passwordText, new_password: passwordText }),
  responses: {
    204: { description: "Changed; every other session of yours has ended, in every organisation" },
    403: { description: "The current password is wrong" },
  },
  handler: async ({ deps, caller, body }) => {
    const account = await accountOf(deps.db, caller);
    await proveOwnPassword(deps, caller, account, body.current_password);
    checkNewPassword(body.new_password, accountPolicy(account).password, "new_password", [
      account.email,
      account.name,
      caller.org.live.slug,
    ]);
    const hash = await hashPassword(body.new_password);
    await deps.db.transaction(async (trx) => {
      // Only from the password that was proved: of two changes at once the second has proved nothing.
      const changed = await trx("accounts")
        .where({ id: account.id, password_hash: account.password_hash })
        .update({ password_hash: hash, updated_at: trx.fn.now() });
      if (changed === 0) throw refuse("CONFLICT", "the password has just been changed by another request: try again with the new one");
      const ended = await endSessionsOfAccount(trx, account.id, caller.credentialId);
      await endResets(trx, account.id);
      await recordAudit(trx, caller, {
        action: "password.changed",
        target: { kind: "account", id: account.id, name: account.email },
        detail: { sessions_ended: ended },
      });
    });
    return { status: 204 };
  },
});

const forgot = route({
  method: "POST",
  path: "/v1/auth/password/forgot",
  summary: "Ask for a link that resets your password",
  description: "Always 202, whether the email has an account or not; the work that differs is done afterwards.",
  access: open(),
  limit: "login",
  body: z.strictObject({ email: emailText, org_slug: z.string().max(63).optional() }),
  responses: { 202: { description: "If the email has an account, a one-time link is on its way" } },
  handler: async ({ deps, body, host, address, requestId }) => {
    await countPasswordAttempt(deps, body.email);
    // At some later moment: what an account costs (a link, an audit line, a mail) must not be felt in this answer, nor in the next one.
    const runAt = new Date(Date.now() + randomInt(500, 3_000));
    const wanted = { email: body.email, orgSlug: body.org_slug ?? orgSlugOf(host), address, requestId };
    await addJob(deps.db, "auth.password-forgot", wanted, { runAt });
    return { status: 202, body: { message: "if this email has an account, a link to reset its password has been sent" } };
  },
});

const reset = route({
  method: "POST",
  path: "/v1/auth/password/reset",
  summary: "Set a new password with the token of a mailed link",
  description:
    "The token works once, for an hour. All sessions of the account end. A second factor stays, unless this is the first proof that the account's email is its holder's: then one that was enrolled before goes, with its backup codes, and a mail says so.",
  access: open(),
  limit: "login",
  body: z.strictObject({ token: z.string().min(1).max(200), new_password: passwordText }),
  responses: {
    200: {
      description: "The password is set, and a second factor enrolled before the email was proved is removed",
      schema: z.object({ second_factor_removed: z.literal(true), message: z.string() }),
    },
    204: { description: "The password is set; sign in with it" },
    404: { description: "No such token" },
    410: { description: "The token was used or is too old" },
  },
  handler: async ({ deps, body, address, requestId }) => {
    const digest = digestLinkToken(body.token);
    const found: { account_id: string; is_live: boolean } | undefined = await deps
      .db("password_resets")
      .where({ digest })
      .first("account_id", deps.db.raw("(used_at is null and expires_at > now()) as is_live"));
    const account = found && (await findAccount(deps.db, { id: found.account_id }));
    if (!found || !account) throw refuse("NOT_FOUND", "this reset token does not exist: copy the whole link from the mail");
    const spent = refuse("GONE", "this reset token was used already or is too old: ask for a new link");
    if (!found.is_live) throw spent;
    checkNewPassword(body.new_password, accountPolicy(account).password, "new_password", [account.email, account.name]);
    const hash = await hashPassword(body.new_password);
    const isFactorRemoved = await deps.db.transaction(async (trx) => {
      const used = await trx("password_resets")
        .where({ digest, used_at: null })
        .where("expires_at", ">", trx.fn.now())
        .update({ used_at: trx.fn.now() });
      if (used === 0) throw spent;
      await trx("accounts").where({ id: account.id }).update({ password_hash: hash, updated_at: trx.fn.now() });
      await endResets(trx, account.id);
      await clearFailures(trx, account.email);
      const ended = await endSessionsOfAccount(trx, account.id, null);
      const proof = await proveByReset(deps, trx, account);
      const target = { kind: "account", id: account.id, name: account.email };
      for (const { org, member_id } of account.memberships) {
        const source = {
          org_id: org.id,
          actor: { kind: "member" as const, id: member_id, name: account.name },
          address,
          request_id: requestId,
        };
        await recordAuditOf(trx, source, { action: "password.reset", target, detail: { sessions_ended: ended } });
        if (proof) await recordAuditOf(trx, source, { action: "email.proved", target, detail: { by: "password-reset" } });
        if (proof?.isFactorRemoved) {
          await recordAuditOf(trx, source, {
            action: "second-factor.removed",
            target,
            detail: { because: "enrolled before the email was proved" },
          });
        }
      }
      return proof?.isFactorRemoved === true;
    });
    if (!isFactorRemoved) return { status: 204 };
    const message = "the password is set; a second factor that was enrolled before this email was proved to be yours has been removed";
    return { status: 200, body: { second_factor_removed: true, message } };
  },
});

export const passwordRoutes = [change, forgot, reset];
