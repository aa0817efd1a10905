import { z } from "zod";
import { members } from "../../http/access.ts";
import { id, idParams, listOf, nameText, pageQuery, scopeList, timestamp } from "../../http/fields.ts";
import { route } from "../../http/route.ts";
import { type CredentialRecord, findCredential, listCredentials } from "../auth/credential.ts";
import { mintCredential, revokeCredential } from "../auth/minting.ts";

const appToken = z
  .object({
    id,
    label: z.string(),
    scopes: z.array(z.string()),
    key_prefix: z.string(),
    created_at: timestamp,
    created_by: z.unknown(),
    last_used_at: timestamp.nullable(),
  })
  .meta({ id: "AppToken" });

const present = ({ id: tokenId, name: label, scopes, key_prefix, created_at, created_by, last_used_at }: CredentialRecord) => ({
  id: tokenId,
  label,
  scopes,
  key_prefix,
  created_at,
  created_by,
  last_used_at,
});

const access = members("keys.manage");
const path = "/v1/orgs/{org_id}/app-tokens";

const create = route({
  method: "POST",
  path,
  summary: "Mint an app token for an integration",
  description:
    "Sent as `Authorization: Bearer at_…`. Its scopes are read and write unless told; it cannot get more than its minter may do (403).",
  access,
  body: z.strictObject({ label: nameText, scopes: scopeList.default(["read", "write"]) }),
  responses: { 201: { description: "The token, shown this once", schema: appToken.extend({ token: z.string() }) } },
  secretFields: ["token"],
  handler: async ({ deps, caller, body }) => {
    const minted = await deps.db.transaction((trx) =>
      mintCredential(trx, caller, {
        kind: "app_token",
        prefix: "at_",
        orgId: caller.org.id,
        name: body.label,
        scopes: body.scopes,
        expiresAt: null,
      }),
    );
    const record = await findCredential(deps.db, caller, "app_token", minted.id);
    return { status: 201, headers: { "cache-control": "no-store" }, body: { ...present(record), token: minted.secret } };
  },
});

const list = route({
  method: "GET",
  path,
  summary: "List app tokens, newest first",
  access,
  query: pageQuery,
  responses: { 200: { description: "Metadata, never a token", schema: listOf(appToken) } },
  handler: async ({ deps, caller, query }) => {
    const { items, next_cursor } = await listCredentials(deps.db, caller, "app_token", query);
    return { status: 200, body: { items: items.map(present), next_cursor } };
  },
});

const remove = route({
  method: "DELETE",
  path: `${path}/{id}`,
  summary: "Revoke an app token; again is fine",
  access,
  params: idParams.extend({ org_id: z.string() }),
  load: ({ deps, caller, params }) => findCredential(deps.db, caller, "app_token", params.id, { revokedToo: true }),
  responses: { 200: { description: "Dead from the next request on", schema: z.object({ id, revoked: z.literal(true) }) } },
  handler: async ({ deps, caller, resource }) => {
    await deps.db.transaction((trx) => revokeCredential(trx, caller, resource));
    return { status: 200, body: { id: resource.id, revoked: true } };
  },
});

export const appTokenRoutes = [create, list, remove];
