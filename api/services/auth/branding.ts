import { z } from "zod";
import type { Db } from "#platform/postgres.ts";
import { type Detail, invalid } from "../../http/refusal.ts";
import { bytesOfDataUrl, imageLimits, storedImage } from "./image.ts";

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

/** Stores a change of the branding; refuses images over their limit or of another kind than their bytes are (422). */
export async function changeBranding(db: Db, orgId: string, patch: z.infer<typeof brandingPatch>): Promise<void> {
  const next = { ...patch };
  const problems: Detail[] = [];
  for (const field of ["logo", "background_image"] as const) {
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
