/** What every Kubernetes object has, as it is on the wire. Times are RFC 3339 texts. */
export interface KubernetesObject {
  apiVersion?: string;
  kind?: string;
  metadata: ObjectMeta;
}

export interface ObjectMeta {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  generation?: number;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  finalizers?: string[];
  ownerReferences?: OwnerReference[];
}

export interface OwnerReference {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
  blockOwnerDeletion?: boolean;
}

export interface Condition {
  type: string;
  status: "True" | "False" | "Unknown";
  reason: string;
  message: string;
  lastTransitionTime: string;
  observedGeneration?: number;
}

/** A pod, as far as the platform looks at one. */
export interface Pod extends KubernetesObject {
  spec?: { nodeName?: string; containers?: { name: string; image?: string }[] };
  status?: {
    phase?: string;
    podIP?: string;
    conditions?: { type: string; status: string }[];
    containerStatuses?: {
      name: string;
      ready: boolean;
      restartCount: number;
      started?: boolean;
      state?: { running?: { startedAt?: string } };
    }[];
  };
}

/** Whether a pod is Ready, has an address and is not being deleted. */
export function isPodReady(pod: Pod): boolean {
  return (
    pod.metadata.deletionTimestamp === undefined &&
    pod.status?.podIP !== undefined &&
    (pod.status.conditions ?? []).some(({ type, status }) => type === "Ready" && status === "True")
  );
}

/** Whether a pod has an address, its containers run, and its startup probe has not answered yet. */
export function isPodStarting(pod: Pod): boolean {
  const containers = pod.status?.containerStatuses ?? [];
  return (
    pod.metadata.deletionTimestamp === undefined &&
    pod.status?.podIP !== undefined &&
    containers.length > 0 &&
    containers.every(({ state, started }) => state?.running !== undefined && started !== true)
  );
}

/** How often the containers of a pod have been started again. */
export function restartsOf(pod: Pod): number {
  return (pod.status?.containerStatuses ?? []).reduce((sum, { restartCount }) => sum + restartCount, 0);
}
