import type { Kap, KapConditionType, KapPhase, KapStatus } from "#platform/kap-resource.ts";
import type { Condition } from "#platform/kubernetes/objects.ts";

/** Whether a part of a kap is as it should be, and why not. */
export interface PartState {
  status: "True" | "False" | "Unknown";
  reason: string;
  message: string;
}

/** What the operator has found out about a kap. */
export interface Observed {
  database: PartState;
  store: PartState;
  /** Runtimes that serve it. */
  replicas: number;
}

/**
 * The status of a kap (pure). `Ready` says that it can be served: so is an idle kap, for its first call claims a runtime; a disabled or deleted one
 * is not. The times of conditions that have not changed stay.
 */
export function statusOf(kap: Kap, observed: Observed, now: Date): KapStatus {
  const { spec, metadata, status } = kap;
  const generation = metadata.generation ?? 0;
  const condition = (type: KapConditionType, part: PartState): Condition => {
    const before = status?.conditions?.find((known) => known.type === type);
    return {
      type,
      ...part,
      observedGeneration: generation,
      lastTransitionTime: before?.status === part.status ? before.lastTransitionTime : now.toISOString().replace(/\.\d+Z$/, "Z"),
    };
  };
  return {
    phase: phaseOf(kap, observed),
    replicas: observed.replicas,
    observedGeneration: generation,
    observedRevision: spec.revision,
    conditions: [
      condition("Ready", readiness(kap, observed)),
      condition("DatabaseReady", observed.database),
      condition("StoreReady", observed.store),
      condition("RuntimeReady", runtimeState(kap, observed)),
    ],
  };
}

/** Whether two statuses say the same. */
export function isSameStatus(one: KapStatus | undefined, other: KapStatus): boolean {
  return one !== undefined && canonical(one) === canonical(other);
}

function canonical({ phase, replicas, observedGeneration, observedRevision, conditions = [] }: KapStatus): string {
  const said = conditions
    .map((known) => [known.type, known.status, known.reason, known.message, known.lastTransitionTime, known.observedGeneration])
    .sort();
  return JSON.stringify([phase, replicas, observedGeneration, observedRevision, said]);
}

function phaseOf({ spec }: Kap, { database, store, replicas }: Observed): KapPhase {
  if (spec.state === "deleted") return "Deleted";
  if (spec.state === "disabled") return "Disabled";
  if (database.status === "False" || store.status === "False") return "Degraded";
  return replicas > 0 ? "Running" : "Idle";
}

function readiness(kap: Kap, observed: Observed): PartState {
  const { state } = kap.spec;
  if (state !== "active") return ended(state);
  for (const part of [observed.database, observed.store]) if (part.status === "False") return part;
  return { status: "True", reason: observed.replicas > 0 ? "Serving" : "Idle", message: "calls are answered" };
}

function runtimeState({ spec }: Kap, { replicas }: Observed): PartState {
  if (spec.state !== "active") return ended(spec.state);
  return replicas > 0
    ? { status: "True", reason: "Serving", message: replicas === 1 ? "a runtime serves it" : `${replicas} runtimes serve it` }
    : { status: "True", reason: "Idle", message: "the next call claims a runtime" };
}

function ended(state: "disabled" | "deleted"): PartState {
  return state === "disabled"
    ? { status: "False", reason: "Disabled", message: "the kap is disabled; enable it through the API" }
    : { status: "False", reason: "Deleted", message: "the kap is deleted; it can be recovered through the API until it is purged" };
}
