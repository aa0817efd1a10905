import { z } from "zod";
import type { Db } from "#platform/postgres.ts";
import { type Detail, invalid } from "../../http/refusal.ts";
import { bytesOfDataUrl, digestOfImage, imageLimits, imageTypeOf, storedImage } from "./image.ts";

export const layouts = ["centered", "left-panel", "right-panel", "full-background"] as const;
export const modes = ["light", "dark"] as const;

/** How an organisation's login page looks (decided §3). */
export interface Branding {
  layout: (typeof layouts)[number];
  logo: string | null;
  background_image: string | null;
  mode: (typeof modes)[number];
}

const imageText = z.string().max(1_000_000).nullable();

/** A change of the branding: an image is a base64 data URL, or null to take it away. */
export const brandingPatch = z.strictObject({
  layout: z.enum(layouts).optional(),
  logo: imageText.optional(),
  background_image: imageText.optional(),
  mode: z.enum(modes).optional(),
});
export const brandingShape = z.object({
  layout: z.enum(layouts),
  logo: z.string().nullable(),
  background_image: z.string().nullable(),
  mode: z.enum(modes),
});

const plain: Branding = { layout: "centered", logo: null, background_image: null, mode: "light" };

/** The branding of a live organisation. */
export async function readBranding(db: Db, orgId: string): Promise<Branding> {
  const row: Branding | undefined = await db("org_branding").where({ org_id: orgId }).first("layout", "logo", "background_image", "mode");
  return row ?? plain;
}

/** The images of a login page: fields of the branding, and last words but one of their addresses. */
export const brandingImages = ["logo", "background_image"] as const;
export type BrandingImage = (typeof brandingImages)[number];

/** The path at which a stored image is served; another image has another path, so whoever has it may keep it for good. Null when there is none. */
export function imagePath(branding: Branding, image: BrandingImage, slug: string): string | null {
  const bytes = bytesOfDataUrl(branding[image] ?? "");
  return bytes && `/v1/auth/branding/${slug}/${image}/${digestOfImage(bytes)}`;
}

/** A stored image and its type, when it is still the one of that digest. */
export function imageOf(branding: Branding, image: BrandingImage, digest: string): { bytes: Buffer; type: string } | null {
  const bytes = bytesOfDataUrl(branding[image] ?? "");
  const type = bytes && imageTypeOf(bytes);
  return bytes && type && digestOfImage(bytes) === digest ? { bytes, type } : null;
}

/** Stores a change of the branding; refuses images over their limit or of another kind than their bytes are (422). */
export async function changeBranding(db: Db, orgId: string, patch: z.infer<typeof brandingPatch>): Promise<void> {
  const next = { ...patch };
  const problems: Detail[] = [];
  for (const field of brandingImages) {
    const text = patch[field];
    if (typeof text !== "string") continue;
    const bytes = bytesOfDataUrl(text);
    const image = bytes ? storedImage(bytes, imageLimits[field]) : { problem: "must be a base64 data URL: data:image/png;base64,…" };
    if ("problem" in image) problems.push({ path: `branding.${field}`, message: image.problem });
    else next[field] = image.dataUrl;
  }
  if (problems.length > 0) throw invalid(...problems);
  const row = { ...(await readBranding(db, orgId)), ...next, org_id: orgId };
  await db("org_branding").insert(row).onConflict("org_id").merge();
}
