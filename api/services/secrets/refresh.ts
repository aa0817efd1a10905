import { addJob } from "#platform/jobs.ts";
import type { Db } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";
import { refreshRuntimes } from "../../gateway/refresh.ts";

const deadlineMs = 5_000;
const retryAfterMs = 15_000;

/**
 * In the transaction of a change of secrets: gives every affected kap a new revision and notes that its runtimes have yet to confirm it. A
 * job asks them again later, in case the process that changed the secrets dies before they answered. The caller holds the kaps' rows.
 */
export async function markRefresh(deps: Deps, trx: Db, kapIds: readonly string[]): Promise<void> {
  if (kapIds.length === 0) return;
  await trx.raw(`update kaps set revision = revision + 1, secrets_pending_revision = revision + 1, updated_at = now() where id = any(?)`, [
    kapIds,
  ] as unknown as string[]);
  for (const kapId of kapIds) {
    await addJob(
      trx,
      "secrets.refresh",
      { kap_id: kapId },
      { key: `secrets.refresh:${kapId}`, runAt: new Date(Date.now() + retryAfterMs) },
    );
    await deps.kapChanged(trx, kapId);
  }
}

/**
 * After the commit: asks every live runtime of the kaps to take up their secrets, and waits for each to say so. Returns whether one did not
 * in time (`refresh_pending`); even then no request is served with old secrets, since every call carries the revision it needs.
 */
export async function confirmRefresh(deps: Deps, kapIds: readonly string[]): Promise<boolean> {
  if (kapIds.length === 0) return false;
  const { rows: asked } = await deps.db.raw<{ rows: { id: string; secrets_pending_revision: number }[] }>(
    "select id, secrets_pending_revision from kaps where id = any(?) and secrets_pending_revision is not null",
    [kapIds] as unknown as string[],
  );
  const pending = new Set(await refreshRuntimes(deps, kapIds, deadlineMs));
  const confirmed = asked.filter((kap) => !pending.has(kap.id));
  await deps.db.raw(
    `update kaps k set secrets_pending_revision = null from unnest(?::uuid[], ?::bigint[]) as t (id, revision)
     where k.id = t.id and k.secrets_pending_revision <= t.revision`,
    [confirmed.map((kap) => kap.id), confirmed.map((kap) => kap.secrets_pending_revision)] as unknown as string[],
  );
  return pending.size > 0;
}

/** Whether a live runtime of the kap has yet to confirm the present secrets. */
export async function isRefreshPending(db: Db, kapId: string): Promise<boolean> {
  const row: { secrets_pending_revision: number | null } | undefined = await db("kaps")
    .where({ id: kapId })
    .first("secrets_pending_revision");
  return (row?.secrets_pending_revision ?? null) !== null;
}
