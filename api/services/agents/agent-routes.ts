import { z } from "zod";
import { newId } from "#platform/ids.ts";
import { members, scoped } from "../../http/access.ts";
import { actorOf } from "../../http/caller.ts";
import { id, idParams, listOf, nameText, pageQuery, timestamp } from "../../http/fields.ts";
import { encodeCursor, idOfCursor, pageOf } from "../../http/page.ts";
import { notFound } from "../../http/refusal.ts";
import { route } from "../../http/route.ts";
import { recordAudit } from "../auth/audit.ts";
import { type AgentRow, agentColumns, findAgent } from "./agent.ts";

const agent = z.object({ id, name: z.string(), created_at: timestamp, created_by: z.unknown() }).meta({ id: "Agent" });

const create = route({
  method: "POST",
  path: "/v1/agents",
  summary: "Create an agent",
  access: members("agents.manage"),
  body: z.strictObject({ name: nameText }),
  responses: { 201: { description: "The agent", schema: agent } },
  handler: async ({ deps, caller, body }) => {
    const row = await deps.db.transaction(async (trx) => {
      const [made] = (await trx("agents")
        .insert({ id: newId(), org_id: caller.org.id, name: body.name, created_by: JSON.stringify(actorOf(caller)) })
        .returning([...agentColumns])) as AgentRow[];
      if (!made) throw new Error("the agent was not written");
      await recordAudit(trx, caller, { action: "agent.created", target: { kind: "agent", id: made.id, name: made.name } });
      return made;
    });
    return { status: 201, body: row };
  },
});

const list = route({
  method: "GET",
  path: "/v1/agents",
  summary: "List agents, newest first",
  access: scoped("read", null),
  query: pageQuery,
  responses: { 200: { description: "A page of agents", schema: listOf(agent) } },
  handler: async ({ deps, caller, query }) => {
    const rows: AgentRow[] = await deps
      .db("agents")
      .where({ org_id: caller.org.id, deleted_at: null })
      .modify((select) => {
        if (query.cursor !== undefined) select.where("id", "<", idOfCursor(query.cursor));
      })
      .orderBy("id", "desc")
      .limit(query.limit + 1)
      .select(...agentColumns);
    const { items, next_cursor } = pageOf(rows, query.limit, (row) => encodeCursor([row.id]));
    return { status: 200, body: { items, next_cursor } };
  },
});

const get = route({
  method: "GET",
  path: "/v1/agents/{id}",
  summary: "Get an agent",
  access: scoped("read", null),
  params: idParams,
  load: ({ deps, caller, params }) => findAgent(deps.db, caller, params.id),
  responses: { 200: { description: "The agent", schema: agent } },
  handler: async ({ resource }) => ({ status: 200, body: resource }),
});

const remove = route({
  method: "DELETE",
  path: "/v1/agents/{id}",
  summary: "Delete an agent; its keys and streams end",
  access: members("agents.manage"),
  params: idParams,
  load: ({ deps, caller, params }) => findAgent(deps.db, caller, params.id),
  responses: { 204: { description: "Deleted" } },
  handler: async ({ deps, caller, resource }) => {
    await deps.db.transaction(async (trx) => {
      const deleted = await trx("agents").where({ id: resource.id, deleted_at: null }).update({ deleted_at: trx.fn.now() });
      if (deleted === 0) throw notFound(`the agent ${resource.id}`);
      await trx("credentials").where({ agent_id: resource.id, revoked_at: null }).update({ revoked_at: trx.fn.now() });
      await recordAudit(trx, caller, { action: "agent.deleted", target: { kind: "agent", id: resource.id, name: resource.name } });
    });
    return { status: 204 };
  },
});

export const agentRoutes = [create, list, get, remove];
