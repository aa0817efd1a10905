import type { ApiResource } from "./kubernetes/client.ts";
import type { Condition, KubernetesObject } from "./kubernetes/objects.ts";

/**
 * The `Kap` resource: what the API projects of a kap into the cluster (`spec`, from PostgreSQL, never read back from here) and what the operator
 * says of it there (`status`). One resource per kap that is not purged, named by its slug, in the namespace of the release.
 */
export interface Kap extends KubernetesObject {
  apiVersion: typeof kapApiVersion;
  kind: "Kap";
  spec: KapSpec;
  status?: KapStatus;
}

export interface KapSpec {
  /** UUID; never changes, like `orgId` and `slug`. */
  kapId: string;
  orgId: string;
  /** The display name. */
  name: string;
  /** The name of the resource too. */
  slug: string;
  /** Public origin of the kap. */
  address: string;
  state: "active" | "disabled" | "deleted";
  /** Grows with every change a runtime must know. */
  revision: number;
  /** The version that is live; null before the first. */
  versionId: string | null;
  /** Its sequence number; 0 before the first. */
  version: number;
  audience: "members" | "invited" | "public";
  database: { schema: string; role: string };
  bucket: string;
  /** Distinct cron expressions of the kap's enabled schedules, in their normal form and sorted; none unless the kap is active. */
  schedules: string[];
  /** Whether an enabled schedule counts by an interval. */
  hasIntervals: boolean;
}

export interface KapStatus {
  phase: KapPhase;
  /** Runtimes that serve the kap now. */
  replicas: number;
  /** `metadata.generation` that the rest of the status is about. */
  observedGeneration: number;
  /** `spec.revision` that the rest of the status is about. */
  observedRevision: number;
  conditions: Condition[];
}

export type KapPhase = "Idle" | "Running" | "Disabled" | "Deleted" | "Degraded";
export type KapConditionType = "Ready" | "DatabaseReady" | "StoreReady" | "RuntimeReady";

export const kapApiVersion = "kapstone.dev/v1";
export const kapResource: ApiResource<Kap> = { apiVersion: kapApiVersion, kind: "Kap", plural: "kaps" };

/** Who owns which fields (server-side apply): the API `spec` and labels, the operator `status` and the finalizer. */
export const kapFieldManagers = { api: "kapstone-api", operator: "kapstone-operator" } as const;

/** Holds a deleted resource until the operator has let the kap's pods go. It never holds data: they go when PostgreSQL says purged. */
export const kapFinalizer = "kapstone.dev/cluster-objects";

/** Labels and annotations of the platform's own, on `Kap` resources and pods. */
export const kapLabels = {
  managedBy: "app.kubernetes.io/managed-by",
  instance: "app.kubernetes.io/instance",
  component: "app.kubernetes.io/component",
  kapId: "kapstone.dev/kap-id",
  orgId: "kapstone.dev/org-id",
  /** On a claimed pod: the slug of its kap. */
  kap: "kapstone.dev/kap",
  /** On a runtime pod: `warm` until the operator adopts it, then `claimed`. */
  runtime: "kapstone.dev/runtime",
  /** Annotation of a claimed pod: its restart count when it was adopted. A pod that restarted since serves nobody. */
  restarts: "kapstone.dev/restarts",
} as const;

/** The channel on which the API tells the operator that the table `runtimes` has changed. */
export const runtimesChannel = "kapstone_runtimes";
