import { Readable } from "node:stream";
import { z } from "zod";
import type { Db } from "#platform/postgres.ts";
import { members, open } from "../../http/access.ts";
import { invalid, notFound } from "../../http/refusal.ts";
import { route } from "../../http/route.ts";
import { recordAudit } from "./audit.ts";
import { brandingImages, brandingPatch, brandingShape, changeBranding, imageOf, imagePath, readBranding } from "./branding.ts";
import { lockOrg } from "./organisation.ts";
import { orgSlugOf } from "./session.ts";
import { mfaPolicy, passwordPolicy, policyOf, sessionPolicy } from "./sign-in-policy.ts";

const settings = z
  .object({ branding: brandingShape, session: sessionPolicy, mfa: mfaPolicy, password: passwordPolicy })
  .meta({ id: "SignInSettings" });

/** The fields of a policy for a change: each may be left out, and none gets a default. */
function partial(policy: z.ZodObject): z.ZodObject {
  const fields = Object.entries(policy.shape).map(([name, field]) => [
    name,
    field instanceof z.ZodDefault ? (field.unwrap() as z.ZodType).optional() : field,
  ]);
  return z.strictObject(Object.fromEntries(fields));
}

async function readSettings(db: Db, orgId: string): Promise<Record<string, unknown>> {
  const org: { settings: unknown } | undefined = await db("orgs").where({ id: orgId }).first("settings");
  return { branding: await readBranding(db, orgId), ...policyOf(org?.settings) };
}

const get = route({
  method: "GET",
  path: "/v1/auth/settings",
  summary: "Get the organisation's sign-in settings",
  access: members("org.settings"),
  responses: { 200: { description: "Branding, session, second-factor and password policy", schema: settings } },
  handler: async ({ deps, caller }) => ({ status: 200, body: await readSettings(deps.db, caller.org.live.id) }),
});

const patch = route({
  method: "PATCH",
  path: "/v1/auth/settings",
  summary: "Change the organisation's sign-in settings",
  description:
    "Only what is sent changes. Session lifetime counts for new sessions, everything else at once. Images are base64 data URLs of PNG, JPEG, GIF or WebP, by content: the logo at most 128 KiB, the background 512 KiB. A test organisation shares the settings of its live one.",
  access: members("org.settings"),
  body: z.strictObject({
    branding: brandingPatch.optional(),
    session: partial(sessionPolicy).optional(),
    mfa: partial(mfaPolicy).optional(),
    password: partial(passwordPolicy).optional(),
  }),
  responses: { 200: { description: "The settings as they are now", schema: settings } },
  handler: async ({ deps, caller, body }) => {
    const orgId = caller.org.live.id;
    const { branding, ...policies } = body;
    await deps.db.transaction(async (trx) => {
      await lockOrg(trx, orgId);
      const org: { settings: Record<string, object> } | undefined = await trx("orgs").where({ id: orgId }).first("settings");
      const merged: Record<string, object> = { ...org?.settings };
      for (const [part, change] of Object.entries(policies)) merged[part] = { ...merged[part], ...change };
      await trx("orgs")
        .where({ id: orgId })
        .update({ settings: JSON.stringify(merged) });
      if (branding) await changeBranding(trx, orgId, branding);
      await recordAudit(trx, caller, {
        action: "settings.changed",
        target: { kind: "org", id: orgId, name: caller.org.live.slug },
        detail: { ...policies, ...(branding ? { branding: Object.keys(branding) } : {}) },
      });
    });
    return { status: 200, body: await readSettings(deps.db, orgId) };
  },
});

interface BrandedOrg {
  id: string;
  live_org_id: string | null;
  slug: string;
  name: string;
}

async function findBrandedOrg(db: Db, slug: string): Promise<BrandedOrg> {
  const org: BrandedOrg | undefined = await db("orgs").where({ slug }).first("id", "live_org_id", "slug", "name");
  if (!org) throw notFound(`the organisation ${slug}`);
  return org;
}

const branding = route({
  method: "GET",
  path: "/v1/auth/branding",
  summary: "Get what a login page shows",
  description:
    "Public. `org` is a slug; on an organisation's own host it need not be sent. `logo_url` and `background_image_url` are the same images at addresses of their own, good for an `<img>` and kept by browsers for good.",
  access: open(),
  query: z.object({ org: z.string().max(63).optional() }),
  responses: {
    200: {
      description: "Name and branding",
      schema: z.object({
        org: z.object({ slug: z.string(), name: z.string() }),
        branding: brandingShape.extend({ logo_url: z.string().nullable(), background_image_url: z.string().nullable() }),
      }),
    },
  },
  handler: async ({ deps, query, host }) => {
    const slug = query.org ?? orgSlugOf(host);
    if (slug === null) throw invalid({ path: "org", message: "is required here: the organisation's slug" });
    const org = await findBrandedOrg(deps.db, slug);
    const shown = await readBranding(deps.db, org.live_org_id ?? org.id);
    const urls = brandingImages.map((image) => {
      const path = imagePath(shown, image, org.slug);
      return [`${image}_url`, path && deps.addresses.org(org.slug) + path];
    });
    return {
      status: 200,
      headers: { "cache-control": "public, max-age=60" },
      body: { org: { slug: org.slug, name: org.name }, branding: { ...shown, ...Object.fromEntries(urls) } },
    };
  },
});

const image = route({
  method: "GET",
  path: "/v1/auth/branding/{slug}/{image}/{digest}",
  summary: "Get an image of a login page",
  description:
    "Public. `digest` is the SHA-256 of the image's bytes in hex: an address never shows another image, and is 404 once the image has been replaced.",
  access: open(),
  params: z.object({ slug: z.string(), image: z.enum(brandingImages), digest: z.string() }),
  responses: { 200: { description: "The image, of the type its bytes are", contentType: "image/*" } },
  handler: async ({ deps, params }) => {
    const org = await findBrandedOrg(deps.db, params.slug);
    const found = imageOf(await readBranding(deps.db, org.live_org_id ?? org.id), params.image, params.digest);
    if (!found) throw notFound(`the image ${params.digest}`);
    return {
      status: 200,
      headers: {
        "content-type": found.type,
        "content-length": String(found.bytes.length),
        "cache-control": "public, max-age=31536000, immutable",
        "content-security-policy": "default-src 'none'; sandbox",
      },
      stream: Readable.from([found.bytes]),
    };
  },
});

export const settingsRoutes = [get, patch, branding, image];
