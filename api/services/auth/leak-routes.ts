import { z } from "zod";
import { secretPattern, secretPrefixes } from "#platform/secrets.ts";
import { open } from "../../http/access.ts";
import { route } from "../../http/route.ts";
import { revokeLeaked } from "./leak.ts";

const leaked = route({
  method: "POST",
  path: "/v1/auth/leaked",
  summary: "Report a secret found in public; it is revoked",
  description:
    "For secret scanners and for whoever finds one. Takes any secret of the platform, an access token included (its session ends). What is not one, or is dead already, answers `revoked: false`.",
  access: open(),
  body: z.strictObject({
    secret: z.string().min(1).max(4_096),
    url: z.string().max(2_000).optional().meta({ description: "Where it was found; kept in the audit" }),
  }),
  responses: {
    200: { description: "Whether a live credential was revoked", schema: z.object({ revoked: z.boolean(), kind: z.string().nullable() }) },
  },
  handler: async ({ deps, body, address, requestId }) => {
    const kind = await revokeLeaked(deps, body.secret, { address, requestId, url: body.url ?? null });
    return { status: 200, headers: { "cache-control": "no-store" }, body: { revoked: kind !== null, kind } };
  },
});

const patterns = route({
  method: "GET",
  path: "/v1/auth/secret-patterns",
  summary: "Patterns of every kind of secret, for secret scanners",
  access: open(),
  responses: {
    200: {
      description: "A regular expression per prefix; the last six characters are a checksum (CRC-32 of all before them, in base62)",
      schema: z.object({ items: z.array(z.object({ prefix: z.string(), pattern: z.string() })), next_cursor: z.null() }),
    },
  },
  handler: async () => ({
    status: 200,
    headers: { "cache-control": "public, max-age=3600" },
    body: { items: secretPrefixes.map((prefix) => ({ prefix, pattern: secretPattern(prefix) })), next_cursor: null },
  }),
});

export const leakRoutes = [leaked, patterns];
