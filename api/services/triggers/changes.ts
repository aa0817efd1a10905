import { newId } from "#platform/ids.ts";
import type { Knex } from "#platform/postgres.ts";
import { isUniqueViolation } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";
import { actorOf, type Caller } from "../../http/caller.ts";
import { Refusal } from "../../http/refusal.ts";
import { bumpRevision, type KapRow, kapNotFound, recordKapEvent, refuseDeleted } from "../kaps/kap.ts";
import { checkCron, checkInterval, nextTime } from "./schedule.ts";
import { checkFile, findTrigger, maxSchedules, type TriggerRow, wrongKind } from "./trigger.ts";

/** Who changes which kap's triggers. */
interface Change {
  caller: Caller;
  client: string | null;
  kap: KapRow;
}

/** What is asked for of a new trigger. */
export type NewTrigger =
  | { kind: "schedule"; file_path: string; cron?: string | undefined; interval_seconds?: number | undefined }
  | { kind: "inbox"; file_path: string; auto_replies: boolean }
  | { kind: "request"; file_path: string };

/**
 * Runs a change of a kap's triggers in one transaction: the kap's row is locked, so that no save or delete comes between; the event is written,
 * runtimes are told by the revision.
 */
async function change(
  deps: Deps,
  { caller, client, kap }: Change,
  work: (trx: Knex.Transaction, kap: KapRow) => Promise<{ trigger: TriggerRow; kind: string | null; detail?: object }>,
): Promise<TriggerRow> {
  return deps.db.transaction(async (trx) => {
    // Not FOR UPDATE: rows that refer to the kap may be written meanwhile.
    const locked: KapRow | undefined = await trx("kaps").where({ id: kap.id, org_id: caller.org.id }).forNoKeyUpdate().first();
    if (!locked) throw kapNotFound(kap.slug);
    refuseDeleted(locked);
    const { trigger, kind, detail } = await work(trx, locked);
    if (kind !== null) {
      await recordKapEvent(trx, {
        kap_id: kap.id,
        kind,
        actor: actorOf(caller),
        client,
        detail: { trigger_id: trigger.id, kind: trigger.kind, file_path: trigger.file_path, ...detail },
      });
      await bumpRevision(trx, kap.id);
      await deps.kapChanged(trx, kap.id);
    }
    return trigger;
  });
}

/** Attaches a trigger: 409 `TRIGGER_LIMIT` past 20 schedules, 409 for a second inbox or request trigger, 422 for a cadence that cannot be. */
export async function createTrigger(deps: Deps, who: Change, wanted: NewTrigger): Promise<TriggerRow> {
  const minSeconds = deps.config.minCadenceSeconds;
  const cron = wanted.kind === "schedule" && wanted.cron !== undefined ? checkCron(wanted.cron, minSeconds) : null;
  if (wanted.kind === "schedule" && wanted.interval_seconds !== undefined) checkInterval(wanted.interval_seconds, minSeconds);
  if (wanted.kind === "request") {
    throw wrongKind("a kap has one request trigger, from its creation on: change it with PUT instead");
  }
  const insert = (): Promise<TriggerRow> =>
    change(deps, who, async (trx, kap) => {
      await checkFile(trx, kap, wanted.file_path);
      if (wanted.kind === "schedule") {
        const count = await trx("kap_triggers")
          .where({ kap_id: kap.id, kind: "schedule" })
          .whereNull("deleted_at")
          .count({ n: "*" })
          .first();
        if (Number(count?.n ?? 0) >= maxSchedules) {
          throw new Refusal(
            409,
            "TRIGGER_LIMIT",
            `a kap has at most ${maxSchedules} schedules: delete one first, or let one schedule do both`,
          );
        }
      }
      const now = await databaseNow(trx);
      const cadence = { cron, interval_seconds: wanted.kind === "schedule" ? (wanted.interval_seconds ?? null) : null, created_at: now };
      const rows: TriggerRow[] = await trx("kap_triggers")
        .insert({
          id: newId(),
          kap_id: kap.id,
          kind: wanted.kind,
          file_path: wanted.file_path,
          ...cadence,
          auto_replies: wanted.kind === "inbox" && wanted.auto_replies,
          next_run_at: wanted.kind === "schedule" ? nextTime(cadence, now) : null,
          created_by: JSON.stringify(actorOf(who.caller)),
        })
        .returning("*");
      const trigger = rows[0] as TriggerRow;
      return {
        trigger,
        kind: "trigger.created",
        detail: wanted.kind === "schedule" ? { cron, interval_seconds: cadence.interval_seconds } : {},
      };
    });
  try {
    return await insert();
  } catch (error) {
    if (isUniqueViolation(error, "kap_triggers_one_inbox"))
      throw wrongKind("the kap has an inbox trigger already: delete it before you attach another");
    throw error;
  }
}

