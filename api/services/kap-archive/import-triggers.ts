import { newId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";
import type { Actor } from "../../http/caller.ts";
import { Refusal } from "../../http/refusal.ts";
import { databaseNow } from "../triggers/changes.ts";
import { checkCron, checkInterval, nextTime } from "../triggers/schedule.ts";
import { maxSchedules } from "../triggers/trigger.ts";
import { badArchive } from "./archive-refusal.ts";
import type { ImportedManifest, ManifestTrigger } from "./manifest.ts";

/** Refuses triggers that a kap here could not have: 422 naming the trigger. Answers them as they are to be written. */
export function checkTriggers(deps: Deps, { triggers, versions }: ImportedManifest): ManifestTrigger[] {
  const paths = new Set(versions.at(-1)?.files.map(({ path }) => path));
  const count = (kind: ManifestTrigger["kind"]): number => triggers.filter((trigger) => trigger.kind === kind).length;
  if (count("request") !== 1) throw badArchive("manifest.json.triggers", "must hold the one request trigger of a kap");
  if (count("inbox") > 1) throw badArchive("manifest.json.triggers", "hold more than one inbox trigger");
  if (count("schedule") > maxSchedules) throw badArchive("manifest.json.triggers", `hold more than ${maxSchedules} schedules`);
  return triggers.map((trigger, index) => {
    const path = `manifest.json.triggers.${index}`;
    if (trigger.kind !== "request" && (!paths.has(trigger.file_path) || !/\.[cm]?[jt]sx?$/.test(trigger.file_path)))
      throw badArchive(`${path}.file_path`, "is no program of the newest version");
    return trigger.kind === "schedule"
      ? { ...trigger, ...cadenceOf(deps, trigger, path) }
      : { ...trigger, cron: null, interval_seconds: null };
  });
}

function cadenceOf(
  deps: Deps,
  { cron, interval_seconds }: ManifestTrigger,
  path: string,
): Pick<ManifestTrigger, "cron" | "interval_seconds"> {
  if ((cron === null) === (interval_seconds === null)) throw badArchive(path, "needs either cron or interval_seconds, not both");
  try {
    if (interval_seconds !== null) checkInterval(interval_seconds, deps.config.minCadenceSeconds);
    return { cron: cron === null ? null : checkCron(cron, deps.config.minCadenceSeconds), interval_seconds };
  } catch (error) {
    throw error instanceof Refusal ? new Refusal(error.status, error.code, `${path}: ${error.message}`, error.options) : error;
  }
}

/** Writes the triggers of an imported kap; schedules count from now. */
export async function insertTriggers(
  trx: Db,
  kapId: string,
  mainFile: string,
  triggers: readonly ManifestTrigger[],
  actor: Actor,
): Promise<void> {
  const now = await databaseNow(trx);
  for (const { kind, file_path, enabled, cron, interval_seconds, auto_replies } of triggers) {
    const isDue = kind === "schedule" && enabled;
    await trx("kap_triggers").insert({
      id: newId(),
      kap_id: kapId,
      kind,
      file_path: kind === "request" ? mainFile : file_path,
      enabled,
      cron,
      interval_seconds,
      auto_replies: kind === "inbox" && auto_replies,
      created_at: now,
      created_by: JSON.stringify(actor),
      next_run_at: isDue ? nextTime({ cron, interval_seconds, created_at: now }, now) : null,
      ...(enabled ? {} : { paused_by: JSON.stringify(actor), paused_at: now }),
    });
  }
}
