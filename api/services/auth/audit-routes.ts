import { Readable } from "node:stream";
import { z } from "zod";
import type { Db } from "#platform/postgres.ts";
import { members } from "../../http/access.ts";
import { id, instant, listOf, pageQuery, timestamp } from "../../http/fields.ts";
import { encodeCursor, idOfCursor, pageOf } from "../../http/page.ts";
import { route } from "../../http/route.ts";
import { recordAudit } from "./audit.ts";

const exportBatch = 1_000;

const auditEvent = z
  .object({
    id,
    at: timestamp,
    action: z.string(),
    actor: z.object({ kind: z.string(), id: z.string(), name: z.string() }),
    target: z.looseObject({}),
    address: z.string().nullable(),
    credential: z.object({ kind: z.string(), id: z.string(), name: z.string() }).nullable(),
    request_id: z.string().nullable(),
    detail: z.looseObject({}),
  })
  .meta({ id: "AuditEvent" });

const filters = z.object({
  action: z.string().max(100).optional().meta({ description: "`api-key.created`, or `api-key.*` for all of a subject" }),
  actor_id: z.string().max(300).optional(),
  target_id: z.string().max(300).optional(),
  address: z.string().max(100).optional(),
  since: instant.optional(),
  until: instant.optional(),
});

interface AuditRow {
  id: string;
  at: Date;
}

/** The audit of one organisation, newest first, after a place in it. */
function select(db: Db, orgId: string, wanted: z.infer<typeof filters>, before: string | null, limit: number): Promise<AuditRow[]> {
  return db("audit_events")
    .where({ org_id: orgId })
    .modify((query) => {
      const { action, actor_id, target_id, address, since, until } = wanted;
      if (action?.endsWith(".*")) query.whereRaw("starts_with(action, ?)", [action.slice(0, -1)]);
      else if (action !== undefined) query.where({ action });
      if (actor_id !== undefined) query.whereRaw("actor ->> 'id' = ?", [actor_id]);
      if (target_id !== undefined) query.whereRaw("target ->> 'id' = ?", [target_id]);
      if (address !== undefined) query.where({ address });
      if (since !== undefined) query.where("at", ">=", since);
      if (until !== undefined) query.where("at", "<", until);
      if (before !== null) query.where("id", "<", before);
    })
    .orderBy("id", "desc")
    .limit(limit)
    .select("id", "at", "action", "actor", "target", "address", "credential", "request_id", "detail");
}

const list = route({
  method: "GET",
  path: "/v1/auth/audit",
  summary: "List who did what, from where, with which credential",
  description: "Newest first. Append-only: no route changes or deletes a line.",
  access: members("audit.read"),
  query: pageQuery.extend(filters.shape),
  responses: { 200: { description: "A page of the audit", schema: listOf(auditEvent) } },
  handler: async ({ deps, caller, query }) => {
    const before = query.cursor === undefined ? null : idOfCursor(query.cursor);
    const rows = await select(deps.db, caller.org.id, query, before, query.limit + 1);
    const { items, next_cursor } = pageOf(rows, query.limit, (row) => encodeCursor([row.id]));
    return { status: 200, body: { items, next_cursor } };
  },
});

/** One JSON text a line, a batch read when the one before has been sent. */
async function* lines(db: Db, orgId: string, wanted: z.infer<typeof filters>): AsyncGenerator<string> {
  let before: string | null = null;
  for (;;) {
    const rows: AuditRow[] = await select(db, orgId, wanted, before, exportBatch);
    for (const row of rows) yield `${JSON.stringify(row)}\n`;
    const last = rows.at(-1);
    if (!last || rows.length < exportBatch) return;
    before = last.id;
  }
}

const exportAll = route({
  method: "GET",
  path: "/v1/auth/audit/export",
  summary: "Export the audit as NDJSON",
  description: "Newest first, one event a line, with the filters of the list. The export itself is audited.",
  access: members("audit.read"),
  query: filters,
  responses: { 200: { description: "One JSON object a line", contentType: "application/x-ndjson" } },
  handler: async ({ deps, caller, query }) => {
    await recordAudit(deps.db, caller, {
      action: "audit.exported",
      target: { kind: "org", id: caller.org.id, name: caller.org.slug },
      detail: query,
    });
    return {
      status: 200,
      headers: {
        "content-type": "application/x-ndjson; charset=utf-8",
        "content-disposition": `attachment; filename="audit-${caller.org.slug}.ndjson"`,
      },
      stream: Readable.from(lines(deps.db, caller.org.id, query)),
    };
  },
});

export const auditRoutes = [list, exportAll];
