import { addJob } from "#platform/jobs.ts";
import { type Kap, kapFieldManagers, kapFinalizer, kapLabels, kapResource } from "#platform/kap-resource.ts";
import { isNotFound } from "#platform/kubernetes/client.ts";
import { disownPatch } from "./desired/pods.ts";
import { podResource, type ReconcileParts } from "./parts.ts";

/** After this long a deleted resource goes, whatever cannot be asked or done. */
const patienceMs = 60_000;
const podPage = 100;
/** For PostgreSQL to say whether a kap lives. */
const answerMs = 5_000;

/**
 * Ends a resource that is being deleted: cluster objects only, never data. PostgreSQL says whether the kap is gone for good: then its pods go with it.
 * A kap that lives has lost its resource by mistake: its pods are taken from their owner and serve on, and the API is asked to make the resource
 * anew. When PostgreSQL cannot be asked for a minute, the pods stay (they end by themselves when nobody's row names them) and the resource goes.
 */
export async function releaseKap(parts: ReconcileParts, kap: Kap): Promise<void> {
  if (!kap.metadata.finalizers?.includes(kapFinalizer)) return;
  const isLate = Date.now() - Date.parse(kap.metadata.deletionTimestamp ?? "") > patienceMs;
  const fate = await fateOf(parts, kap.spec.kapId).catch((error: unknown) => {
    if (!isLate) throw error;
    parts.log.warn({ err: error, kap: kap.metadata.name }, "PostgreSQL cannot be asked about a deleted resource; it goes, its pods stay");
    return "unknown" as const;
  });
  try {
    if (fate === "purged") await endPods(parts, kap);
    else await disownPods(parts, kap);
  } catch (error) {
    if (!isLate) throw error;
    parts.log.error({ err: error, kap: kap.metadata.name }, "the pods of a deleted resource could not be let go; it goes all the same");
  }
  if (fate === "unknown") {
    const message = "PostgreSQL could not be asked for a minute: the resource goes, and is made anew if the kap lives";
    parts.events.say({ ...kap, kind: "Kap" }, "Warning", "ReleasedBlindly", message);
  } else if (fate === "live") {
    parts.events.say(
      { ...kap, kind: "Kap" },
      "Normal",
      "Released",
      "the kap lives on in PostgreSQL: its resource is made anew, its runtimes serve on",
    );
  }
  await removeFinalizer(parts, kap);
  if (fate === "live") await projectAnew(parts, kap.spec.kapId);
}

/** What PostgreSQL says of a kap. One it has never heard of is gone too. */
async function fateOf(parts: ReconcileParts, kapId: string): Promise<"live" | "purged"> {
  const { rows } = await parts.db
    .raw<{ rows: unknown[] }>("select 1 from kaps where id = ? and purged_at is null", [kapId])
    .timeout(answerMs);
  return rows.length > 0 ? "live" : "purged";
}

/** Takes the resource's pods from it, as the API server knows them now: the store may not have seen the last adoption. */
async function disownPods({ kubernetes }: ReconcileParts, kap: Kap): Promise<void> {
  for (const pod of await podsOf(kubernetes, kap)) {
    const patch = disownPatch(pod);
    if (patch === null) continue;
    await kubernetes.mergePatch(podResource, pod.metadata.name, patch).catch((error: unknown) => {
      if (!isNotFound(error)) throw error;
    });
  }
}

async function endPods({ kubernetes }: ReconcileParts, kap: Kap): Promise<void> {
  for (const { metadata } of await podsOf(kubernetes, kap)) {
    await kubernetes.delete(podResource, metadata.name, { preconditions: { uid: metadata.uid } });
  }
}

async function podsOf(kubernetes: ReconcileParts["kubernetes"], kap: Kap) {
  const selection = { labelSelector: `${kapLabels.kapId}=${kap.spec.kapId},${kapLabels.runtime}`, limit: podPage };
  const pods = [];
  let position: string | undefined;
  do {
    const page = await kubernetes.listPage(podResource, { ...selection, continue: position });
    pods.push(...page.items);
    position = page.continue;
  } while (position !== undefined);
  return pods;
}

async function removeFinalizer({ kubernetes }: ReconcileParts, kap: Kap): Promise<void> {
  const { name, resourceVersion, finalizers = [] } = kap.metadata;
  const left = finalizers.filter((finalizer) => finalizer !== kapFinalizer);
  await kubernetes.mergePatch(kapResource, name, { metadata: { resourceVersion, finalizers: left } }).catch((error: unknown) => {
    if (!isNotFound(error)) throw error;
  });
}

/** The API makes the resource anew at once; should this fail, its own comparison does within half a minute. */
async function projectAnew(parts: ReconcileParts, kapId: string): Promise<void> {
  const job = "kaps.project";
  await addJob(parts.db, job, { kap_id: kapId }, { key: `${job}:${kapId}`, queue: job }).catch((error: unknown) =>
    parts.log.warn({ err: error, kap_id: kapId }, "the API was not asked to make a resource anew; it finds out by itself"),
  );
}

/** Puts the finalizer on a resource that lacks it. Answers the resource as it is then. */
export async function holdKap({ kubernetes }: ReconcileParts, kap: Kap): Promise<Kap> {
  if (kap.metadata.finalizers?.includes(kapFinalizer)) return kap;
  const { name, uid } = kap.metadata;
  // With the uid: applying to a resource that is gone must not make a new one.
  const wanted = { metadata: { name, ...(uid !== undefined && { uid }), finalizers: [kapFinalizer] } };
  return await kubernetes.apply(kapResource, wanted, { fieldManager: kapFieldManagers.operator });
}
