import { z } from "zod";
import type { Deps } from "../../deps.ts";
import type { Caller } from "../../http/caller.ts";
import { cursorQuery, encodeCursor, limitQuery, pageOf } from "../../http/page.ts";
import { Refusal } from "../../http/refusal.ts";
import { type Reply, type Route, route } from "../../http/route.ts";
import { listTriggers, presentTrigger } from "../triggers/trigger.ts";
import { createKap } from "./create.ts";
import { readContents } from "./file-set.ts";
import { historyPage, idOf } from "./history.ts";
import { type KapRow, presentKap } from "./kap.ts";
import { kapBase, loadKap, readers, writers } from "./kap-access.ts";
import { deleteKap, disableKap, enableKap, recoverKap, renameKap } from "./lifecycle.ts";
import { answers, bodies, kapPath, orgPath, queries } from "./schema.ts";
import { findVersion, presentVersion } from "./version.ts";

const page = z.object({ limit: limitQuery(), cursor: cursorQuery });
const aKap = { 200: { description: "The kap", schema: answers.kap } };

/** A route that takes a kap from one state to another, and asks for nothing else. */
function turn(
  method: "POST" | "DELETE",
  path: string,
  summary: string,
  change: (deps: Deps, caller: Caller, client: string | null, kapId: string) => Promise<KapRow>,
): Route {
  return route({
    method,
    path,
    summary,
    access: writers,
    params: kapPath,
    load: loadKap,
    responses: aKap,
    handler: async ({ deps, caller, client, resource }) => replyKap(deps, await change(deps, caller, client, resource.id)),
  });
}

