import { type Kap, kapLabels } from "#platform/kap-resource.ts";
import { isNotFound } from "#platform/kubernetes/client.ts";
import { isPodReady, type Pod } from "#platform/kubernetes/objects.ts";
import { adoptionPatch, controlAddressOf, isClaimed, isEnding, reasonToEnd } from "./desired/pods.ts";
import { podResource, type ReconcileParts } from "./parts.ts";
import type { RuntimeRow } from "./runtime-rows.ts";

/** What each pod, as the store has it, has been patched with: it comes back changed by the watch, until when it is not adopted again. */
const sent = new WeakMap<Pod, string>();

/** A look at `runtimes` older than this decides no deletion: what it does not name may have been claimed since. */
const freshMs = 10_000;

/**
 * Makes the pods of a kap's runtimes the kap's: those that rows of `runtimes` name. The claim itself is long done, between gateway and pod; until
 * a pod is adopted it only looks warm. Answers how many runtimes serve the kap.
 */
export async function adoptPods(parts: ReconcileParts, kap: Kap): Promise<number> {
  const rows = rowsOf(parts, kap.spec.kapId);
  if (rows.length > 0) {
    const byAddress = podsByAddress(parts.pods);
    for (const row of rows) {
      const pod = byAddress.get(row.control);
      if (pod) await adopt(parts, pod, row, kap);
    }
  }
  return rows.filter(({ state }) => state === "ready").length;
}

/**
 * Looks at one runtime pod apart from its kap: deleted when it serves nobody and never will (its runtime was released or discarded, or its container
 * restarted and is generic again), adopted without an owner when its kap has no resource yet.
 */
export async function reconcilePod(parts: ReconcileParts, name: string): Promise<undefined> {
  const pod = parts.pods.get(name);
  const runtimes = parts.runtimes();
  if (!pod || !runtimes || runtimes.ageMs > freshMs) return;
  const address = controlAddressOf(pod);
  const reason = reasonToEnd(pod, runtimes.rows, address !== undefined && runtimes.discarded.has(address));
  if (reason !== null) return await end(parts, pod, reason);
  const row = address === undefined ? undefined : runtimes.rows.get(address);
  if (row && !isEnding(pod) && !kapOf(parts, row.kapId)) await adopt(parts, pod, row, undefined);
}

/** Keys of everything that the pods and rows of this moment ask for. */
export function keysToDo(parts: ReconcileParts): string[] {
  const runtimes = parts.runtimes();
  if (!runtimes) return [];
  const keys = new Set<string>();
  const kapsById = new Map([...parts.kaps.values()].map((kap) => [kap.spec.kapId, kap]));
  for (const pod of parts.pods.values()) {
    const address = controlAddressOf(pod);
    if (address === undefined || isEnding(pod)) continue;
    if (reasonToEnd(pod, runtimes.rows, runtimes.discarded.has(address)) !== null) keys.add(`pod/${pod.metadata.name}`);
    const row = runtimes.rows.get(address);
    if (!row) continue;
    const kap = kapsById.get(row.kapId);
    if (adoptionPatch(pod, row.kapId, kap) !== null) keys.add(kap ? `kap/${kap.metadata.name}` : `pod/${pod.metadata.name}`);
  }
  return [...keys];
}

/** Pods that can be claimed, and those that are, for the metrics. */
export function countPods(pods: ReadonlyMap<string, Pod>): { warm: number; claimed: number } {
  const count = { warm: 0, claimed: 0 };
  for (const pod of pods.values()) {
    if (isClaimed(pod) && !isEnding(pod)) count.claimed += 1;
    else if (isPodReady(pod)) count.warm += 1;
  }
  return count;
}

async function adopt(parts: ReconcileParts, pod: Pod, row: RuntimeRow, kap: Kap | undefined): Promise<void> {
  if (isEnding(pod)) return;
  const patch = adoptionPatch(pod, row.kapId, kap);
  if (patch === null || sent.get(pod) === JSON.stringify(patch)) return;
  const wasWarm = !isClaimed(pod);
  try {
    await parts.kubernetes.mergePatch(podResource, pod.metadata.name, patch);
  } catch (error) {
    if (isNotFound(error)) return; // it died; its row follows
    throw error;
  }
  sent.set(pod, JSON.stringify(patch));
  if (!wasWarm) return;
  parts.metrics.adoptions.inc();
  parts.log.info({ pod: pod.metadata.name, kap_id: row.kapId, kap: kap?.metadata.name }, "a claimed runtime was adopted");
  if (kap) parts.events.say(kap, "Normal", "Adopted", `the runtime in pod ${pod.metadata.name} serves the kap`);
}

async function end(parts: ReconcileParts, pod: Pod, reason: string): Promise<undefined> {
  const { name, uid, labels = {} } = pod.metadata;
  if (!(await parts.kubernetes.delete(podResource, name, { preconditions: { uid } }))) return;
  parts.metrics.releases.inc();
  parts.log.info({ pod: name, kap_id: labels[kapLabels.kapId], reason }, "a runtime pod was ended");
  const kap = parts.kaps.get(labels[kapLabels.kap] ?? "");
  if (kap) parts.events.say(kap, "Normal", "RuntimeEnded", `pod ${name} ends: ${reason}`);
}

function rowsOf(parts: ReconcileParts, kapId: string): RuntimeRow[] {
  const runtimes = parts.runtimes();
  if (!runtimes) throw new Error("the table of runtimes has not been read yet");
  return [...runtimes.rows.values()].filter((row) => row.kapId === kapId);
}

function kapOf(parts: ReconcileParts, kapId: string): Kap | undefined {
  for (const kap of parts.kaps.values()) if (kap.spec.kapId === kapId) return kap;
  return undefined;
}

function podsByAddress(pods: ReadonlyMap<string, Pod>): Map<string, Pod> {
  const byAddress = new Map<string, Pod>();
  for (const pod of pods.values()) {
    const address = controlAddressOf(pod);
    if (address !== undefined && !isEnding(pod)) byAddress.set(address, pod);
  }
  return byAddress;
}
