import { type Kap, kapFieldManagers, kapResource } from "#platform/kap-resource.ts";
import { isNotFound } from "#platform/kubernetes/client.ts";
import { adoptPods } from "./adoption.ts";
import { databaseReady } from "./kap-databases.ts";
import type { ReconcileParts } from "./parts.ts";
import { holdKap, releaseKap } from "./release.ts";
import { isSameStatus, type PartState, statusOf } from "./status.ts";

/** Every kap is looked at again after this long, give or take a fifth: for its bucket. */
const againMs = 15 * 60_000;
/** One whose store or database is not ready, sooner. */
const brokenAgainMs = 15_000;

/**
 * Brings one kap to what its resource and PostgreSQL say: database and bucket are there, its runtimes' pods are its own, the status tells how it
 * is. Reads the state as it is now and may be repeated at will. Answers when to look again, in ms.
 */
export async function reconcileKap(parts: ReconcileParts, name: string): Promise<number | undefined> {
  const found = parts.kaps.get(name);
  if (!found) return undefined;
  if (found.metadata.deletionTimestamp !== undefined) {
    await releaseKap(parts, found);
    parts.buckets.forget(found.spec.bucket);
    return undefined;
  }
  try {
    const kap = await holdKap(parts, found);
    const replicas = await adoptPods(parts, kap); // first: it must not wait for a slow store
    const database = await repairDatabase(parts, kap);
    // Of a kap that is deleted or purged the bucket is the purge's.
    const isKept = kap.spec.state !== "deleted" && database.status !== "Unknown";
    const store = isKept ? await parts.buckets.ensure(kap.spec.bucket) : notLookedAfter;
    await say(parts, kap, { database, store, replicas });
    const isBroken = database.status === "False" || store.status === "False";
    return (isBroken ? brokenAgainMs : againMs) * (0.8 + Math.random() * 0.4);
  } catch (error) {
    if (isNotFound(error)) return undefined; // deleted meanwhile: the watch tells
    throw error;
  }
}

async function repairDatabase(parts: ReconcileParts, kap: Kap): Promise<PartState> {
  const state = await parts.databases.stateOf(kap.spec.kapId);
  if (state === null) return { status: "Unknown", reason: "NotKnown", message: "PostgreSQL keeps no data of this kap" };
  if (state.missing.length === 0) return databaseReady;
  const missing = state.missing.join(" and ");
  try {
    await parts.databases.repair(kap.spec.kapId);
  } catch (error) {
    const cause = error instanceof Error ? error.message : String(error);
    parts.log.error({ err: error, kap: kap.metadata.name, missing }, "the database of a kap could not be repaired");
    return { status: "False", reason: "RepairFailed", message: `${missing} missing, and not made anew: ${cause.slice(0, 300)}` };
  }
  parts.log.warn({ kap: kap.metadata.name, missing }, "the database of a kap was repaired");
  parts.events.say(kap, "Warning", "DatabaseRepaired", `${missing} missing in PostgreSQL: made anew`);
  return databaseReady;
}

const notLookedAfter: PartState = { status: "Unknown", reason: "Deleted", message: "not looked after once the kap is deleted" };

/** Writes the status if it says something new, and tells of turns for better or worse. */
async function say(parts: ReconcileParts, kap: Kap, observed: { database: PartState; store: PartState; replicas: number }): Promise<void> {
  const status = statusOf(kap, observed, new Date());
  if (isSameStatus(kap.status, status)) return;
  const { name, uid, resourceVersion } = kap.metadata;
  // With the version it is about: a status is never said of a spec that has changed meanwhile.
  const wanted = { metadata: { name, ...(uid && { uid }), ...(resourceVersion && { resourceVersion }) }, status };
  await parts.kubernetes.apply(kapResource, wanted, { fieldManager: kapFieldManagers.operator, subresource: "status" });
  parts.metrics.statusWrites.inc();
  const turned = (type: string): PartState | undefined => {
    const now = status.conditions.find((condition) => condition.type === type);
    const before = kap.status?.conditions?.find((condition) => condition.type === type);
    return now && now.status !== before?.status ? now : undefined;
  };
  const ready = turned("Ready");
  if (ready?.status === "True") parts.events.say(kap, "Normal", "Ready", "the kap can be called");
  else if (ready?.status === "False" && kap.spec.state === "active") parts.events.say(kap, "Warning", "NotReady", ready.message);
  const store = turned("StoreReady");
  if (store?.status === "False") parts.events.say(kap, "Warning", "StoreNotReady", store.message);
  const database = turned("DatabaseReady");
  if (database?.status === "False") parts.events.say(kap, "Warning", "DatabaseNotReady", database.message);
}
