import { z } from "zod";
import { isId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import { members } from "../../http/access.ts";
import type { Caller } from "../../http/caller.ts";
import { id, idParams, listOf, pageQuery, timestamp } from "../../http/fields.ts";
import { encodeCursor, idOfCursor, pageOf } from "../../http/page.ts";
import { notFound } from "../../http/refusal.ts";
import { route } from "../../http/route.ts";
import { recordAudit } from "./audit.ts";

const session = z
  .object({
    id,
    org_id: id,
    org_slug: z.string(),
    device: z.string(),
    user_agent: z.string().nullable(),
    address: z.string().nullable().meta({ description: "Where it was signed in from" }),
    created_at: timestamp,
    expires_at: timestamp,
    last_used_at: timestamp.nullable(),
    current: z.boolean(),
  })
  .meta({ id: "Session" });

interface SessionRow {
  id: string;
  org_id: string;
  org_slug: string;
  device: string;
  user_agent: string | null;
  address: string | null;
  created_at: Date;
  expires_at: Date;
  last_used_at: Date | null;
}

/** The live sessions of the caller's own account, in whichever of its organisations. */
function ownSessions(db: Db, caller: Caller) {
  return db("credentials as c")
    .join("orgs as o", "o.id", "c.org_id")
    .whereIn(
      "c.member_id",
      db("members")
        .where({ account_id: caller.member?.accountId ?? null, removed_at: null })
        .select("id"),
    )
    .where({ "c.kind": "session", "c.revoked_at": null })
    .where("c.expires_at", ">", db.fn.now());
}

const list = route({
  method: "GET",
  path: "/v1/auth/sessions",
  summary: "List your own sessions, newest first",
  access: members(null),
  query: pageQuery,
  responses: { 200: { description: "Device, address and last use of each", schema: listOf(session) } },
  handler: async ({ deps, caller, query }) => {
    const rows: SessionRow[] = await ownSessions(deps.db, caller)
      .modify((select) => {
        if (query.cursor !== undefined) select.where("c.id", "<", idOfCursor(query.cursor));
      })
      .orderBy("c.id", "desc")
      .limit(query.limit + 1)
      .select("c.id", "c.org_id", "o.slug as org_slug", "c.created_at", "c.expires_at", "c.last_used_at", {
        device: deps.db.raw("c.details ->> 'device'"),
        user_agent: deps.db.raw("c.details ->> 'user_agent'"),
        address: deps.db.raw("c.details ->> 'address'"),
      });
    const { items, next_cursor } = pageOf(rows, query.limit, (row) => encodeCursor([row.id]));
    return { status: 200, body: { items: items.map((row) => ({ ...row, current: row.id === caller.credentialId })), next_cursor } };
  },
});

const remove = route({
  method: "DELETE",
  path: "/v1/auth/sessions/{id}",
  summary: "End one of your own sessions",
  access: members(null),
  params: idParams,
  load: async ({ deps, caller, params }) => {
    const row: { id: string; device: string } | undefined = isId(params.id)
      ? await ownSessions(deps.db, caller).where({ "c.id": params.id }).first("c.id", "c.name as device")
      : undefined;
    if (!row) throw notFound(`the session ${params.id}`);
    return row;
  },
  responses: { 204: { description: "Dead at once, with its JWTs" } },
  handler: async ({ deps, caller, resource }) => {
    await deps.db.transaction(async (trx) => {
      const ended = await trx("credentials").where({ id: resource.id, revoked_at: null }).update({ revoked_at: trx.fn.now() });
      if (ended === 0) throw notFound(`the session ${resource.id}`);
      await recordAudit(trx, caller, { action: "session.ended", target: { kind: "session", id: resource.id, name: resource.device } });
    });
    return { status: 204 };
  },
});

export const sessionRoutes = [list, remove];
