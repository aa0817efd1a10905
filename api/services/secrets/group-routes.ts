import { z } from "zod";
import type { Deps } from "../../deps.ts";
import type { Caller } from "../../http/caller.ts";
import { cursorQuery, encodeCursor, limitQuery, pageOf } from "../../http/page.ts";
import { type Route, route } from "../../http/route.ts";
import { type HistoryEvent, historyColumns, idOf } from "../kaps/history.ts";
import { readers, writers } from "../kaps/kap-access.ts";
import {
  createGroup,
  deleteGroup,
  deleteGroupSecret,
  findGroup,
  type GroupRow,
  presentGroup,
  renameGroup,
  setGroupSecret,
} from "./group.ts";
import { answers, bodies } from "./schema.ts";
import { checkSecretName } from "./secret-name.ts";
import { secretsOfGroup } from "./secrets.ts";

const groups = "/v1/orgs/{org_id}/secret-groups";
const group = `${groups}/{group_id}`;
const orgPath = z.object({ org_id: z.string() });
const groupPath = orgPath.extend({ group_id: z.string() });
const secretPath = groupPath.extend({ name: z.string() });

function loadGroup({ deps, caller, params }: { deps: Deps; caller: Caller; params: { group_id: string } }): Promise<GroupRow> {
  return findGroup(deps.db, caller.org.id, params.group_id);
}

/** Secret groups of an organisation. */
export const groupRoutes: readonly Route[] = [
  route({
    method: "POST",
    path: groups,
    summary: "Create a secret group",
    access: writers,
    params: orgPath,
    body: bodies.group,
    responses: { 201: { description: "The group", schema: answers.group } },
    async handler({ deps, caller, client, body }) {
      return { status: 201, body: { group: presentGroup(await createGroup(deps, caller, client, body.name)) } };
    },
  }),
  route({
    method: "GET",
    path: groups,
    summary: "List the secret groups of the organisation",
    access: readers,
    params: orgPath,
    responses: { 200: { description: "The groups by name", schema: answers.groups } },
    async handler({ deps, caller }) {
      const rows: GroupRow[] = await deps.db("secret_groups").where({ org_id: caller.org.id }).whereNull("deleted_at").orderBy("name");
      return { status: 200, body: { groups: rows.map(presentGroup) } };
    },
  }),
  route({
    method: "PATCH",
    path: group,
    summary: "Rename a secret group",
    access: writers,
    params: groupPath,
    load: loadGroup,
    body: bodies.group,
    responses: { 200: { description: "The group", schema: answers.group } },
    async handler({ deps, caller, client, resource, body }) {
      return { status: 200, body: { group: presentGroup(await renameGroup(deps, caller, client, resource.id, body.name)) } };
    },
  }),
  route({
    method: "DELETE",
    path: group,
    summary: "Delete a secret group and its secrets; 409 while a kap has it attached",
    access: writers,
    params: groupPath,
    load: loadGroup,
    responses: { 200: { description: "The receipt", schema: answers.groupDeleted } },
    async handler({ deps, caller, client, resource }) {
      return { status: 200, body: { group: presentGroup(await deleteGroup(deps, caller, client, resource.id)), deleted: true } };
    },
  }),
  route({
    method: "GET",
    path: `${group}/secrets`,
    summary: "List the names of a group's secrets",
    access: readers,
    params: groupPath,
    load: loadGroup,
    responses: { 200: { description: "Names and where they come from", schema: answers.groupSecrets } },
    async handler({ deps, resource }) {
      const secrets = await secretsOfGroup(deps.db, resource.id);
      return { status: 200, body: { secrets: secrets.map(({ name }) => ({ name, group_id: resource.id, group_name: resource.name })) } };
    },
  }),
  route({
    method: "PUT",
    path: `${group}/secrets/{name}`,
    summary: "Set a secret of a group, for every kap it is attached to",
    description: "A name that any attached kap already sees makes the whole change 409 `SECRET_NAME_CONFLICT`.",
    access: writers,
    params: secretPath,
    load: loadGroup,
    body: bodies.value,
    responses: { 200: { description: "The receipt, without the value", schema: answers.set } },
    async handler({ deps, caller, client, resource, params: { name }, body }) {
      checkSecretName(name);
      const pending = await setGroupSecret(deps, caller, client, resource.id, name, body.value);
      return { status: 200, body: { name, set: true, refresh_pending: pending } };
    },
  }),
  route({
    method: "DELETE",
    path: `${group}/secrets/{name}`,
    summary: "Delete a secret of a group",
    access: writers,
    params: secretPath,
    load: loadGroup,
    responses: { 200: { description: "The receipt", schema: answers.deleted } },
    async handler({ deps, caller, client, resource, params: { name } }) {
      const pending = await deleteGroupSecret(deps, caller, client, resource.id, name);
      return { status: 200, body: { name, deleted: true, refresh_pending: pending } };
    },
  }),
  route({
    method: "GET",
    path: `${group}/history`,
    summary: "What happened to a secret group, in order; values never appear",
    access: readers,
    params: groupPath,
    query: z.object({ limit: limitQuery(), cursor: cursorQuery }),
    load: loadGroup,
    responses: { 200: { description: "A page of events", schema: answers.history } },
    async handler({ deps, resource, query }) {
      const select = deps
        .db("secret_group_events")
        .where({ group_id: resource.id })
        .orderBy("id")
        .limit(query.limit + 1)
        .select(historyColumns);
      if (query.cursor !== undefined) void select.where("id", ">", idOf(query.cursor));
      const rows: HistoryEvent[] = await select;
      const { items, next_cursor } = pageOf(rows, query.limit, (row) => encodeCursor([row.id]));
      return { status: 200, body: { events: items, next_cursor } };
    },
  }),
];
