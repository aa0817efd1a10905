import { z } from "zod";
import { isId, newId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import { members, open } from "../../http/access.ts";
import { actorOf } from "../../http/caller.ts";
import { id, idParams, listOf, nameText, pageQuery, timestamp } from "../../http/fields.ts";
import { decodeCursor, encodeCursor, pageOf } from "../../http/page.ts";
import { invalid, notFound, refuse } from "../../http/refusal.ts";
import { route } from "../../http/route.ts";
import { type Account, findAccount, insertAccount, type Membership, type OrgName } from "./account.ts";
import { recordAudit, recordAuditOf } from "./audit.ts";
import { enqueueMail } from "./mailing.ts";
import { digestLinkToken, mintLinkToken } from "./one-time-link.ts";
import { lockOrg } from "./organisation.ts";
import { checkNewPassword } from "./password.ts";
import { hashPassword } from "./password-hash.ts";
import { countPasswordAttempt, proveAccount } from "./prove.ts";
import { checkMayGiveRole } from "./role.ts";
import { codeText, emailText, loginResponse, passwordText } from "./schema.ts";
import { loginReply, openSession } from "./session.ts";
import { policyOf } from "./sign-in-policy.ts";
import { attemptOf } from "./sign-in-routes.ts";

const validDays = 7;
const invitation = z
  .object({ id, email: z.string(), role: z.string(), created_at: timestamp, created_by: z.unknown(), expires_at: timestamp })
  .meta({ id: "Invitation" });

interface InvitationRow {
  id: string;
  org_id: string;
  email: string;
  role: string;
  created_at: Date;
  created_by: unknown;
  expires_at: Date;
  accepted_at: Date | null;
  revoked_at: Date | null;
}

const present = ({ id: invitationId, email, role, created_at, created_by, expires_at }: InvitationRow) => ({
  id: invitationId,
  email,
  role,
  created_at,
  created_by,
  expires_at,
});
const pending = { accepted_at: null, revoked_at: null };
const access = members("members.manage");

const create = route({
  method: "POST",
  path: "/v1/auth/invitations",
  summary: "Invite someone by mail",
  description: `The mailed link is good once, for ${validDays} days; \`accept_url\` is the same link, shown this once. An earlier invitation of the same email ends.`,
  access,
  body: z.strictObject({ email: emailText, role: z.string().max(50) }),
  responses: {
    201: { description: "The invitation with its link", schema: invitation.extend({ accept_url: z.string() }) },
    409: { description: "A member already" },
  },
  secretFields: ["accept_url"],
  handler: async ({ deps, caller, body }) => {
    const orgId = caller.org.live.id;
    const { token, digest } = mintLinkToken();
    const accept_url = `${deps.addresses.org(caller.org.live.slug)}/join?token=${token}`;
    const row = await deps.db.transaction(async (trx) => {
      await lockOrg(trx, orgId);
      await checkMayGiveRole(trx, caller, body.role);
      const already = await trx("members as m")
        .join("accounts as a", "a.id", "m.account_id")
        .where({ "m.org_id": orgId, "m.removed_at": null, "a.email": body.email })
        .first("m.id");
      if (already) throw refuse("CONFLICT", `${body.email} is a member already: change the role with PATCH /v1/auth/members/{id}`);
      await trx("invitations")
        .where({ org_id: orgId, email: body.email, ...pending })
        .update({ revoked_at: trx.fn.now() });
      const [made] = (await trx("invitations")
        .insert({
          id: newId(),
          org_id: orgId,
          email: body.email,
          role: body.role,
          digest,
          created_by: JSON.stringify(actorOf(caller)),
          expires_at: new Date(Date.now() + validDays * 86_400_000),
        })
        .returning("*")) as InvitationRow[];
      if (!made) throw new Error("the invitation was not written");
      await recordAudit(trx, caller, {
        action: "invitation.created",
        target: { kind: "invitation", id: made.id, name: made.email },
        detail: { role: made.role },
      });
      await enqueueMail(deps, trx, {
        to: body.email,
        subject: `${caller.member?.name ?? "A member"} invites you to ${caller.org.name}`,
        text: `${caller.member?.name ?? "A member"} invites you to join ${caller.org.name} as ${body.role}.\n\nOpen this link within ${validDays} days; it works once:\n${accept_url}\n\nIf you do not know them, do nothing.\n`,
      });
      return made;
    });
    return { status: 201, headers: { "cache-control": "no-store" }, body: { ...present(row), accept_url } };
  },
});

const list = route({
  method: "GET",
  path: "/v1/auth/invitations",
  summary: "List pending invitations, newest first",
  access,
  query: pageQuery,
  responses: { 200: { description: "Those neither accepted nor revoked, expired ones included", schema: listOf(invitation) } },
  handler: async ({ deps, caller, query }) => {
    const rows: InvitationRow[] = await deps
      .db("invitations")
      .where({ org_id: caller.org.live.id, ...pending })
      .modify((select) => {
        if (query.cursor !== undefined) select.where("id", "<", String(decodeCursor(query.cursor, 1)[0]));
      })
      .orderBy("id", "desc")
      .limit(query.limit + 1);
    const { items, next_cursor } = pageOf(rows, query.limit, (row) => encodeCursor([row.id]));
    return { status: 200, body: { items: items.map(present), next_cursor } };
  },
});

const remove = route({
  method: "DELETE",
  path: "/v1/auth/invitations/{id}",
  summary: "Revoke a pending invitation",
  access,
  params: idParams,
  load: async ({ deps, caller, params }) => {
    const row: InvitationRow | undefined = isId(params.id)
      ? await deps
          .db("invitations")
          .where({ id: params.id, org_id: caller.org.live.id, ...pending })
          .first()
      : undefined;
    if (!row) throw notFound(`the invitation ${params.id}`);
    return row;
  },
  responses: { 204: { description: "Its link is void" } },
  handler: async ({ deps, caller, resource }) => {
    await deps.db.transaction(async (trx) => {
      const revoked = await trx("invitations")
        .where({ id: resource.id, ...pending })
        .update({ revoked_at: trx.fn.now() });
      if (revoked === 0) throw notFound(`the invitation ${resource.id}`);
      await recordAudit(trx, caller, {
        action: "invitation.revoked",
        target: { kind: "invitation", id: resource.id, name: resource.email },
      });
    });
    return { status: 204 };
  },
});

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

const accept = route({
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
    let account: Pick<Account, "id" | "email" | "name" | "mfa_enrolled">;
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

export const invitationRoutes = [create, list, remove, accept];
