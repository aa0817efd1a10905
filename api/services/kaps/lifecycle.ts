import { addJob } from "#platform/jobs.ts";
import type { Db } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";
import { actorOf, type Caller } from "../../http/caller.ts";
import { Refusal, refuse } from "../../http/refusal.ts";
import { type KapRow, kapNotFound, lockKap, recordKapChange, refuseDisabled } from "./kap.ts";

const msPerDay = 86_400_000;

/** Changes columns of a kap together with its revision, and tells the runtimes' keeper. Returns the kap as it is then. */
async function change(deps: Deps, trx: Db, kapId: string, columns: Record<string, unknown>): Promise<KapRow> {
  const [kap]: KapRow[] = await trx("kaps")
    .where({ id: kapId })
    .increment("revision", 1)
    .update({ ...columns, updated_at: trx.fn.now() })
    .returning("*");
  if (!kap) throw kapNotFound(kapId);
  await deps.kapChanged(trx, kapId);
  return kap;
}

/** Gives a kap another name. The slug stays. A name it already has changes nothing. */
export function renameKap(deps: Deps, caller: Caller, client: string | null, kapId: string, name: string): Promise<KapRow> {
  return deps.db.transaction(async (trx) => {
    const before = await lockKap(trx, kapId);
    if (before.name === name) return before;
    const kap = await change(deps, trx, kapId, { name });
    const detail = { before: before.name, after: name };
    await recordKapChange(trx, caller, client, { kap_id: kapId, kind: "renamed", detail });
    return kap;
  });
}

/** Puts a kap into its recovery period: it serves nothing from now on, and is purged at the deadline. */
export function deleteKap(deps: Deps, caller: Caller, client: string | null, kapId: string): Promise<KapRow> {
  return deps.db.transaction(async (trx) => {
    await lockKap(trx, kapId);
    const now = new Date();
    const recoverUntil = new Date(now.getTime() + deps.config.recoveryDays * msPerDay);
    const kap = await change(deps, trx, kapId, { state: "deleted", deleted_at: now, recover_until: recoverUntil });
    const detail = { recover_until: recoverUntil };
    await recordKapChange(trx, caller, client, { kap_id: kapId, kind: "deleted", detail });
    await addJob(trx, "kaps.release", { kap_id: kapId });
    await addJob(trx, "kaps.purge", { kap_id: kapId }, { key: `kaps.purge:${kapId}`, runAt: recoverUntil });
    return kap;
  });
}

/** Brings a deleted kap back as it was; one that had been disabled stays so. 410 `RECOVERY_EXPIRED` after the deadline, 409 when it is not deleted. */
export function recoverKap(deps: Deps, caller: Caller, client: string | null, kapId: string): Promise<KapRow> {
  return deps.db.transaction(async (trx) => {
    const before: KapRow | undefined = await trx("kaps").where({ id: kapId }).forNoKeyUpdate().first();
    if (!before) throw kapNotFound(kapId);
    if (before.state !== "deleted") throw refuse("CONFLICT", `the kap ${before.slug} is not deleted: there is nothing to recover`);
    if (before.purged_at !== null || before.recover_until === null || before.recover_until.getTime() <= Date.now()) {
      throw new Refusal(
        410,
        "RECOVERY_EXPIRED",
        `the kap ${before.slug} could be recovered until ${before.recover_until?.toISOString()}: that is over, and the kap is gone for good`,
        { details: { deleted_at: before.deleted_at, recover_until: before.recover_until } },
      );
    }
    const state = before.disabled === null ? "active" : "disabled";
    const kap = await change(deps, trx, kapId, { state, deleted_at: null, recover_until: null });
    await recordKapChange(trx, caller, client, { kap_id: kapId, kind: "recovered" });
    return kap;
  });
}

/** Stops a kap until it is enabled again. 409 `KAP_DISABLED`, with who, when and why, when it already is. */
export function disableKap(deps: Deps, caller: Caller, client: string | null, kapId: string, reason: string): Promise<KapRow> {
  return deps.db.transaction(async (trx) => {
    refuseDisabled(await lockKap(trx, kapId), 409);
    const actor = actorOf(caller);
    const disabled = JSON.stringify({ by: actor, at: new Date().toISOString(), reason });
    const kap = await change(deps, trx, kapId, { state: "disabled", disabled });
    await recordKapChange(trx, caller, client, { kap_id: kapId, kind: "disabled", detail: { reason } });
    await addJob(trx, "kaps.release", { kap_id: kapId });
    return kap;
  });
}

/** Lets a disabled kap serve again. 409 when it is not disabled. */
export function enableKap(deps: Deps, caller: Caller, client: string | null, kapId: string): Promise<KapRow> {
  return deps.db.transaction(async (trx) => {
    const before = await lockKap(trx, kapId);
    if (before.state !== "disabled") throw refuse("CONFLICT", `the kap ${before.slug} is not disabled: there is nothing to enable`);
    const kap = await change(deps, trx, kapId, { state: "active", disabled: null });
    await recordKapChange(trx, caller, client, { kap_id: kapId, kind: "enabled", detail: { was: before.disabled } });
    return kap;
  });
}
