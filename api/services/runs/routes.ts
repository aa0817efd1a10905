import { isId } from "#platform/ids.ts";
import { members } from "../../http/access.ts";
import { actorOf, type Caller } from "../../http/caller.ts";
import { decodeCursor, encodeCursor, pageOf } from "../../http/page.ts";
import { invalid, notFound, refuse } from "../../http/refusal.ts";
import { type Context, type Reply, type Route, route } from "../../http/route.ts";
import { findKap, type KapRow } from "../kaps/kap.ts";
import { kapState } from "./kap-state.ts";
import { presentRun } from "./run.ts";
import * as schema from "./schema.ts";
import { acknowledge, findTriggerRun, listLogLines, listRuns, listTriggerRuns, type TriggerRunRow } from "./store.ts";
import { readUsage } from "./usage.ts";

const reading = members("kaps.read", { otherKinds: 401 });
const writing = members("kaps.write", { otherKinds: 401 });
const kapBase = "/v1/orgs/{org_id}/kaps/{id}";

function presentTriggerRun(run: TriggerRunRow): Record<string, unknown> {
  const expired = run.payload === null && run.payload_expires_at !== null && run.payload_expires_at <= new Date();
  return { ...presentRun(run), payload: expired ? { expired: true, expired_at: run.payload_expires_at } : run.payload };
}

async function triggerRun(db: Parameters<typeof findTriggerRun>[0], kap: KapRow, id: string): Promise<TriggerRunRow> {
  const run = isId(id) ? await findTriggerRun(db, kap.id, id) : undefined;
  if (!run) throw notFound(`the trigger run ${id}`);
  return run;
}

/** The kap's log, on both bases. */
async function readLog({
  deps,
  resource,
  query,
}: Context<unknown, { after?: string | undefined; limit: number }, undefined, KapRow, Caller>): Promise<Reply> {
  const [after] = query.after === undefined ? [0] : decodeCursor(query.after, 1, "after");
  if (typeof after !== "number" || !Number.isSafeInteger(after)) throw invalid({ path: "after", message: "is not a cursor of this log" });
  const rows = await listLogLines(deps.db, resource.id, after, query.limit);
  const shown = rows.slice(0, query.limit);
  // The cursor is always given: at the end of the log it is where the next lines will come.
  const next = encodeCursor([shown.at(-1)?.position ?? after]);
  const lines = shown.map(({ at, run_id, level, text }) => ({ at, run_id, level, text }));
  return { status: 200, body: { lines, next_cursor: next, has_more: rows.length > query.limit, ...kapState(resource) } };
}

const logRoute = {
  method: "GET",
  summary: "The log lines of a kap",
  description:
    "Lines in the order in which they became visible, up to 200. `next_cursor` is always given: with `after` set to it the next call answers what has come since, and misses nothing.",
  access: reading,
  query: schema.logQuery,
  responses: { 200: { description: "Lines, oldest first", schema: schema.logAnswer } },
} as const;

export const routes: Route[] = [
  route({
    method: "GET",
    path: `${kapBase}/runs`,
    summary: "Every invocation of a kap, newest first",
    access: reading,
    params: schema.kapParams,
    query: schema.runsQuery,
    responses: { 200: { description: "A page of runs", schema: schema.runsAnswer } },
    load: ({ deps, caller, params }) => findKap(deps.db, caller, params.id),
    async handler({ deps, resource, query }) {
      const before = query.cursor === undefined ? null : String(decodeCursor(query.cursor, 1)[0]);
      if (before !== null && !isId(before)) throw invalid({ path: "cursor", message: "is not a cursor of this list" });
      const rows = await listRuns(deps.db, resource.id, { before, failedSince: query.failed_since ?? null, limit: query.limit });
      const { items, ...page } = pageOf(rows, query.limit, (run) => encodeCursor([run.id]));
      return { status: 200, body: { runs: items.map(presentRun), ...page, ...kapState(resource) } };
    },
  }),
  route({
    method: "GET",
    path: `${kapBase}/trigger-runs`,
    summary: "Runs of a kap's schedules and inbox, newest first",
    description: "`next_cursor` is the id of the last run shown, good for `before`. Texts and headers of a mail come with the single run.",
    access: reading,
    params: schema.kapParams,
    query: schema.triggerRunsQuery,
    responses: { 200: { description: "A page of runs", schema: schema.triggerRunsAnswer } },
    load: ({ deps, caller, params }) => findKap(deps.db, caller, params.id),
    async handler({ deps, resource, query }) {
      const { items, ...page } = pageOf(
        await listTriggerRuns(deps.db, resource.id, query.before ?? null, query.limit),
        query.limit,
        (run) => run.id,
      );
      return { status: 200, body: { runs: items.map(presentTriggerRun), ...page } };
    },
  }),
  route({
    method: "GET",
    path: `${kapBase}/trigger-runs/{run_id}`,
    summary: "One run of a schedule or the inbox, with its payload",
    access: reading,
    params: schema.runParams,
    responses: { 200: { description: "The run, with its payload or the notice that it has expired", schema: schema.runAnswer } },
    load: async ({ deps, caller, params }) => triggerRun(deps.db, await findKap(deps.db, caller, params.id), params.run_id),
    handler: async ({ resource }) => ({ status: 200, body: { run: presentTriggerRun(resource) } }),
  }),
  route({
    method: "POST",
    path: `${kapBase}/trigger-runs/{run_id}/acknowledge`,
    summary: "Acknowledge a failed run",
    description: "Says who has seen the failure. Acknowledging again changes nothing; a run that has not failed is 409.",
    access: writing,
    params: schema.runParams,
    responses: { 200: { description: "The acknowledged run", schema: schema.runAnswer } },
    load: async ({ deps, caller, params }) => triggerRun(deps.db, await findKap(deps.db, caller, params.id), params.run_id),
    async handler({ deps, caller, resource }) {
      if (!(await acknowledge(deps.db, resource.id, actorOf(caller)))) {
        throw refuse("CONFLICT", `only a failed run can be acknowledged: this one is ${resource.status}`);
      }
      const run = await findTriggerRun(deps.db, resource.kap_id, resource.id);
      return { status: 200, body: { run: presentTriggerRun(run ?? resource) } };
    },
  }),
  route({
    ...logRoute,
    path: `${kapBase}/log`,
    params: schema.kapParams,
    load: ({ deps, caller, params }) => findKap(deps.db, caller, params.id),
    handler: readLog,
  }),
  route({
    ...logRoute,
    path: "/v1/kaps/{id}/log",
    params: schema.bareKapParams,
    load: ({ deps, caller, params }) => findKap(deps.db, caller, params.id),
    handler: readLog,
  }),
  route({
    method: "GET",
    path: "/v1/orgs/{org_id}/usage",
    summary: "Consumption of every kap over the last 30 days, a row per kap and day",
    description: "A measure, not a ceiling: `enforced` is false. Days are UTC; sizes are the last ones measured that day.",
    access: reading,
    params: schema.orgParams,
    responses: { 200: { description: "Usage, newest day first", schema: schema.usageAnswer } },
    handler: async ({ deps, caller }) => ({
      status: 200,
      body: { usage: await readUsage(deps.db, caller.org.id, caller.workspaceId), enforced: false },
    }),
  }),
];
