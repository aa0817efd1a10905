import { z } from "zod";
import { members } from "../../http/access.ts";
import { id, idParams, listOf, nameText, pageQuery, timestamp } from "../../http/fields.ts";
import { route } from "../../http/route.ts";
import { type CredentialRecord, findCredential, listCredentials } from "../auth/credential.ts";
import { mintCredential, revokeCredential } from "../auth/minting.ts";
import { findAgent } from "./agent.ts";

const agentKey = z
  .object({
    id,
    label: z.string(),
    key_prefix: z.string(),
    created_at: timestamp,
    created_by: z.unknown(),
    last_used_at: timestamp.nullable(),
  })
  .meta({ id: "AgentKey" });

const present = ({ id: keyId, name: label, key_prefix, created_at, created_by, last_used_at }: CredentialRecord) => ({
  id: keyId,
  label,
  key_prefix,
  created_at,
  created_by,
  last_used_at,
});

const access = members("agents.manage");
const path = "/v1/agents/{id}/keys";

const create = route({
  method: "POST",
  path,
  summary: "Mint a key for an agent",
  description: "Sent as `x-api-key: ak_…`. It reads, annotates, streams and sends as its agent.",
  access,
  params: idParams,
  load: ({ deps, caller, params }) => findAgent(deps.db, caller, params.id),
  body: z.strictObject({ label: nameText }),
  responses: { 201: { description: "The key, shown this once", schema: agentKey.extend({ key: z.string() }) } },
  secretFields: ["key"],
  handler: async ({ deps, caller, resource, body }) => {
    const minted = await deps.db.transaction((trx) =>
      mintCredential(trx, caller, {
        kind: "agent_key",
        prefix: "ak_",
        orgId: caller.org.id,
        agentId: resource.id,
        name: body.label,
        scopes: ["read", "write"],
        expiresAt: null,
      }),
    );
    const record = await findCredential(deps.db, caller, "agent_key", minted.id);
    return { status: 201, headers: { "cache-control": "no-store" }, body: { ...present(record), key: minted.secret } };
  },
});

const list = route({
  method: "GET",
  path,
  summary: "List an agent's keys, newest first",
  access,
  params: idParams,
  load: ({ deps, caller, params }) => findAgent(deps.db, caller, params.id),
  query: pageQuery,
  responses: { 200: { description: "Metadata, never a key", schema: listOf(agentKey) } },
  handler: async ({ deps, caller, resource, query }) => {
    const { items, next_cursor } = await listCredentials(deps.db, caller, "agent_key", query, { agent_id: resource.id });
    return { status: 200, body: { items: items.map(present), next_cursor } };
  },
});

const remove = route({
  method: "DELETE",
  path: `${path}/{key_id}`,
  summary: "Revoke an agent's key; again is fine",
  access,
  params: idParams.extend({ key_id: z.string() }),
  load: async ({ deps, caller, params }) => {
    const agent = await findAgent(deps.db, caller, params.id);
    return findCredential(deps.db, caller, "agent_key", params.key_id, { agent_id: agent.id, revokedToo: true });
  },
  responses: {
    200: { description: "Dead from the next request on; its streams close", schema: z.object({ id, revoked: z.literal(true) }) },
  },
  handler: async ({ deps, caller, resource }) => {
    await deps.db.transaction((trx) => revokeCredential(trx, caller, resource));
    return { status: 200, body: { id: resource.id, revoked: true } };
  },
});

export const agentKeyRoutes = [create, list, remove];
