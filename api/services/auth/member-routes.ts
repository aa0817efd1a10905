import { z } from "zod";
import { isId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import { members } from "../../http/access.ts";
import type { Caller } from "../../http/caller.ts";
import { id, idParams, listOf, pageQuery, timestamp } from "../../http/fields.ts";
import { encodeCursor, idOfCursor, pageOf } from "../../http/page.ts";
import { notFound, refuse } from "../../http/refusal.ts";
import { route } from "../../http/route.ts";
import { recordAudit } from "./audit.ts";
import { lockOrg } from "./organisation.ts";
import { checkMayGiveRole, checkMayHandle, permissionsOf } from "./role.ts";

const member = z
  .object({
    id,
    email: z.string(),
    name: z.string(),
    role: z.string(),
    mfa_enrolled: z.boolean(),
    joined_at: timestamp,
    last_used_at: timestamp.nullable(),
  })
  .meta({ id: "Member" });

interface MemberRow {
  id: string;
  email: string;
  name: string;
  role: string;
  mfa_enrolled: boolean;
  joined_at: Date;
  last_used_at: Date | null;
}

/** The members of the caller's organisation; a test organisation has those of its live one. */
function ownMembers(db: Db, caller: Caller) {
  return db("members as m").join("accounts as a", "a.id", "m.account_id").where({ "m.org_id": caller.org.live.id, "m.removed_at": null });
}
const columns = (db: Db) => [
  "m.id",
  "a.email",
  "a.name",
  "m.role",
  "a.mfa_enrolled",
  "m.created_at as joined_at",
  db.raw("(select max(c.last_used_at) from credentials c where c.member_id = m.id) as last_used_at"),
];

async function findMember(db: Db, caller: Caller, memberId: string): Promise<MemberRow> {
  const row: MemberRow | undefined = isId(memberId)
    ? await ownMembers(db, caller)
        .where({ "m.id": memberId })
        .first(...columns(db))
    : undefined;
  if (!row) throw notFound(`the member ${memberId}`);
  return row;
}
const load = ({ deps, caller, params }: { deps: { db: Db }; caller: Caller; params: { id: string } }) =>
  findMember(deps.db, caller, params.id);

const list = route({
  method: "GET",
  path: "/v1/auth/members",
  summary: "List the members, longest first",
  access: members("members.read"),
  query: pageQuery,
  responses: { 200: { description: "Members with their roles", schema: listOf(member) } },
  handler: async ({ deps, caller, query }) => {
    const rows: MemberRow[] = await ownMembers(deps.db, caller)
      .modify((select) => {
        if (query.cursor !== undefined) select.where("m.id", ">", idOfCursor(query.cursor));
      })
      .orderBy("m.id")
      .limit(query.limit + 1)
      .select(...columns(deps.db));
    const { items, next_cursor } = pageOf(rows, query.limit, (row) => encodeCursor([row.id]));
    return { status: 200, body: { items, next_cursor } };
  },
});

const get = route({
  method: "GET",
  path: "/v1/auth/members/{id}",
  summary: "Get a member",
  access: members("members.read"),
  params: idParams,
  load,
  responses: { 200: { description: "The member", schema: member } },
  handler: async ({ resource }) => ({ status: 200, body: resource }),
});

/** 409 unless another owner stays. Runs under the organisation's lock, so two owners cannot leave each other's place at once. */
async function refuseLastOwner(db: Db, orgId: string, leaving: { id: string; role: string }): Promise<void> {
  if (leaving.role !== "owner") return;
  const other = await db("members").where({ org_id: orgId, role: "owner", removed_at: null }).whereNot({ id: leaving.id }).first("id");
  if (!other) throw refuse("CONFLICT", "the last owner cannot leave or become less: make another member an owner first");
}

const change = route({
  method: "PATCH",
  path: "/v1/auth/members/{id}",
  summary: "Change a member's role",
  description:
    "Holds from the member's next request on. Only an owner makes or changes an owner; nobody gives a role that may do more than they may.",
  access: members("members.manage"),
  params: idParams,
  load,
  body: z.strictObject({ role: z.string().max(50) }),
  responses: { 200: { description: "The member as they are now", schema: member }, 409: { description: "The last owner stays an owner" } },
  handler: async ({ deps, caller, resource, body }) => {
    const orgId = caller.org.live.id;
    await deps.db.transaction(async (trx) => {
      await lockOrg(trx, orgId);
      const target = await findMember(trx, caller, resource.id);
      checkMayHandle(caller, target.role, (await permissionsOf(trx, orgId, target.role)) ?? new Set());
      await checkMayGiveRole(trx, caller, body.role);
      if (target.role === body.role) return;
      if (body.role !== "owner") await refuseLastOwner(trx, orgId, target);
      await trx("members").where({ id: target.id }).update({ role: body.role });
      await recordAudit(trx, caller, {
        action: "member.role-changed",
        target: { kind: "member", id: target.id, name: target.email },
        detail: { before: target.role, after: body.role },
      });
    });
    return { status: 200, body: await findMember(deps.db, caller, resource.id) };
  },
});

/** Takes a member out of the organisation, with their sessions in it. */
async function removeMember(db: Db, caller: Caller, memberId: string, action: "member.removed" | "member.left"): Promise<void> {
  const orgId = caller.org.live.id;
  await lockOrg(db, orgId);
  const target = await findMember(db, caller, memberId);
  if (action === "member.removed") checkMayHandle(caller, target.role, (await permissionsOf(db, orgId, target.role)) ?? new Set());
  await refuseLastOwner(db, orgId, target);
  await db("members").where({ id: target.id }).update({ removed_at: db.fn.now() });
  await db("credentials").where({ member_id: target.id, revoked_at: null }).update({ revoked_at: db.fn.now() });
  await recordAudit(db, caller, { action, target: { kind: "member", id: target.id, name: target.email }, detail: { role: target.role } });
}

const remove = route({
  method: "DELETE",
  path: "/v1/auth/members/{id}",
  summary: "Remove a member; their sessions end",
  access: members("members.manage"),
  params: idParams,
  load,
  responses: { 204: { description: "Removed; out from the next request on" }, 409: { description: "The last owner cannot leave" } },
  handler: async ({ deps, caller, resource }) => {
    await deps.db.transaction((trx) => removeMember(trx, caller, resource.id, "member.removed"));
    return { status: 204 };
  },
});

const leave = route({
  method: "DELETE",
  path: "/v1/auth/members/me",
  summary: "Leave the organisation",
  access: members(null),
  responses: { 204: { description: "Left; your sessions here have ended" }, 409: { description: "The last owner cannot leave" } },
  handler: async ({ deps, caller }) => {
    await deps.db.transaction((trx) => removeMember(trx, caller, caller.member?.id ?? "", "member.left"));
    return { status: 204 };
  },
});

export const memberRoutes = [list, get, change, remove, leave];
