import { isId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import type { Caller } from "../../http/caller.ts";
import { notFound } from "../../http/refusal.ts";

/** An agent of an organisation: a program that talks and acts under a name of its own. */
export interface AgentRow {
  id: string;
  name: string;
  created_at: Date;
  created_by: unknown;
}

export const agentColumns = ["id", "name", "created_at", "created_by"] as const;

/** Finds a live agent of the caller's organisation, or refuses with 404. */
export async function findAgent(db: Db, caller: Caller, agentId: string): Promise<AgentRow> {
  const row: AgentRow | undefined = isId(agentId)
    ? await db("agents")
        .where({ id: agentId, org_id: caller.org.id, deleted_at: null })
        .first(...agentColumns)
    : undefined;
  if (!row) throw notFound(`the agent ${agentId}`);
  return row;
}

/** Subject of the events that are for one agent: messages in its mailbox. */
export function agentSubject(agentId: string): string {
  return `agent:${agentId}`;
}

/** Subject of the organisation's herald events, which every agent's stream carries. */
export const heraldSubject = "herald";
