import { isId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import type { Actor } from "../../http/caller.ts";
import { decodeCursor, encodeCursor, pageOf } from "../../http/page.ts";
import { invalid } from "../../http/refusal.ts";

/** An event of a kap's or a secret group's history as the contract shows it (decided §7.3). */
export interface HistoryEvent {
  id: string;
  kind: string;
  at: Date;
  actor: Actor;
  client: string | null;
  detail: Record<string, unknown>;
}

export const historyColumns = ["id", "kind", "at", "actor", "client", "detail"] as const;

/** A page of a kap's history in the order it happened. */
export async function historyPage(
  db: Db,
  kapId: string,
  page: { limit: number; cursor?: string | undefined },
): Promise<{ events: HistoryEvent[]; next_cursor: string | null }> {
  const query = db("kap_events")
    .where({ kap_id: kapId })
    .orderBy("id")
    .limit(page.limit + 1)
    .select(historyColumns);
  if (page.cursor !== undefined) void query.where("id", ">", idOf(page.cursor));
  const rows: HistoryEvent[] = await query;
  const { items, next_cursor } = pageOf(rows, page.limit, (row) => encodeCursor([row.id]));
  return { events: items, next_cursor };
}

/** The newest events of one kind, in the order they happened. */
export async function newestEvents(db: Db, kapId: string, kind: string, limit: number): Promise<HistoryEvent[]> {
  const rows: HistoryEvent[] = await db("kap_events")
    .where({ kap_id: kapId, kind })
    .orderBy("id", "desc")
    .limit(limit)
    .select(historyColumns);
  return rows.reverse();
}

/** The id a cursor of one part stands for. */
export function idOf(cursor: string): string {
  const [id] = decodeCursor(cursor, 1);
  if (typeof id !== "string" || !isId(id))
    throw invalid({ path: "cursor", message: "is not a cursor of this list: use the next_cursor of its last page" });
  return id;
}
