import { z } from "zod";
import { isId, newId } from "#platform/ids.ts";
import { type Db, isUniqueViolation, type Knex } from "#platform/postgres.ts";
import { members } from "../../http/access.ts";
import type { Caller } from "../../http/caller.ts";
import { id, idParams, timestamp } from "../../http/fields.ts";
import { builtInRoles, type Permission, permissionNames, permissions } from "../../http/permissions.ts";
import { notFound, refuse } from "../../http/refusal.ts";
import { route } from "../../http/route.ts";
import { recordAudit } from "./audit.ts";
import { lockOrg } from "./organisation.ts";
import { checkMayHandle, isBuiltIn } from "./role.ts";

const roleName = z.string().regex(/^[a-z][a-z0-9-]{0,49}$/, "must be 1 to 50 lowercase letters, digits and `-`, a letter first");
const permissionList = z
  .array(z.enum(permissionNames as [Permission, ...Permission[]]))
  .refine((list) => new Set(list).size === list.length, "must not repeat a permission");
const role = z
  .object({
    id: id.nullable(),
    name: z.string(),
    built_in: z.boolean(),
    permissions: z.array(z.string()),
    created_at: timestamp.nullable(),
  })
  .meta({ id: "Role" });

interface RoleRow {
  id: string;
  name: string;
  permissions: string[];
  created_at: Date;
}

const present = ({ id: roleId, name, permissions: granted, created_at }: RoleRow) => ({
  id: roleId,
  name,
  built_in: false,
  permissions: granted,
  created_at,
});
const nameTaken = (name: string) => refuse("CONFLICT", `there is a role ${name} already: choose another name`);
const access = members("roles.manage");

async function load({ deps, caller, params }: { deps: { db: Db }; caller: Caller; params: { id: string } }): Promise<RoleRow> {
  const row: RoleRow | undefined = isId(params.id)
    ? await deps.db("roles").where({ id: params.id, org_id: caller.org.live.id }).first("id", "name", "permissions", "created_at")
    : undefined;
  if (!row) throw notFound(`the role ${params.id}`);
  return row;
}

/** Carries out the writing of a role and answers it as it is then. @throws Refusal 409 when its organisation has one of that name */
async function written(writing: Knex.QueryBuilder, name: string): Promise<RoleRow | undefined> {
  try {
    const [row] = (await writing.returning(["id", "name", "permissions", "created_at"])) as RoleRow[];
    return row;
  } catch (error) {
    throw isUniqueViolation(error) ? nameTaken(name) : error;
  }
}

const list = route({
  method: "GET",
  path: "/v1/auth/roles",
  summary: "List the roles: built in and custom",
  access: members("members.read"),
  responses: { 200: { description: "Each with its permissions", schema: z.object({ items: z.array(role), next_cursor: z.null() }) } },
  handler: async ({ deps, caller }) => {
    const rows: RoleRow[] = await deps
      .db("roles")
      .where({ org_id: caller.org.live.id })
      .orderBy("name")
      .select("id", "name", "permissions", "created_at");
    const builtIn = Object.entries(builtInRoles).map(([name, granted]) => ({
      id: null,
      name,
      built_in: true,
      permissions: [...granted],
      created_at: null,
    }));
    return { status: 200, body: { items: [...builtIn, ...rows.map(present)], next_cursor: null } };
  },
});

const create = route({
  method: "POST",
  path: "/v1/auth/roles",
  summary: "Create a custom role",
  description: "It cannot get a permission that its maker lacks (403).",
  access,
  body: z.strictObject({ name: roleName, permissions: permissionList }),
  responses: { 201: { description: "The role", schema: role }, 409: { description: "The name is taken" } },
  handler: async ({ deps, caller, body }) => {
    checkMayHandle(caller, body.name, new Set(body.permissions));
    if (isBuiltIn(body.name)) throw nameTaken(body.name);
    const row = await deps.db.transaction(async (trx) => {
      const made = await written(trx("roles").insert({ id: newId(), org_id: caller.org.live.id, ...body }), body.name);
      if (!made) throw new Error("the role was not written");
      await recordAudit(trx, caller, {
        action: "role.created",
        target: { kind: "role", id: made.id, name: made.name },
        detail: { permissions: body.permissions },
      });
      return made;
    });
    return { status: 201, body: present(row) };
  },
});

