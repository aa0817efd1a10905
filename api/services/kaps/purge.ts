import { dropKapDatabase } from "#platform/kap-database.ts";
import type { Deps } from "../../deps.ts";
import { releaseRuntimes } from "../../gateway/claims.ts";
import { systemActor } from "../../http/caller.ts";
import { purgeRuns } from "../runs/retention.ts";
import { type KapRow, recordKapEvent } from "./kap.ts";

/**
 * Removes a kap whose recovery period is over, for good: its runtimes, schema, role, bucket, files, versions, secrets, tokens, triggers, runs and
 * log. Its record stays for `/recovery`, and its history. Safe to repeat: each step is, and the mark is set last. Does nothing for a
 * kap that was recovered, or whose deadline is yet to come.
 */
export async function purgeKap(deps: Deps, kapId: string): Promise<void> {
  const kap: KapRow | undefined = await deps
    .db("kaps")
    .where({ id: kapId, state: "deleted" })
    .whereNull("purged_at")
    .where("recover_until", "<=", new Date())
    .first();
  if (!kap) return;
  await releaseRuntimes(deps, kap.id, 0);
  await dropKapDatabase(deps.db, { schemaName: kap.schema_name, roleName: kap.role_name });
  await deps.objects.deleteBucket(kap.bucket);
  await purgeRuns(deps, kap.id);
  await deps.db.transaction(async (trx) => {
    const ofKap = { kap_id: kap.id };
    await trx("kap_secret_names").where(ofKap).delete();
    await trx("kap_secret_groups").where(ofKap).delete();
    await trx("secrets").where(ofKap).delete();
    await trx("kap_tokens").where(ofKap).delete();
    await trx("kap_triggers").where(ofKap).delete();
    await trx("kap_versions").where(ofKap).delete(); // their bundles go with them
    await trx("kap_blobs").where(ofKap).delete();
    await trx("kaps")
      .where({ id: kap.id })
      .update({ purged_at: trx.fn.now(), role_password: Buffer.alloc(0), updated_at: trx.fn.now() });
    await recordKapEvent(trx, { kap_id: kap.id, kind: "purged", actor: systemActor, client: null });
    await deps.kapChanged(trx, kap.id);
  });
}
