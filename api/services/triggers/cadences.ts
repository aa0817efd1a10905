import type { Db } from "#platform/postgres.ts";
import { parseCron } from "./cron.ts";

/** What fires interval triggers: the shortest cadence a CronJob has. */
export const everyMinute = "* * * * *";

/**
 * The cadences at which something may be due: each distinct cron expression in use with Sunday written 0, and every minute while any interval trigger
 * is in use (decided §7.4). Sorted; of active kaps and triggers that are not paused.
 */
export async function cadencesInUse(db: Db): Promise<string[]> {
  const rows: { cron: string | null }[] = await db("kap_triggers as t")
    .join("kaps as k", "k.id", "t.kap_id")
    .where({ "t.kind": "schedule", "t.enabled": true, "k.state": "active" })
    .whereNull("t.deleted_at")
    .distinct("t.cron");
  return [...new Set(rows.map(({ cron }) => (cron === null ? everyMinute : parseCron(cron).portable)))].sort();
}
