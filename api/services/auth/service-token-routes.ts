import { z } from "zod";
import type { SecretPrefix } from "#platform/secrets.ts";
import { members } from "../../http/access.ts";
import { id, idParams, listOf, nameText, pageQuery, scopeList, timestamp } from "../../http/fields.ts";
import { refuse } from "../../http/refusal.ts";
import { route } from "../../http/route.ts";
import { type CredentialRecord, findCredential, listCredentials } from "./credential.ts";
import { mintCredential, revokeCredential } from "./minting.ts";

const dayMs = 86_400_000;
const reserved: ReadonlySet<string> = new Set(["dispatch-minter", "ci-dispatch"]);
const prefixes: Record<string, SecretPrefix> = { ci: "st_ci_", deploy: "st_deploy_", webhook: "st_wh_" };

/** The prefix a token type selects (spec 1 §2.3). */
export function prefixOfTokenType(type: string): SecretPrefix {
  return Object.hasOwn(prefixes, type) ? (prefixes[type] as SecretPrefix) : "st_svc_";
}

const serviceToken = z
  .object({
    id,
    name: z.string(),
    token_type: z.string(),
    scopes: z.array(z.string()),
    key_prefix: z.string(),
    created_at: timestamp,
    created_by: z.unknown(),
    expires_at: timestamp,
    last_used_at: timestamp.nullable(),
  })
  .meta({ id: "ServiceToken" });

function present(row: CredentialRecord): Record<string, unknown> {
  const { id: tokenId, name, subkind: token_type, scopes, key_prefix, created_at, created_by, expires_at, last_used_at } = row;
  return { id: tokenId, name, token_type, scopes, key_prefix, created_at, created_by, expires_at, last_used_at };
}

const access = members("keys.manage");

const create = route({
  method: "POST",
  path: "/v1/auth/service-tokens",
  summary: "Mint a service token",
  description:
    "`token_type` selects the prefix: ci, deploy, webhook, or svc for anything else. The types dispatch-minter and ci-dispatch are reserved (403).",
  access,
  body: z.strictObject({
    name: nameText,
    token_type: z.string().min(1).max(50),
    scopes: scopeList,
    expires_in_days: z.int().min(1).max(365).default(90),
  }),
  responses: {
    201: { description: "The token with its secret, shown this once", schema: serviceToken.extend({ secret: z.string() }) },
    403: { description: "Not permitted, or a reserved type" },
  },
  secretFields: ["secret"],
  handler: async ({ deps, caller, body }) => {
    if (reserved.has(body.token_type)) {
      throw refuse("FORBIDDEN", `the token type ${body.token_type} is reserved for the platform's own provisioning: use another`);
    }
    const minted = await deps.db.transaction((trx) =>
      mintCredential(trx, caller, {
        kind: "service_token",
        subkind: body.token_type,
        prefix: prefixOfTokenType(body.token_type),
        orgId: caller.org.id,
        name: body.name,
        scopes: body.scopes,
        expiresAt: new Date(Date.now() + body.expires_in_days * dayMs),
      }),
    );
    const record = await findCredential(deps.db, caller, "service_token", minted.id);
    return { status: 201, headers: { "cache-control": "no-store" }, body: { ...present(record), secret: minted.secret } };
  },
});

const list = route({
  method: "GET",
  path: "/v1/auth/service-tokens",
  summary: "List service tokens, newest first",
  access,
  query: pageQuery,
  responses: { 200: { description: "Metadata, never a secret", schema: listOf(serviceToken) } },
  handler: async ({ deps, caller, query }) => {
    const { items, next_cursor } = await listCredentials(deps.db, caller, "service_token", query);
    return { status: 200, body: { items: items.map(present), next_cursor } };
  },
});

const remove = route({
  method: "DELETE",
  path: "/v1/auth/service-tokens/{id}",
  summary: "Revoke a service token; again is fine",
  access,
  params: idParams,
  load: ({ deps, caller, params }) => findCredential(deps.db, caller, "service_token", params.id, { revokedToo: true }),
  responses: { 200: { description: "Dead from the next request on", schema: z.object({ id, revoked: z.literal(true) }) } },
  handler: async ({ deps, caller, resource }) => {
    await deps.db.transaction((trx) => revokeCredential(trx, caller, resource));
    return { status: 200, body: { id: resource.id, revoked: true } };
  },
});

export const serviceTokenRoutes = [create, list, remove];
