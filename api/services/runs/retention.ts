import { setTimeout as delay } from "node:timers/promises";
import { addJob, type JobHandlers, recurringJob } from "#platform/jobs.ts";
import type { Db } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";
import { crashLostRuns, requeueStranded } from "./crash.ts";
import { dropMailBytes, mailBucket } from "./mail-bytes.ts";
import { measureStorage } from "./usage.ts";

const sweepJob = "runs-sweep";
const retentionJob = "runs-retention";
const sweepSeconds = 30;
const retentionSeconds = 3_600;
const batch = 5_000;
const dayMs = 86_400_000;
/** Usage is shown for 30 days; what is older than twice that goes. */
const usageDays = 60;

/** Makes sure that the sweeps of runs come round: call it at every start. One job of each waits at a time, whoever calls. */
export async function ensureSweeps(db: Db): Promise<void> {
  await addJob(db, sweepJob, {}, { key: sweepJob });
  await addJob(db, retentionJob, {}, { key: retentionJob });
}

/** The sweeps. */
export function sweepJobs(deps: Deps): JobHandlers {
  return {
    [sweepJob]: recurringJob(deps, sweepJob, sweepSeconds, async () => {
      const lost = await crashLostRuns(deps.postgres, deps.config);
      if (lost > 0) deps.log.warn({ runs: lost }, "runs whose runtime went away were marked crashed");
      await requeueStranded(deps.db);
    }),
    [retentionJob]: recurringJob(deps, retentionJob, retentionSeconds, async () => {
      await expirePayloads(deps);
      await dropOldRuns(deps);
      await dropOldMails(deps);
      await dropOrphanedMails(deps);
      await dropUnfinishedUploads(deps);
      await measureStorage(deps);
    }),
  };
}

/** Removes payloads past their time, the raw mail first: so a payload that is shown as expired is gone for good. Answers how many. */
export async function expirePayloads(deps: Pick<Deps, "db" | "objects">): Promise<number> {
  for (let total = 0; ; ) {
    const rows: { run_id: string; object_key: string | null }[] = await deps
      .db("run_payloads")
      .select("run_id", "object_key")
      .where("expires_at", "<=", deps.db.fn.now())
      .whereRaw("(payload is not null or object_key is not null)")
      .limit(500);
    if (rows.length === 0) return total;
    for (const key of new Set(rows.map((row) => row.object_key))) if (key !== null) await dropMailBytes(deps, key);
    await deps
      .db("run_payloads")
      .whereIn(
        "run_id",
        rows.map((row) => row.run_id),
      )
      .update({ payload: null, object_key: null });
    total += rows.length;
  }
}

/** Removes runs past their time, with their lines and payloads, a batch at a time. Ids are ordered by time, so no index on a time is needed. */
export async function dropOldRuns(deps: Pick<Deps, "db" | "config">): Promise<void> {
  const floor = idFloor(new Date(Date.now() - deps.config.runDays * dayMs));
  const drop = async (table: string, key: string, extra: string): Promise<void> => {
    for (;;) {
      const { rowCount } = await deps.db.raw<{ rowCount: number }>(
        `delete from ${table} where ctid = any(array(select ctid from ${table} where ${key} < ? ${extra} limit ?))`,
        [floor, batch],
      );
      if (rowCount < batch) return;
      await delay(20); // others come first
    }
  };
  await drop("kap_log_lines", "run_id", "");
  await drop("runs", "id", "and status in ('succeeded', 'failed')");
  await deps.db("kap_usage").whereRaw("day < current_date - ?::int", [usageDays]).delete();
}

/** Forgets which mails came: no earlier than duplicates are looked for (24 hours), no later than their payloads. */
async function dropOldMails(deps: Pick<Deps, "db" | "config">): Promise<void> {
  await deps
    .db("mail_messages")
    .whereRaw("received_at < now() - make_interval(days => ?)", [Math.max(2, deps.config.payloadDays)])
    .delete();
}

/** Removes raw mails that no message names: their store was killed before it could say so. A day is left to those that are still at it. */
async function dropOrphanedMails(deps: Deps): Promise<void> {
  await deps.db.raw(
    `delete from mail_bytes b where not exists (select from mail_messages m where m.object_key = b.object_key)
       and not exists (select from run_payloads p where p.object_key = b.object_key)`,
  );
  const before = new Date(Date.now() - dayMs);
  await deps.objects.sweep(mailBucket, before);
  for (let after: string | undefined; ; ) {
    const page = await deps.objects.list(mailBucket, after === undefined ? {} : { after });
    const old = page.objects.filter((object) => object.lastModified < before).map((object) => object.key);
    const { rows } = await deps.db.raw<{ rows: { key: string }[] }>(
      `select key from unnest(?::text[]) as key
       where not exists (select 1 from mail_messages m where m.object_key = key) and not exists (select 1 from run_payloads p where p.object_key = key)`,
      [old],
    );
    for (const { key } of rows) await deps.objects.delete(mailBucket, key);
    if (page.next === null) return;
    after = page.next;
  }
}

/** Removes what is left of uploads into the kaps' file stores whose process was killed. A day is left to those that are still at it. */
export async function dropUnfinishedUploads(deps: Pick<Deps, "db" | "objects">, before = new Date(Date.now() - dayMs)): Promise<void> {
  const buckets: string[] = await deps.db("kaps").whereNull("purged_at").pluck("bucket");
  for (const bucket of buckets) await deps.objects.sweep(bucket, before);
}

/** The smallest id of a moment. */
function idFloor(at: Date): string {
  const time = Math.max(0, at.getTime()).toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7000-8000-000000000000`;
}

/** Removes everything recorded of a kap's runs, raw mails included: for its final purge. */
export async function purgeRuns(deps: Pick<Deps, "db" | "objects">, kapId: string): Promise<void> {
  const keys: string[] = await deps.db("mail_messages").where({ kap_id: kapId }).pluck("object_key");
  const payloads: string[] = await deps
    .db("run_payloads")
    .join("runs", "runs.id", "run_payloads.run_id")
    .where("runs.kap_id", kapId)
    .whereNotNull("object_key")
    .pluck("object_key");
  await deps.db.transaction(async (trx) => {
    for (const table of ["kap_log_lines", "kap_log_heads", "mail_messages", "runs", "kap_usage"])
      await trx(table).where({ kap_id: kapId }).delete();
  });
  for (const key of new Set([...keys, ...payloads])) {
    const others =
      (await deps.db("mail_messages").where({ object_key: key }).first("run_id")) ??
      (await deps.db("run_payloads").where({ object_key: key }).first("run_id"));
    if (!others) await dropMailBytes(deps, key);
  }
}
