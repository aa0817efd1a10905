import { kapLabels } from "#platform/kap-resource.ts";
import type { ApiResource, Kubernetes } from "#platform/kubernetes/client.ts";
import { isPodReady, isPodStarting, type Pod, restartsOf } from "#platform/kubernetes/objects.ts";
import { watchObjects } from "#platform/kubernetes/watch.ts";
import type { Logger } from "#platform/log.ts";
import type { RuntimeCandidate, RuntimePool } from "../gateway/pool.ts";

const podResource: ApiResource<Pod> = { apiVersion: "v1", kind: "Pod", plural: "pods" };
/** Where a runtime's pod listens (the image says so). */
const dataPort = 9000;
const controlPort = 9001;

export interface PodPoolOptions {
  kubernetes: Kubernetes;
  /** The release's name: only its pods are looked at. */
  release: string;
  /** Tells the operator that the table of runtimes has changed, or which runtime was given up (its control address). Must not throw. */
  tell(discarded?: string): void;
  signal: AbortSignal;
  log: Logger;
}

/** The runtime pool of a cluster: the warm pods of a Deployment. */
export interface PodPool extends RuntimePool {
  /** Throws until the warm pods are known. Once they are, it never does again: what is known is good enough to claim while the API server is away. */
  check(): Promise<void>;
  /** Settles when the watch has ended after the signal. */
  ended: Promise<void>;
}

/**
 * Watches the warm pods and offers those that may be claimed: Ready, not ending, not claimed or given up by this process. While there is none, those that
 * have just started: kubelet looks at them once a second, and a caller waits. A claim needs no word with the Kubernetes API: another replica's is found out
 * by the runtime's 409, and the operator adopts claimed pods afterwards, by the table of runtimes.
 */
export function createPodPool({ kubernetes, release, tell, signal, log }: PodPoolOptions): PodPool {
  /** Starts of pods that were claimed or given up from here; forgotten when the pod is no longer a warm one. */
  const used = new Set<string>();
  const watch = watchObjects<Pod>(kubernetes, {
    resource: podResource,
    labelSelector: `${kapLabels.instance}=${release},${kapLabels.component}=runtime,${kapLabels.runtime}=warm`,
    keep: slim,
    onChange: ({ type, object, previous }) => {
      if (previous && (type === "deleted" || startOf(previous) !== startOf(object))) used.delete(startOf(previous));
    },
    signal,
    log,
  });
  const use = (control: string): void => {
    for (const pod of watch.store.values()) if (controlOf(pod) === control) used.add(startOf(pod));
  };
  return {
    async candidates() {
      const free = [...watch.store.values()].filter((pod) => !used.has(startOf(pod)));
      // In no order, so that replicas that claim at the same moment rarely ask the same pod first.
      const those = (fit: (pod: Pod) => boolean): RuntimeCandidate[] => shuffled(free.filter(fit)).flatMap((pod) => candidateOf(pod) ?? []);
      const ready = those(isPodReady);
      return ready.length > 0 ? ready : those(isPodStarting).map((candidate) => ({ ...candidate, isStarting: true }));
    },
    taken(control) {
      use(control);
      tell();
    },
    discard(control) {
      use(control);
      tell(control);
    },
    async check() {
      if (!watch.isSynced()) throw new Error("the warm pods are not known yet: the Kubernetes API server has not answered");
    },
    ended: watch.ended,
  };
}

/** One start of a pod's container: after another it is a new runtime. */
const startOf = (pod: Pod): string => `${pod.metadata.uid}/${restartsOf(pod)}`;

function candidateOf(pod: Pod): RuntimeCandidate | null {
  const host = hostOf(pod);
  return host === null ? null : { id: pod.metadata.name, data: `tcp:${host}:${dataPort}`, control: `tcp:${host}:${controlPort}` };
}

const controlOf = (pod: Pod): string | undefined => candidateOf(pod)?.control;

function hostOf(pod: Pod): string | null {
  const ip = pod.status?.podIP;
  if (ip === undefined || ip === "") return null;
  return ip.includes(":") ? `[${ip}]` : ip;
}

/** What the pool looks at of a pod: a thousand whole ones would be some megabytes. */
function slim({ metadata, status }: Pod): Pod {
  const { name, uid, resourceVersion, deletionTimestamp } = metadata;
  return {
    metadata: {
      name,
      ...(uid !== undefined && { uid }),
      ...(resourceVersion !== undefined && { resourceVersion }),
      ...(deletionTimestamp !== undefined && { deletionTimestamp }),
    },
    ...(status !== undefined && { status }),
  };
}

function shuffled<T>(items: T[]): T[] {
  for (let i = items.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [items[i], items[j]] = [items[j] as T, items[i] as T];
  }
  return items;
}