/** Kaps themselves: making, listing, reading, renaming, ending and bringing back. */
export const kapRoutes: readonly Route[] = [
  route({
    method: "POST",
    path: "/v1/orgs/{org_id}/kaps",
    summary: "Create a kap with its first version",
    description:
      "The kap is born with an enabled request trigger on its main file, a database, a file store and one machine token named default, which is shown once. " +
      "`audience: public` needs `confirm_public: true`. Type errors come back as diagnostics, and refuse only with `?strict=true`.",
    access: writers,
    params: orgPath,
    query: queries.save,
    body: bodies.create,
    responses: { 201: { description: "The kap, its version, its address and its token", schema: answers.created } },
    secretFields: ["bypass_token"],
    async handler({ deps, caller, client, query, body, signal }) {
      if (body.audience === "public" && !body.confirm_public) throw confirmPublicRequired();
      const { kap, version, diagnostics, bypassToken } = await createKap(
        deps,
        caller,
        client,
        { name: body.name, mainFile: body.main_file, files: body.files, audience: body.audience, strict: query.strict },
        signal,
      );
      return {
        status: 201,
        body: {
          kap: presentKap(kap, deps.addresses),
          version: presentVersion(version),
          address: deps.addresses.kap(kap.slug),
          bypass_token: bypassToken,
          diagnostics,
        },
      };
    },
  }),
  route({
    method: "GET",
    path: "/v1/orgs/{org_id}/kaps",
    summary: "List the kaps that are not deleted, newest first",
    access: readers,
    params: orgPath,
    query: page,
    responses: { 200: { description: "A page of kaps", schema: answers.kaps } },
    async handler({ deps, caller, query }) {
      const select = deps.db("kaps").where({ org_id: caller.org.id }).whereNot("state", "deleted").orderBy("id", "desc");
      if (caller.workspaceId !== null) void select.where({ workspace_id: caller.workspaceId });
      if (query.cursor !== undefined) void select.where("id", "<", idOf(query.cursor));
      const rows: KapRow[] = await select.limit(query.limit + 1);
      const { items, next_cursor } = pageOf(rows, query.limit, (row) => encodeCursor([row.id]));
      return { status: 200, body: { kaps: items.map((kap) => presentKap(kap, deps.addresses)), next_cursor } };
    },
  }),
  route({
    method: "GET",
    path: kapBase,
    summary: "Read a kap with the files of its current version and its triggers",
    access: readers,
    params: kapPath,
    load: loadKap,
    responses: { 200: { description: "The kap, its files, its current version and its triggers", schema: answers.kapWithFiles } },
    async handler({ deps, resource: kap }) {
      refuseGone(kap);
      const now = new Date();
      const version = await findVersion(deps.db, kap.id, kap.current_version_id);
      const [files, triggers] = await Promise.all([readContents(deps.db, kap.id, version.files), listTriggers(deps.db, kap.id)]);
      return {
        status: 200,
        body: {
          kap: presentKap(kap, deps.addresses),
          files,
          version: presentVersion(version),
          triggers: triggers.map((trigger) => presentTrigger(trigger, now)),
        },
      };
    },
  }),
  route({
    method: "PATCH",
    path: kapBase,
    summary: "Rename a kap; its slug and address stay",
    access: writers,
    params: kapPath,
    load: loadKap,
    body: bodies.rename,
    responses: aKap,
    async handler({ deps, caller, client, resource, body }) {
      return replyKap(deps, await renameKap(deps, caller, client, resource.id, body.name));
    },
  }),
  route({
    method: "GET",
    path: `${kapBase}/history`,
    summary: "What happened to a kap, in order",
    description: "Every change with who made it and by which client; deletion and recovery included. Values of secrets never appear.",
    access: readers,
    params: kapPath,
    load: loadKap,
    query: page,
    responses: { 200: { description: "A page of events", schema: answers.history } },
    async handler({ deps, resource, query }) {
      return { status: 200, body: await historyPage(deps.db, resource.id, query) };
    },
  }),
  turn("DELETE", kapBase, "Delete a kap: it stops at once and can be recovered until its deadline", deleteKap),
  turn("POST", `${kapBase}/recover`, "Recover a deleted kap: the same versions, files and token states", recoverKap),
  route({
    method: "GET",
    path: "/v1/orgs/{org_id}/recovery",
    summary: "List the deleted kaps, also those whose deadline is over",
    access: readers,
    params: orgPath,
    query: page,
    responses: { 200: { description: "A page of kaps, newest first", schema: answers.kaps } },
    async handler({ deps, caller, query }) {
      const select = deps.db("kaps").where({ org_id: caller.org.id, state: "deleted" }).orderBy("id", "desc");
      if (caller.workspaceId !== null) void select.where({ workspace_id: caller.workspaceId });
      if (query.cursor !== undefined) void select.where("id", "<", idOf(query.cursor));
      const rows: KapRow[] = await select.limit(query.limit + 1);
      const { items, next_cursor } = pageOf(rows, query.limit, (row) => encodeCursor([row.id]));
      return { status: 200, body: { kaps: items.map((kap) => presentKap(kap, deps.addresses)), next_cursor } };
    },
  }),
  route({
    method: "POST",
    path: `${kapBase}/disable`,
    summary: "Disable a kap: it serves nothing, runs no schedule and accepts no mail",
    description: "Every refusal then says who disabled it, when and why.",
    access: writers,
    params: kapPath,
    load: loadKap,
    body: bodies.disable,
    responses: aKap,
    async handler({ deps, caller, client, resource, body }) {
      return replyKap(deps, await disableKap(deps, caller, client, resource.id, body.reason));
    },
  }),
  turn("POST", `${kapBase}/enable`, "Enable a disabled kap", enableKap),
];

const replyKap = (deps: Deps, kap: KapRow): Reply => ({ status: 200, body: { kap: presentKap(kap, deps.addresses) } });

/** 422: what goes public must say so twice (spec 3 §5 B rule 6). */
export function confirmPublicRequired(): Refusal {
  return new Refusal(
    422,
    "CONFIRM_PUBLIC_REQUIRED",
    "a public kap can be called by anyone who knows its address: send confirm_public: true if that is meant",
    { details: [{ path: "confirm_public", message: "must be true" }] },
  );
}

/** 410: of a kap whose recovery period is over only its name and its history are left. */
function refuseGone(kap: KapRow): void {
  if (kap.purged_at === null) return;
  throw new Refusal(410, "RECOVERY_EXPIRED", `the kap ${kap.slug} was deleted, and gone for good since ${kap.purged_at.toISOString()}`, {
    details: { deleted_at: kap.deleted_at, recover_until: kap.recover_until },
  });
}
