import { z } from "zod";
import { isId, newId } from "#platform/ids.ts";
import { type Db, isUniqueViolation } from "#platform/postgres.ts";
import { members, scoped } from "../../http/access.ts";
import type { Caller } from "../../http/caller.ts";
import { id, idParams, listOf, nameText, pageQuery, timestamp } from "../../http/fields.ts";
import { encodeCursor, idOfCursor, pageOf } from "../../http/page.ts";
import { notFound, refuse } from "../../http/refusal.ts";
import { type Route, route } from "../../http/route.ts";
import { recordAudit } from "../auth/audit.ts";

interface ScopeRow {
  id: string;
  name: string;
  created_at: Date;
}

interface Scoping {
  kind: "workspace" | "project";
  table: "workspaces" | "projects";
  path: string;
  /** What stands inside, for the refusal to delete it. */
  holds: string;
}

const columns = ["id", "name", "created_at"] as const;
const foreignKeyViolation = "23503";

/** Whether PostgreSQL refused because other rows still point here. */
function isReferenced(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === foreignKeyViolation;
}

/** The routes of a thing that others are kept inside of: a workspace or a project. What is inside points at it, so PostgreSQL itself keeps what is not empty. */
function scopingRoutes({ kind, table, path, holds }: Scoping): Record<"list" | "create" | "rename" | "remove", Route> {
  const item = z.object({ id, name: z.string(), created_at: timestamp }).meta({ id: kind === "workspace" ? "Workspace" : "Project" });
  const change = members("workspaces.manage");
  const nameTaken = (name: string) => refuse("CONFLICT", `there is a ${kind} ${name} already: choose another name`);

  async function load({ deps, caller, params }: { deps: { db: Db }; caller: Caller; params: { id: string } }): Promise<ScopeRow> {
    const row: ScopeRow | undefined = isId(params.id)
      ? await deps
          .db(table)
          .where({ id: params.id, org_id: caller.org.id })
          .first(...columns)
      : undefined;
    if (!row) throw notFound(`the ${kind} ${params.id}`);
    return row;
  }

  const list = route({
    method: "GET",
    path,
    summary: `List ${table}`,
    access: scoped("read", null),
    query: pageQuery,
    responses: { 200: { description: `A page of ${table}; a key bound to one sees that one`, schema: listOf(item) } },
    handler: async ({ deps, caller, query }) => {
      const bound = caller.member ? null : kind === "workspace" ? caller.workspaceId : caller.projectId;
      const rows: ScopeRow[] = await deps
        .db(table)
        .where({ org_id: caller.org.id, ...(bound === null ? {} : { id: bound }) })
        .modify((select) => {
          if (query.cursor !== undefined) select.where("id", ">", idOfCursor(query.cursor));
        })
        .orderBy("id")
        .limit(query.limit + 1)
        .select(...columns);
      const { items, next_cursor } = pageOf(rows, query.limit, (row) => encodeCursor([row.id]));
      return { status: 200, body: { items, next_cursor } };
    },
  });

  const create = route({
    method: "POST",
    path,
    summary: `Create a ${kind}`,
    access: change,
    body: z.strictObject({ name: nameText }),
    responses: { 201: { description: `The ${kind}`, schema: item }, 409: { description: "The name is taken" } },
    handler: async ({ deps, caller, body }) => {
      const row = await deps.db.transaction(async (trx) => {
        const [made] = (await trx(table)
          .insert({ id: newId(), org_id: caller.org.id, name: body.name })
          .returning([...columns])
          .catch((error: unknown) => {
            throw isUniqueViolation(error) ? nameTaken(body.name) : error;
          })) as ScopeRow[];
        if (!made) throw new Error(`the ${kind} was not written`);
        await recordAudit(trx, caller, { action: `${kind}.created`, target: { kind, id: made.id, name: made.name } });
        return made;
      });
      return { status: 201, body: row };
    },
  });

  const rename = route({
    method: "PATCH",
    path: `${path}/{id}`,
    summary: `Rename a ${kind}`,
    access: change,
    params: idParams,
    load,
    body: z.strictObject({ name: nameText }),
    responses: { 200: { description: `The ${kind} as it is now`, schema: item }, 409: { description: "The name is taken" } },
    handler: async ({ deps, caller, resource, body }) => {
      const row = await deps.db.transaction(async (trx) => {
        const [changed] = (await trx(table)
          .where({ id: resource.id })
          .update({ name: body.name })
          .returning([...columns])
          .catch((error: unknown) => {
            throw isUniqueViolation(error) ? nameTaken(body.name) : error;
          })) as ScopeRow[];
        if (!changed) throw notFound(`the ${kind} ${resource.id}`);
        await recordAudit(trx, caller, {
          action: `${kind}.renamed`,
          target: { kind, id: changed.id, name: changed.name },
          detail: { before: resource.name },
        });
        return changed;
      });
      return { status: 200, body: row };
    },
  });

  const remove = route({
    method: "DELETE",
    path: `${path}/{id}`,
    summary: `Delete an empty ${kind}`,
    access: change,
    params: idParams,
    load,
    responses: { 204: { description: "Deleted" }, 409: { description: `It still holds ${holds}` } },
    handler: async ({ deps, caller, resource }) => {
      await deps.db.transaction(async (trx) => {
        // Credentials that are dead stay as records of what they were; they do not keep what they were bound to.
        await trx("credentials")
          .where({ [`${kind}_id`]: resource.id })
          .whereRaw("(revoked_at is not null or expires_at < now())")
          .update({ [`${kind}_id`]: null });
        const deleted = await trx(table)
          .where({ id: resource.id })
          .delete()
          .catch((error: unknown) => {
            throw isReferenced(error)
              ? refuse("CONFLICT", `the ${kind} ${resource.name} still holds ${holds}: move or delete them first`)
              : error;
          });
        if (deleted === 0) throw notFound(`the ${kind} ${resource.id}`);
        await recordAudit(trx, caller, { action: `${kind}.deleted`, target: { kind, id: resource.id, name: resource.name } });
      });
      return { status: 204 };
    },
  });

  return { list, create, rename, remove };
}

const workspaces = scopingRoutes({
  kind: "workspace",
  table: "workspaces",
  path: "/v1/workspaces",
  holds: "kaps, artifacts, products, stories, tables or keys",
});
const projects = scopingRoutes({ kind: "project", table: "projects", path: "/v1/projects", holds: "tables or keys" });

export const workspaceRoutes = [workspaces.list, workspaces.create, workspaces.rename, workspaces.remove];
export const projectRoutes = [projects.list, projects.create, projects.remove];