/** Changes the request trigger's file, or pauses or resumes it. */
export function changeRequestTrigger(
  deps: Deps,
  who: Change,
  id: string,
  wanted: { file_path: string; enabled: boolean },
): Promise<TriggerRow> {
  return change(deps, who, async (trx, kap) => {
    const trigger = await findTrigger(trx, kap, id);
    if (trigger.kind !== "request") {
      throw wrongKind(
        `only the request trigger is changed with PUT: pause, resume or delete this ${trigger.kind} trigger, or attach another`,
      );
    }
    if (trigger.file_path !== wanted.file_path) await checkFile(trx, kap, wanted.file_path);
    if (trigger.file_path === wanted.file_path && trigger.enabled === wanted.enabled) return { trigger, kind: null };
    const actor = JSON.stringify(actorOf(who.caller));
    const rows: TriggerRow[] = await trx("kap_triggers")
      .where({ id })
      .update({
        file_path: wanted.file_path,
        enabled: wanted.enabled,
        ...(wanted.enabled ? { paused_by: null, paused_at: null } : trigger.enabled ? { paused_by: actor, paused_at: trx.fn.now() } : {}),
      })
      .returning("*");
    const kind = trigger.enabled === wanted.enabled ? "trigger.changed" : wanted.enabled ? "trigger.resumed" : "trigger.paused";
    return { trigger: rows[0] as TriggerRow, kind, detail: { before: { file_path: trigger.file_path, enabled: trigger.enabled } } };
  });
}

/** Pauses or resumes a schedule or inbox trigger. Times that pass while a schedule is paused are not made up for. */
export function setEnabled(deps: Deps, who: Change, id: string, enabled: boolean): Promise<TriggerRow> {
  return change(deps, who, async (trx, kap) => {
    const trigger = await findTrigger(trx, kap, id);
    if (trigger.kind === "request") throw wrongKind("the request trigger is paused and resumed with PUT and its field enabled");
    if (trigger.enabled === enabled) return { trigger, kind: null };
    const rows: TriggerRow[] = await trx("kap_triggers")
      .where({ id })
      .update({
        enabled,
        next_run_at: enabled && trigger.kind === "schedule" ? nextTime(trigger, await databaseNow(trx)) : null,
        paused_by: enabled ? null : JSON.stringify(actorOf(who.caller)),
        paused_at: enabled ? null : trx.fn.now(),
      })
      .returning("*");
    return { trigger: rows[0] as TriggerRow, kind: enabled ? "trigger.resumed" : "trigger.paused" };
  });
}

/** Detaches a schedule or inbox trigger; its runs stay. */
export async function deleteTrigger(deps: Deps, who: Change, id: string): Promise<void> {
  await change(deps, who, async (trx, kap) => {
    const trigger = await findTrigger(trx, kap, id);
    if (trigger.kind === "request") throw wrongKind("the request trigger cannot be deleted: pause it with PUT and enabled: false");
    await trx("kap_triggers").where({ id }).update({ deleted_at: trx.fn.now(), enabled: false, next_run_at: null });
    return { trigger, kind: "trigger.deleted" };
  });
}

/** The time of the database: the one clock that all replicas share. */
export async function databaseNow(db: Deps["db"] | Knex.Transaction): Promise<Date> {
  const { rows } = await db.raw<{ rows: { now: Date }[] }>("select clock_timestamp() as now");
  return rows[0]?.now ?? new Date();
}
