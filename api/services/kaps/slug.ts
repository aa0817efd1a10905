import { randomBytes } from "node:crypto";
import { isId } from "#platform/ids.ts";
import { reservedSlugs, slugPattern } from "../../http/hosts.ts";

const maxLength = 63; // a DNS label
const suffixBytes = 4;

/**
 * The slug a kap's name asks for (decided §1): lowercase letters, digits and `-`, a letter first, a letter or digit last, 3 to 63
 * characters. A name without such letters becomes `kap`. Whether it is free is for the caller to see.
 */
export function slugOf(name: string): string {
  const words = name
    .normalize("NFKD")
    .replace(/\p{M}/gu, "")
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "");
  const led = /^[a-z]/.test(words) ? words : words === "" ? "kap" : `kap-${words}`;
  const cut = led.slice(0, maxLength).replace(/-+$/, "");
  return slugPattern.test(cut) ? cut : `${cut}-kap`;
}

/** The slug again with a short random suffix, for when it is taken or reserved. */
export function suffixedSlug(slug: string): string {
  const suffix = randomBytes(suffixBytes).readUInt32BE().toString(36).padStart(6, "0").slice(-6);
  return `${slug.slice(0, maxLength - 7).replace(/-+$/, "")}-${suffix}`;
}

/** Whether a kap may have this slug. One in the form of an id would never be looked for as a slug. */
export function isAllowedSlug(slug: string): boolean {
  return slugPattern.test(slug) && !reservedSlugs.has(slug) && !isId(slug);
}
