import { isId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import type { Outcome } from "#platform/run-outcome.ts";
import type { TriggerKind } from "#platform/trigger-kind.ts";
import type { ApiConfig } from "../../config.ts";
import type { Actor } from "../../http/caller.ts";
import { notFound, Refusal, refuse } from "../../http/refusal.ts";
import type { KapRow } from "../kaps/kap.ts";
import { nextTimes } from "./schedule.ts";

/** A trigger as PostgreSQL keeps it. */
export interface TriggerRow {
  id: string;
  kap_id: string;
  kind: TriggerKind;
  file_path: string;
  enabled: boolean;
  cron: string | null;
  interval_seconds: number | null;
  auto_replies: boolean;
  next_run_at: Date | null;
  last_run_at: Date | null;
  last_outcome: Outcome | null;
  created_at: Date;
  created_by: Actor;
  paused_by: Actor | null;
  paused_at: Date | null;
  deleted_at: Date | null;
}

/** Schedules a kap may have (decided §7.3). */
export const maxSchedules = 20;
/** One mail, at most (decided §7.2). */
export const mailBytes = 30 * 1024 * 1024;

const shownTimes = 5;

/** What a deployment allows of triggers, as the list of a kap's triggers tells it. */
export function triggerLimits(config: ApiConfig): Record<string, number> {
  return {
    schedules: maxSchedules,
    inboxes: 1,
    min_cadence_seconds: config.minCadenceSeconds,
    mails_per_hour: config.mailsPerHour,
    mail_bytes: mailBytes,
    payload_days: config.payloadDays,
    background_wall_ms: config.backgroundWallMs,
    background_cpu_ms: config.backgroundCpuMs,
  };
}

/** A trigger that is still attached to the kap; 404 otherwise. */
export async function findTrigger(db: Db, kap: KapRow, id: string): Promise<TriggerRow> {
  const row: TriggerRow | undefined = isId(id)
    ? await db("kap_triggers").where({ id, kap_id: kap.id }).whereNull("deleted_at").first()
    : undefined;
  if (!row) throw notFound(`the trigger ${id}`);
  return row;
}

/** Triggers of a kap, the request trigger first, then by age. */
export async function listTriggers(db: Db, kapId: string): Promise<TriggerRow[]> {
  return db("kap_triggers").where("kap_id", kapId).whereNull("deleted_at").orderByRaw("kind <> 'request', created_at, id");
}

/** Refuses a file that the kap's current version has not, or that is no program: 422. Read under the kap's row lock, so that no save drops it meanwhile. */
export async function checkFile(db: Db, kap: Pick<KapRow, "current_version_id">, path: string): Promise<void> {
  const version: { files: { path: string }[] } | undefined = await db("kap_versions").where({ id: kap.current_version_id }).first("files");
  const message = !version?.files.some((file) => file.path === path)
    ? `no file ${path} in the kap's current version: save it first`
    : !/\.[cm]?[jt]sx?$/.test(path)
      ? `${path} is not a program: name a TypeScript or JavaScript file`
      : null;
  if (message !== null) throw refuse("VALIDATION_FAILED", `file_path: ${message}`, { details: [{ path: "file_path", message }] });
}

/** 409 for what only some kinds of triggers can do. */
export function wrongKind(message: string): Refusal {
  return new Refusal(409, "CONFLICT", message);
}

/** The trigger as the contract shows it (decided §7.3), a schedule with its next five times while it is not paused. */
export function presentTrigger(trigger: TriggerRow, now: Date): Record<string, unknown> {
  const isSchedule = trigger.kind === "schedule";
  return {
    id: trigger.id,
    kap_id: trigger.kap_id,
    kind: trigger.kind,
    file_path: trigger.file_path,
    enabled: trigger.enabled,
    ...(isSchedule
      ? {
          cron: trigger.cron,
          interval_seconds: trigger.interval_seconds,
          next_runs: trigger.enabled ? nextTimes(trigger, now, shownTimes) : [],
        }
      : {}),
    ...(trigger.kind === "inbox" ? { auto_replies: trigger.auto_replies } : {}),
    next_run_at: trigger.next_run_at,
    last_run_at: trigger.last_run_at,
    last_outcome: trigger.last_outcome,
    created_at: trigger.created_at,
    created_by: trigger.created_by,
    paused_by: trigger.paused_by,
    paused_at: trigger.paused_at,
  };
}
