import type { Db } from "#platform/postgres.ts";
import type { Caller } from "../../http/caller.ts";
import { builtInRoles } from "../../http/permissions.ts";
import { invalid, refuse } from "../../http/refusal.ts";

/** Whether a role is one every organisation has. */
export function isBuiltIn(role: string): boolean {
  return Object.hasOwn(builtInRoles, role);
}

/** The permissions of a role of an organisation, built in or custom; null when it has no such role. */
export async function permissionsOf(db: Db, orgId: string, role: string): Promise<ReadonlySet<string> | null> {
  if (isBuiltIn(role)) return builtInRoles[role] ?? null;
  const row: { permissions: string[] } | undefined = await db("roles").where({ org_id: orgId, name: role }).first("permissions");
  return row ? new Set(row.permissions) : null;
}

/**
 * The owner rules: only an owner makes, changes or removes an owner; nobody else gives, or takes from, a role that may do more than they
 * may themselves. 403 naming the rule.
 */
export function checkMayHandle(caller: Caller, role: string, permissions: ReadonlySet<string>): void {
  if (role === "owner" && caller.member?.role !== "owner") {
    throw refuse("FORBIDDEN", "only an owner may make, change or remove an owner");
  }
  const beyond = [...permissions].filter((permission) => !caller.member?.permissions.has(permission));
  if (beyond.length > 0) throw refuse("FORBIDDEN", `the role ${role} may do more than you may yourself: ${beyond.join(", ")}`);
}

/** The permissions of a role that is to be given; 422 for an unknown role, 403 past the owner rules. */
export async function checkMayGiveRole(db: Db, caller: Caller, role: string): Promise<void> {
  const permissions = await permissionsOf(db, caller.org.live.id, role);
  if (!permissions) throw invalid({ path: "role", message: `there is no role ${role} here: GET /v1/auth/roles lists them` });
  checkMayHandle(caller, role, permissions);
}
