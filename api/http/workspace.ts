import type { IncomingMessage } from "node:http";
import { isId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import type { Caller } from "./caller.ts";
import { notFound } from "./refusal.ts";

/**
 * The caller within the workspace that X-Workspace-Id names. An id of another organisation, of none, or other than the one the credential is
 * bound to is 404 (decided §4); without the header the caller stays as bound.
 */
export async function inWorkspace(db: Db, caller: Caller, request: IncomingMessage): Promise<Caller> {
  const header = request.headers["x-workspace-id"];
  if (header === undefined || header === "") return caller;
  const workspaceId = String(header).toLowerCase();
  const missing = notFound(`the workspace ${String(header).slice(0, 100)} of the header X-Workspace-Id`);
  if (!isId(workspaceId) || (caller.workspaceId !== null && caller.workspaceId !== workspaceId)) throw missing;
  const row: unknown = await db("workspaces").where({ id: workspaceId, org_id: caller.org.id }).first("id");
  if (!row) throw missing;
  return { ...caller, workspaceId };
}
