import { z } from "zod";
import { isId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import { scoped } from "../../http/access.ts";
import type { Actor, Caller } from "../../http/caller.ts";
import { id, pageQuery, timestamp } from "../../http/fields.ts";
import { encodeCursor, numberOfCursor, pageOf } from "../../http/page.ts";
import { notFound } from "../../http/refusal.ts";
import { route, type Service } from "../../http/route.ts";

/** A version of a kap that became live, seen as a deployment of an app (decided §3). */
interface DeploymentRow {
  id: string;
  app_id: string;
  version_id: string;
  sequence: number;
  status: "live" | "superseded" | "rolled-back";
  created_at: Date;
  live_at: Date;
  superseded_at: Date | null;
  created_by: Actor;
  error: null;
}

const deployment = z
  .object({
    id,
    app_id: id,
    version_id: id,
    sequence: z.int(),
    status: z.enum(["live", "superseded", "failed", "rolled-back"]).meta({
      description:
        "rolled-back: the next version restored an older one. A save that does not build changes nothing, so it is no deployment",
    }),
    created_at: timestamp,
    live_at: timestamp,
    superseded_at: timestamp.nullable(),
    created_by: z.unknown(),
    error: z.string().nullable(),
  })
  .meta({ id: "Deployment" });

/** Each version with the one that took its place: that says when it was superseded, and by a restore of an older one that it was rolled back. */
const deployments = `
  select v.id, v.kap_id as app_id, v.id as version_id, v.sequence, v.created_at, v.live_at, n.live_at as superseded_at, v.created_by, null as error,
         case when n.id is null then 'live' when o.sequence < v.sequence then 'rolled-back' else 'superseded' end as status
  from kap_versions v
  left join kap_versions n on n.kap_id = v.kap_id and n.sequence = v.sequence + 1
  left join kap_versions o on o.id = n.restored_from
  where v.kap_id = ?`;

interface App {
  id: string;
}

async function findApp(db: Db, caller: Caller, appId: string): Promise<App> {
  const row: App | undefined = await db("kaps")
    .where({ org_id: caller.org.id, ...(isId(appId) ? { id: appId } : { slug: appId }) })
    .modify((query) => {
      if (caller.workspaceId !== null) query.where({ workspace_id: caller.workspaceId });
    })
    .first("id");
  if (!row) throw notFound(`the app ${appId}`);
  return row;
}

const access = scoped("read", "kaps.read");

const list = route({
  method: "GET",
  path: "/v1/apps/{app_id}/deployments",
  summary: "List the deployments of an app, newest first",
  description: "An app is a kap; its id or slug names it.",
  access,
  params: z.object({ app_id: z.string() }),
  load: ({ deps, caller, params }) => findApp(deps.db, caller, params.app_id),
  query: pageQuery,
  responses: {
    200: {
      description: "A page of deployments",
      schema: z.object({ deployments: z.array(deployment), next_cursor: z.string().nullable() }),
    },
  },
  handler: async ({ deps, resource, query }) => {
    const before = query.cursor === undefined ? null : numberOfCursor(query.cursor);
    const { rows } = await deps.db.raw<{ rows: DeploymentRow[] }>(
      `${deployments} and (?::int is null or v.sequence < ?) order by v.sequence desc limit ?`,
      [resource.id, before, before, query.limit + 1] as never,
    );
    const { items, next_cursor } = pageOf(rows, query.limit, (row) => encodeCursor([row.sequence]));
    return { status: 200, body: { deployments: items, next_cursor } };
  },
});

const get = route({
  method: "GET",
  path: "/v1/apps/{app_id}/deployments/{deployment_id}",
  summary: "Get one deployment",
  access,
  params: z.object({ app_id: z.string(), deployment_id: z.string() }),
  load: async ({ deps, caller, params }) => {
    const app = await findApp(deps.db, caller, params.app_id);
    const { rows } = isId(params.deployment_id)
      ? await deps.db.raw<{ rows: DeploymentRow[] }>(`${deployments} and v.id = ?`, [app.id, params.deployment_id])
      : { rows: [] };
    if (!rows[0]) throw notFound(`the deployment ${params.deployment_id}`);
    return rows[0];
  },
  responses: { 200: { description: "The deployment", schema: deployment } },
  handler: async ({ resource }) => ({ status: 200, body: resource }),
});

/** The deployments read API over the versions of kaps. */
export const deploymentsService: Service = { name: "deployments", envelope: "nested", routes: [list, get] };
