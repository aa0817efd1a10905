import { z } from "zod";
import { isId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import { members } from "../../http/access.ts";
import type { Caller } from "../../http/caller.ts";
import { id, idParams, listOf, nameText, pageQuery, scopeList, timestamp } from "../../http/fields.ts";
import { type Detail, invalid, notFound, refuse } from "../../http/refusal.ts";
import { route } from "../../http/route.ts";
import { recordAudit } from "./audit.ts";
import { type CredentialRecord, findCredential, listCredentials, orgOfMode } from "./credential.ts";
import { checkMayGive, mintCredential, revokeCredential } from "./minting.ts";
import { keyPrefixOf, rotateKey } from "./rotation.ts";

const kinds = ["live", "test", "org"] as const;

const apiKey = z
  .object({
    id,
    name: z.string(),
    kind: z.enum(kinds),
    scopes: z.array(z.string()),
    expires_at: timestamp.nullable(),
    project_id: id.nullable(),
    workspace_id: id.nullable(),
    key_prefix: z.string(),
    created_at: timestamp,
    created_by: z.unknown(),
    last_used_at: timestamp.nullable(),
  })
  .meta({ id: "ApiKey" });
const secret = z.string().meta({ description: "The full key; shown this once" });

function present(row: CredentialRecord): Record<string, unknown> {
  const {
    id: keyId,
    name,
    subkind: kind,
    scopes,
    expires_at,
    project_id,
    workspace_id,
    key_prefix,
    created_at,
    created_by,
    last_used_at,
  } = row;
  return { id: keyId, name, kind, scopes, expires_at, project_id, workspace_id, key_prefix, created_at, created_by, last_used_at };
}

const access = members("keys.manage");
const load = ({ deps, caller, params }: { deps: { db: Db }; caller: Caller; params: { id: string } }) =>
  findCredential(deps.db, caller, "api_key", params.id);

const createBody = z
  .strictObject({
    name: nameText,
    kind: z.enum(kinds).default("live"),
    scopes: scopeList,
    expires_at: z.iso.datetime({ offset: true }).optional().meta({ description: "Absolute; without it the key never expires" }),
    project_id: z.string().optional().meta({ description: "Pins the key to the project's data schema" }),
    workspace_id: z.string().optional().meta({ description: "Binds the key to the workspace" }),
  })
  .superRefine((body, context) => {
    if (body.expires_at !== undefined && Date.parse(body.expires_at) <= Date.now()) {
      context.addIssue({ code: "custom", path: ["expires_at"], message: "must be in the future" });
    }
    for (const binding of ["project_id", "workspace_id"] as const) {
      if (body.kind === "org" && body[binding] !== undefined) {
        context.addIssue({
          code: "custom",
          path: [binding],
          message: "an org key is for the whole organisation: leave it out, or make a live key",
        });
      }
    }
  });

/** A binding must name something of the organisation the key acts in; the row stays locked, so it cannot be deleted meanwhile. */
async function bindingProblems(
  db: Db,
  orgId: string,
  bindings: { project_id?: string | undefined; workspace_id?: string | undefined },
): Promise<Detail[]> {
  const problems: Detail[] = [];
  for (const [path, table] of [
    ["project_id", "projects"],
    ["workspace_id", "workspaces"],
  ] as const) {
    const bound = bindings[path];
    if (bound === undefined) continue;
    const found = isId(bound) && (await db(table).where({ id: bound, org_id: orgId }).forShare().first("id"));
    if (!found) problems.push({ path, message: `names no ${table.slice(0, -1)} of the organisation the key is for` });
  }
  return problems;
}

const create = route({
  method: "POST",
  path: "/v1/auth/api-keys",
  summary: "Mint an API key",
  description:
    "The secret is in this answer and never again. `kind: test` mints for the paired test organisation, whose projects and workspaces are its own. A key cannot get a scope that covers a permission its minter lacks (403).",
  access,
  body: createBody,
  responses: { 201: { description: "The key with its secret", schema: apiKey.extend({ secret }) } },
  secretFields: ["secret"],
  handler: async ({ deps, caller, body }) => {
    const minted = await deps.db.transaction(async (trx) => {
      const orgId = await orgOfMode(trx, caller, body.kind === "test" ? "test" : "live");
      const problems = await bindingProblems(trx, orgId, body);
      if (problems.length > 0) throw invalid(...problems);
      return mintCredential(trx, caller, {
        kind: "api_key",
        subkind: body.kind,
        prefix: keyPrefixOf(body.kind),
        orgId,
        name: body.name,
        scopes: body.scopes,
        expiresAt: body.expires_at === undefined ? null : new Date(body.expires_at),
        projectId: body.project_id ?? null,
        workspaceId: body.workspace_id ?? null,
      });
    });
    const record = await findCredential(deps.db, caller, "api_key", minted.id);
    return { status: 201, headers: { "cache-control": "no-store" }, body: { ...present(record), secret: minted.secret } };
  },
});

const list = route({
  method: "GET",
  path: "/v1/auth/api-keys",
  summary: "List API keys, newest first",
  access,
  query: pageQuery,
  responses: { 200: { description: "Prefixes and metadata, never a secret; revoked keys are not listed", schema: listOf(apiKey) } },
  handler: async ({ deps, caller, query }) => {
    const { items, next_cursor } = await listCredentials(deps.db, caller, "api_key", query);
    return { status: 200, body: { items: items.map(present), next_cursor } };
  },
});

const get = route({
  method: "GET",
  path: "/v1/auth/api-keys/{id}",
  summary: "Get an API key",
  access,
  params: idParams,
  load,
  responses: { 200: { description: "The key without its secret", schema: apiKey } },
  handler: async ({ resource }) => ({ status: 200, body: present(resource) }),
});

const remove = route({
  method: "DELETE",
  path: "/v1/auth/api-keys/{id}",
  summary: "Revoke an API key with both its secrets",
  access,
  params: idParams,
  load,
  responses: { 200: { description: "Dead from the next request on", schema: z.object({ id, revoked: z.literal(true) }) } },
  handler: async ({ deps, caller, resource }) => {
    const revoked = await deps.db.transaction((trx) => revokeCredential(trx, caller, resource));
    if (!revoked) throw notFound(`the api key ${resource.id}`);
    return { status: 200, body: { id: resource.id, revoked: true } };
  },
});

const rotate = route({
  method: "POST",
  path: "/v1/auth/api-keys/{id}/rotate",
  summary: "Give an API key a new secret",
  description:
    "Id, name, kind, scopes, bindings and `expires_at` stay. With `overlap_hours` the present secret keeps validating for that long, never longer than the key; a second rotation inside an overlap ends the older previous secret. Without, it ends at once.",
  access,
  params: idParams,
  load,
  bodyOptional: true,
  body: z.strictObject({ overlap_hours: z.int().min(0).max(72).default(0) }),
  responses: {
    200: {
      description: "The new secret",
      schema: z.object({ id, key_prefix: z.string(), secret, previous_valid_until: timestamp.nullable() }),
    },
    409: { description: "The key has expired" },
  },
  secretFields: ["secret"],
  handler: async ({ deps, caller, resource, body }) => {
    checkMayGive(caller, resource.scopes); // its new secret is given to whoever rotates it
    const rotated = await deps.db.transaction(async (trx) => {
      const rotation = await rotateKey(trx, { id: resource.id, subkind: resource.subkind ?? "" }, body.overlap_hours);
      if (!rotation) return null;
      await recordAudit(trx, caller, {
        action: "api-key.rotated",
        target: { kind: "api_key", id: resource.id, name: resource.name },
        detail: { key_prefix: rotation.key_prefix, overlap_hours: body.overlap_hours },
      });
      return rotation;
    });
    if (!rotated) {
      await findCredential(deps.db, caller, "api_key", resource.id); // revoked meanwhile: 404
      throw refuse("CONFLICT", "this key has expired: a new secret would be dead too; mint a new key");
    }
    return { status: 200, headers: { "cache-control": "no-store" }, body: { id: resource.id, ...rotated } };
  },
});

export const apiKeyRoutes = [create, list, get, remove, rotate];
