import { isId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import type { Caller } from "../../http/caller.ts";
import { encodeCursor, idOfCursor, pageOf } from "../../http/page.ts";
import { notFound } from "../../http/refusal.ts";
import type { NewCredential } from "./minting.ts";

/** A credential as its lists show it; never a secret. */
export interface CredentialRecord {
  id: string;
  org_id: string;
  kind: NewCredential["kind"];
  subkind: string | null;
  name: string;
  scopes: string[];
  agent_id: string | null;
  project_id: string | null;
  workspace_id: string | null;
  key_prefix: string;
  created_at: Date;
  created_by: unknown;
  expires_at: Date | null;
  last_used_at: Date | null;
  revoked_at: Date | null;
}

const columns = [
  "id",
  "org_id",
  "kind",
  "subkind",
  "name",
  "scopes",
  "agent_id",
  "project_id",
  "workspace_id",
  "key_prefix",
  "created_at",
  "created_by",
  "expires_at",
  "last_used_at",
  "revoked_at",
] as const;

/** An organisation and its test one: members manage the keys of both from either. */
export function pairOf(db: Db, caller: Caller) {
  return db("orgs").where({ id: caller.org.live.id }).orWhere({ live_org_id: caller.org.live.id }).select("id");
}

/** The test organisation of the caller's, or the live one, whichever is asked for. */
export async function orgOfMode(db: Db, caller: Caller, mode: "live" | "test"): Promise<string> {
  if (mode === "live") return caller.org.live.id;
  const row: { id: string } | undefined = await db("orgs").where({ live_org_id: caller.org.live.id }).first("id");
  if (!row) throw new Error(`the organisation ${caller.org.live.id} has no test organisation`);
  return row.id;
}

/** A page of the credentials of one kind, newest first, without revoked ones. */
export async function listCredentials(
  db: Db,
  caller: Caller,
  kind: NewCredential["kind"],
  page: { limit: number; cursor?: string | undefined },
  narrow: { agent_id?: string } = {},
): Promise<{ items: CredentialRecord[]; next_cursor: string | null }> {
  const rows: CredentialRecord[] = await db("credentials")
    .whereIn("org_id", pairOf(db, caller))
    .where({ kind, revoked_at: null, ...narrow })
    .modify((query) => {
      if (page.cursor !== undefined) query.where("id", "<", idOfCursor(page.cursor));
    })
    .orderBy("id", "desc")
    .limit(page.limit + 1)
    .select(...columns);
  const { items, next_cursor } = pageOf(rows, page.limit, (row) => encodeCursor([row.id]));
  return { items, next_cursor };
}

/** Finds a credential of the caller's organisation. 404 also for a revoked one, unless asked for. */
export async function findCredential(
  db: Db,
  caller: Caller,
  kind: NewCredential["kind"],
  id: string,
  options: { revokedToo?: boolean; agent_id?: string } = {},
): Promise<CredentialRecord> {
  const row: CredentialRecord | undefined = isId(id)
    ? await db("credentials")
        .whereIn("org_id", pairOf(db, caller))
        .where({ id, kind, ...(options.agent_id === undefined ? {} : { agent_id: options.agent_id }) })
        .first(...columns)
    : undefined;
  if (!row || (row.revoked_at !== null && !options.revokedToo)) throw notFound(`the ${kind.replace("_", " ")} ${id}`);
  return row;
}
