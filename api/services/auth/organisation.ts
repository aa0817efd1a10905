import { randomBytes } from "node:crypto";
import { newId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import { isUniqueViolation } from "#platform/postgres.ts";
import { reservedSlugs, slugPattern } from "../../http/hosts.ts";
import { refuse } from "../../http/refusal.ts";
import type { OrgName } from "./account.ts";

/** Why a slug cannot be an organisation's, or null. */
export function slugProblem(slug: string): string | null {
  if (!slugPattern.test(slug)) return "must be 3 to 63 lowercase letters, digits and `-`, a letter first, a letter or digit last";
  return reservedSlugs.has(slug) ? "is reserved: choose another" : null;
}

/** 409: someone has that slug. */
export const slugTaken = (slug: string) => refuse("CONFLICT", `the slug ${slug} is taken: choose another org_slug`);

/** Creates an organisation with its paired test organisation (`{slug}-test`; a suffix where that is taken). Refuses a taken slug with 409. */
export async function createOrg(db: Db, slug: string, name: string): Promise<{ live: OrgName; test: OrgName }> {
  const live = { id: newId(), slug, name };
  try {
    await db("orgs").insert(live);
  } catch (error) {
    if (isUniqueViolation(error)) throw slugTaken(slug);
    throw error;
  }
  const stem = slug.slice(0, 50).replace(/-+$/, "");
  const wanted = `${stem}-test`;
  const isTaken = await db("orgs").where({ slug: wanted }).first("id");
  const test = {
    id: newId(),
    slug: isTaken ? `${wanted}-${randomBytes(3).toString("hex")}` : wanted,
    name: `${name} (test)`,
  };
  await db("orgs").insert({ ...test, mode: "test", live_org_id: live.id });
  return { live, test };
}

/** Waits for every other change of this organisation's members and roles, until the transaction ends: rules over several rows hold. */
export async function lockOrg(db: Db, orgId: string): Promise<void> {
  await db.raw("select 1 from orgs where id = ? for update", [orgId]);
}
