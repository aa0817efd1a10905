import type { Db } from "#platform/postgres.ts";
import type { Actor } from "../../http/caller.ts";
import type { RunRow } from "./run-row.ts";

/** A trigger's run with what it was given, as long as that is kept. */
export interface TriggerRunRow extends RunRow {
  payload: Record<string, unknown> | null;
  payload_expires_at: Date | null;
}

/** A line of a kap's log. */
export interface LogLineRow {
  position: number;
  at: Date;
  run_id: string;
  level: string;
  text: string;
}

/** Runs of a kap, newest first, after the run `before`; with `failedSince` only those that failed at or after that moment. One more than `limit`. */
export async function listRuns(
  db: Db,
  kapId: string,
  options: { before: string | null; failedSince: Date | null; limit: number },
): Promise<RunRow[]> {
  const query = db<RunRow>("runs")
    .where("kap_id", kapId)
    .orderBy("id", "desc")
    .limit(options.limit + 1);
  if (options.before !== null) query.where("id", "<", options.before);
  if (options.failedSince !== null) query.where("status", "failed").where("finished_at", ">=", options.failedSince);
  return query;
}

/** Runs of a kap's schedules and inbox, newest first. Of a mail's payload the head only: its texts come with the single run. One more than `limit`. */
export async function listTriggerRuns(db: Db, kapId: string, before: string | null, limit: number): Promise<TriggerRunRow[]> {
  const query = db("runs")
    .leftJoin("run_payloads as p", "p.run_id", "runs.id")
    .where("runs.kap_id", kapId)
    .where("trigger_kind", "<>", "request")
    .orderBy("runs.id", "desc")
    .limit(limit + 1)
    .select("runs.*", db.raw("p.payload - array['text', 'html', 'headers'] as payload"), "p.expires_at as payload_expires_at");
  if (before !== null) query.where("runs.id", "<", before);
  return (await query) as TriggerRunRow[];
}

/** One run of a schedule or the inbox, with its payload; undefined when the kap has none of that id. */
export async function findTriggerRun(db: Db, kapId: string, id: string): Promise<TriggerRunRow | undefined> {
  return (await db("runs")
    .leftJoin("run_payloads as p", "p.run_id", "runs.id")
    .where({ "runs.kap_id": kapId, "runs.id": id })
    .where("trigger_kind", "<>", "request")
    .first("runs.*", "p.payload", "p.expires_at as payload_expires_at")) as TriggerRunRow | undefined;
}

/** Marks a failed run acknowledged; the first acknowledgement stays. False when the run has not failed. */
export async function acknowledge(db: Db, id: string, actor: Actor): Promise<boolean> {
  const changed = await db("runs")
    .where({ id, status: "failed" })
    .update({
      acknowledged_by: db.raw("coalesce(acknowledged_by, ?::jsonb)", [JSON.stringify(actor)]),
      acknowledged_at: db.raw("coalesce(acknowledged_at, now())"),
    });
  return changed === 1;
}

/** Lines of a kap's log after a position, in order. One more than `limit`. */
export async function listLogLines(db: Db, kapId: string, after: number, limit: number): Promise<LogLineRow[]> {
  return (await db("kap_log_lines")
    .where("kap_id", kapId)
    .where("position", ">", after)
    .orderBy("position")
    .limit(limit + 1)
    .select("position", "at", "run_id", "level", "text")) as LogLineRow[];
}
