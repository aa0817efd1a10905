import { z } from "zod";
import { isId, newId } from "#platform/ids.ts";
import { members } from "../../http/access.ts";
import { actorOf } from "../../http/caller.ts";
import { id, idParams, listOf, pageQuery, timestamp } from "../../http/fields.ts";
import { encodeCursor, idOfCursor, pageOf } from "../../http/page.ts";
import { notFound, refuse } from "../../http/refusal.ts";
import { route } from "../../http/route.ts";
import { acceptInvitation } from "./accept-invitation-route.ts";
import { recordAudit } from "./audit.ts";
import { type InvitationRow, pending } from "./invitation.ts";
import { enqueueMail } from "./mailing.ts";
import { mintLinkToken } from "./one-time-link.ts";
import { lockOrg } from "./organisation.ts";
import { checkMayGiveRole } from "./role.ts";
import { emailText } from "./schema.ts";

const validDays = 7;
const invitation = z
  .object({ id, email: z.string(), role: z.string(), created_at: timestamp, created_by: z.unknown(), expires_at: timestamp })
  .meta({ id: "Invitation" });

const present = ({ id: invitationId, email, role, created_at, created_by, expires_at }: InvitationRow) => ({
  id: invitationId,
  email,
  role,
  created_at,
  created_by,
  expires_at,
});
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
        if (query.cursor !== undefined) select.where("id", "<", idOfCursor(query.cursor));
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

export const invitationRoutes = [create, list, remove, acceptInvitation];
