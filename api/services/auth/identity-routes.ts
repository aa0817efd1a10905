import { z } from "zod";
import { anyOf, open } from "../../http/access.ts";
import { type Caller, scopes } from "../../http/caller.ts";
import { id, timestamp } from "../../http/fields.ts";
import { route } from "../../http/route.ts";

const everyKind = ["api_key", "service_token", "session", "jwt", "app_token", "agent_key"] as const;
const access = anyOf(everyKind, { whileEnrolling: true });

const identity = z
  .object({
    org: z.object({ id, slug: z.string(), name: z.string() }),
    mode: z.enum(["live", "test"]),
    credential: z.object({
      kind: z.enum(everyKind),
      id,
      name: z.string(),
      scopes: z.array(z.enum(scopes)),
      expires_at: timestamp.nullable(),
    }),
    member: z.object({ id, email: z.string(), name: z.string(), role: z.string(), permissions: z.array(z.string()) }).nullable(),
    agent: z.object({ id, name: z.string() }).nullable(),
    project_id: id.nullable(),
    workspace_id: id.nullable(),
  })
  .meta({ id: "Identity" });

function identityOf(caller: Caller): Record<string, unknown> {
  const { org, member } = caller;
  return {
    org: { id: org.id, slug: org.slug, name: org.name },
    mode: org.mode,
    credential: {
      kind: caller.kind,
      id: caller.credentialId,
      name: caller.credentialName,
      scopes: caller.scopes,
      expires_at: caller.expiresAt,
    },
    member: member && {
      id: member.id,
      email: member.email,
      name: member.name,
      role: member.role,
      permissions: caller.mayOnlyEnrol ? [] : [...member.permissions].sort(),
    },
    agent: caller.agent,
    project_id: caller.projectId,
    workspace_id: caller.workspaceId,
  };
}

const me = route({
  method: "GET",
  path: "/v1/me",
  summary: "Who this credential stands for",
  access,
  responses: { 200: { description: "The identity of the caller", schema: identity } },
  handler: async ({ caller }) => ({ status: 200, headers: { "cache-control": "no-store" }, body: identityOf(caller) }),
});

const whoami = route({
  method: "GET",
  path: "/v1/whoami",
  summary: "Older name of /v1/me",
  access,
  deprecatedUntil: "2027-06-30",
  responses: { 200: { description: "The identity of the caller", schema: identity } },
  handler: async ({ caller }) => ({ status: 200, headers: { "cache-control": "no-store" }, body: identityOf(caller) }),
});

const jwks = route({
  method: "GET",
  path: "/.well-known/jwks.json",
  summary: "Public keys of access tokens",
  description: "A key is here for an hour before it signs, and for an hour after the next one has taken over.",
  access: open(),
  responses: {
    200: { description: "JSON Web Key Set", schema: z.object({ keys: z.array(z.looseObject({ kid: z.string(), kty: z.string() })) }) },
  },
  handler: async ({ deps }) => ({ status: 200, headers: { "cache-control": "public, max-age=300" }, body: await deps.jwt.jwks() }),
});

export const identityRoutes = [me, whoami, jwks];
