import { z } from "zod";
import { newId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import { open } from "../../http/access.ts";
import { nameText } from "../../http/fields.ts";
import { invalid, refuse } from "../../http/refusal.ts";
import { route } from "../../http/route.ts";
import { findAccount, insertAccount, type Membership, type OrgName } from "./account.ts";
import { recordAuditOf } from "./audit.ts";
import { type InvitationRow, pending } from "./invitation.ts";
import { digestLinkToken } from "./one-time-link.ts";
import { lockOrg } from "./organisation.ts";
import { checkNewPassword } from "./password.ts";
import { hashPassword } from "./password-hash.ts";
import { countPasswordAttempt, proveAccount } from "./prove.ts";
import { codeText, loginResponse, passwordText } from "./schema.ts";
import { loginReply, openSession, type SignedInAccount } from "./session.ts";
import { policyOf } from "./sign-in-policy.ts";
import { attemptOf } from "./sign-in-routes.ts";

interface InvitedOrg extends OrgName {
  settings: unknown;
  test_org: OrgName | null;
}

async function readInvitedOrg(db: Db, orgId: string): Promise<InvitedOrg> {
  const live: (OrgName & { settings: unknown }) | undefined = await db("orgs").where({ id: orgId }).first("id", "slug", "name", "settings");
  const test: OrgName | undefined = await db("orgs").where({ live_org_id: orgId }).first("id", "slug", "name");
  if (!live) throw new Error("an invitation to no organisation");
  return { ...live, test_org: test ?? null };
}

/** Makes the account a member, or one again, with the invitation's role. */
async function join(db: Db, orgId: string, accountId: string, role: string): Promise<string> {
  const [row] = (await db("members")
    .insert({ id: newId(), org_id: orgId, account_id: accountId, role })
    .onConflict(["org_id", "account_id"])
    .merge({ role, removed_at: null })
    .returning("id")) as { id: string }[];
  if (!row) throw new Error("the member was not written");
  return row.id;
}

export const acceptInvitation = route({
  method: "POST",
  path: "/v1/auth/invitations/accept",
  summary: "Accept an invitation and sign in",
  description:
    "A new email needs `name` and `password`, by the organisation's policy. An email that has an account needs that account's password (and `code`, when it has a second factor).",
  access: open(),
  limit: "login",
  body: z.strictObject({
    token: z.string().min(1).max(200),
    name: nameText.optional(),
    password: passwordText.optional(),
    code: codeText.optional(),
  }),
  responses: {
    200: { description: "A member now, and signed in", schema: loginResponse },
    401: { description: "The email has an account, and the password or code is not its own" },
    404: { description: "No such invitation" },
    410: { description: "Used, revoked or expired" },
  },
  handler: async (context) => {
    const { deps, body, address, request, requestId } = context;
    const digest = digestLinkToken(body.token);
    const found: InvitationRow | undefined = await deps.db("invitations").where({ digest }).first();
    if (!found) throw refuse("NOT_FOUND", "this invitation does not exist: copy the whole link from the mail");
    const over = refuse("GONE", "this invitation was used, revoked or has expired: ask for a new one");
    if (found.accepted_at || found.revoked_at || found.expires_at <= new Date()) throw over;
    const org = await readInvitedOrg(deps.db, found.org_id);
    const existing = await findAccount(deps.db, { email: found.email });
    if (body.password === undefined) {
      throw invalid({ path: "password", message: existing ? "is required: the password of your account" : "is required: choose one" });
    }
    let account: SignedInAccount;
    let hash: string | null = null;
    if (existing) {
      await countPasswordAttempt(deps, found.email);
      const attempt = attemptOf(context, found.email, org.slug);
      ({ account } = await proveAccount(deps, attempt, { password: body.password, code: body.code }, () => true));
    } else {
      if (body.name === undefined) throw invalid({ path: "name", message: "is required: how you are called" });
      checkNewPassword(body.password, policyOf(org.settings).password, "password", [found.email, body.name, org.slug]);
      hash = await hashPassword(body.password);
      account = { id: newId(), email: found.email, name: body.name, mfa_enrolled: false };
    }
    const session = await deps.db.transaction(async (trx) => {
      await lockOrg(trx, org.id);
      const [used] = (await trx("invitations")
        .where({ id: found.id, ...pending })
        .where("expires_at", ">", trx.fn.now())
        .update({ accepted_at: trx.fn.now() })
        .returning("role")) as { role: string }[]; // the role as it is called by now
      if (!used) throw over;
      if (hash !== null) await insertAccount(trx, { id: account.id, email: account.email, name: account.name, password_hash: hash });
      const memberId = await join(trx, org.id, account.id, used.role);
      const membership: Membership = { member_id: memberId, role: used.role, org, test_org: org.test_org, policy: policyOf(org.settings) };
      const opened = await openSession(trx, { account, membership, org, address, request, requestId, by: "invitation" });
      const actor = { kind: "member" as const, id: memberId, name: account.name };
      await recordAuditOf(
        trx,
        { org_id: org.id, actor, address, request_id: requestId },
        {
          action: "member.joined",
          target: { kind: "member", id: memberId, name: account.email },
          detail: { role: used.role, invitation_id: found.id },
        },
      );
      return opened;
    });
    return loginReply(deps, context.host, session);
  },
});
