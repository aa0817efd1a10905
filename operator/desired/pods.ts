import { type Kap, kapApiVersion, kapLabels } from "#platform/kap-resource.ts";
import { type OwnerReference, type Pod, restartsOf } from "#platform/kubernetes/objects.ts";

/** The port on which the supervisor of a runtime pod is controlled. */
const controlPort = 9001;

/** The control address of a pod's runtime, as rows of `runtimes` name it; undefined while it has no address. */
export function controlAddressOf(pod: Pod): string | undefined {
  const ip = pod.status?.podIP;
  return ip === undefined ? undefined : `tcp:${ip.includes(":") ? `[${ip}]` : ip}:${controlPort}`;
}

export const isClaimed = (pod: Pod): boolean => pod.metadata.labels?.[kapLabels.runtime] === "claimed";
export const isEnding = (pod: Pod): boolean => pod.metadata.deletionTimestamp !== undefined;

/**
 * The patch that makes a runtime pod a kap's: out of the pool's selector, so that the pool makes another; owned by the kap's resource where there is
 * one; its restart count noted. Null when it is so already. Refused by the API server when the pod is no longer this one.
 */
export function adoptionPatch(pod: Pod, kapId: string, kap: Kap | undefined): object | null {
  const { labels = {}, annotations = {}, ownerReferences = [], uid } = pod.metadata;
  const owner = kap && kap.metadata.deletionTimestamp === undefined ? ownerReferenceTo(kap) : undefined;
  const isAdopted = isClaimed(pod) && labels[kapLabels.kapId] === kapId;
  if (isAdopted && (owner === undefined || ownerReferences.some((reference) => reference.uid === owner.uid))) return null;
  return {
    metadata: {
      uid,
      labels: { [kapLabels.runtime]: "claimed", [kapLabels.kapId]: kapId, ...(kap && { [kapLabels.kap]: kap.metadata.name }) },
      annotations: isAdopted ? {} : { ...annotations, [kapLabels.restarts]: String(restartsOf(pod)) },
      ownerReferences: owner ? [owner] : [],
    },
  };
}

/** The patch that takes a pod from its owners, so that it goes on serving when they are deleted. Null when it has none. */
export function disownPatch(pod: Pod): object | null {
  return (pod.metadata.ownerReferences ?? []).length === 0 ? null : { metadata: { uid: pod.metadata.uid, ownerReferences: null } };
}

/** Why a runtime pod is to be deleted, if it is: it serves nobody and never will. `rows` are the control addresses that `runtimes` names. */
export function reasonToEnd(pod: Pod, rows: ReadonlyMap<string, unknown>, isDiscarded: boolean): string | null {
  if (isEnding(pod)) return null;
  if (pod.status?.phase === "Failed") return "the pod failed";
  const address = controlAddressOf(pod);
  const isNamed = address !== undefined && rows.has(address);
  if (!isClaimed(pod)) return isDiscarded && !isNamed ? "the gateway discarded it" : null;
  if (restartsOf(pod) > Number(pod.metadata.annotations?.[kapLabels.restarts] ?? 0)) return "its container restarted since it was claimed";
  return isNamed ? null : "its runtime was released";
}

function ownerReferenceTo(kap: Kap): OwnerReference {
  return { apiVersion: kapApiVersion, kind: "Kap", name: kap.metadata.name, uid: kap.metadata.uid ?? "" };
}