const change = route({
  method: "PATCH",
  path: "/v1/auth/roles/{id}",
  summary: "Rename a custom role, or change what it may do",
  description: "Holds for its members from their next request on.",
  access,
  params: idParams,
  load,
  body: z.strictObject({ name: roleName.optional(), permissions: permissionList.optional() }),
  responses: { 200: { description: "The role as it is now", schema: role }, 409: { description: "The name is taken" } },
  handler: async ({ deps, caller, resource, body }) => {
    const { name = resource.name, permissions = resource.permissions } = body;
    checkMayHandle(caller, resource.name, new Set(resource.permissions));
    checkMayHandle(caller, name, new Set(body.permissions ?? []));
    if (body.name !== undefined && isBuiltIn(body.name)) throw nameTaken(body.name);
    const orgId = caller.org.live.id;
    const row = await deps.db.transaction(async (trx) => {
      await lockOrg(trx, orgId);
      const changed = await written(trx("roles").where({ id: resource.id }).update({ name, permissions }), name);
      if (!changed) throw notFound(`the role ${resource.id}`);
      if (changed.name !== resource.name) {
        for (const table of ["members", "invitations"])
          await trx(table).where({ org_id: orgId, role: resource.name }).update({ role: changed.name });
      }
      await recordAudit(trx, caller, {
        action: "role.changed",
        target: { kind: "role", id: changed.id, name: changed.name },
        detail: {
          before: { name: resource.name, permissions: resource.permissions },
          after: { name: changed.name, permissions: changed.permissions },
        },
      });
      return changed;
    });
    return { status: 200, body: present(row) };
  },
});

const remove = route({
  method: "DELETE",
  path: "/v1/auth/roles/{id}",
  summary: "Delete a custom role nobody has",
  access,
  params: idParams,
  load,
  responses: { 204: { description: "Deleted" }, 409: { description: "A member or a pending invitation has it" } },
  handler: async ({ deps, caller, resource }) => {
    const orgId = caller.org.live.id;
    await deps.db.transaction(async (trx) => {
      await lockOrg(trx, orgId);
      const member = await trx("members").where({ org_id: orgId, role: resource.name, removed_at: null }).first("id");
      const invited = await trx("invitations")
        .where({ org_id: orgId, role: resource.name, accepted_at: null, revoked_at: null })
        .first("id");
      if (member || invited)
        throw refuse("CONFLICT", `members or invitations still have the role ${resource.name}: give them another first`);
      const deleted = await trx("roles").where({ id: resource.id }).delete();
      if (deleted === 0) throw notFound(`the role ${resource.id}`);
      await recordAudit(trx, caller, { action: "role.deleted", target: { kind: "role", id: resource.id, name: resource.name } });
    });
    return { status: 204 };
  },
});

const listPermissions = route({
  method: "GET",
  path: "/v1/auth/permissions",
  summary: "List every permission, with the key scope that covers it",
  access: members(null),
  responses: {
    200: {
      description: "Names with a line each",
      schema: z.object({
        items: z.array(z.object({ name: z.string(), description: z.string(), scope: z.string() })),
        next_cursor: z.null(),
      }),
    },
  },
  handler: async () => ({
    status: 200,
    body: {
      items: permissionNames.map((name) => ({ name, description: permissions[name].line, scope: permissions[name].scope })),
      next_cursor: null,
    },
  }),
});

export const roleRoutes = [list, create, change, remove, listPermissions];
