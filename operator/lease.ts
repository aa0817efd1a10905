import { setTimeout as delay } from "node:timers/promises";
import { type ApiResource, isConflict, isNotFound, type Kubernetes } from "#platform/kubernetes/client.ts";
import type { KubernetesObject } from "#platform/kubernetes/objects.ts";
import type { Logger } from "#platform/log.ts";

/** Who may act, as coordination.k8s.io keeps it. */
export interface Lease extends KubernetesObject {
  spec?: {
    holderIdentity?: string | null;
    leaseDurationSeconds?: number | null;
    acquireTime?: string | null;
    renewTime?: string | null;
    leaseTransitions?: number | null;
  };
}

export const leaseResource: ApiResource<Lease> = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", plural: "leases" };

export interface LeaseOptions {
  name: string;
  identity: string;
  durationSeconds: number;
  log: Logger;
  /** Told at every look at the lease while waiting for it. */
  onLook?: () => void;
}

/** One term of leadership. */
export interface Term {
  /** Aborted when the lease is lost. */
  signal: AbortSignal;
  /**
   * Throws `LeaseLost` unless the lease is held for certain at this moment, by the monotonic clock: so a process that was stopped and goes on
   * does nothing more, whatever its timers have yet to say. Asked right before each write.
   */
  check(): void;
  /** Stops renewing and gives the lease back, so that another need not wait for its end. */
  release(): Promise<void>;
}

export class LeaseLost extends Error {
  override name = "LeaseLost";
}

/** Part of the duration that a holder keeps clear of the end, for the request that is on its way when it stops. */
const marginPart = 0.25;
/** Parts of the duration: how often a holder renews and how often others look. */
const renewPart = 0.25;
const lookPart = 0.15;

/** Takes part in the election until the lease is won. Throws the signal's reason when it ends first. */
export async function acquireLease(kubernetes: Kubernetes, options: LeaseOptions, signal: AbortSignal): Promise<Term> {
  const durationMs = options.durationSeconds * 1_000;
  const deadlineMs = Math.max(1_000, durationMs * renewPart);
  // Whether a lease has run out is told by how long it has not changed before our own eyes: the clocks of two nodes need not agree.
  let seen: { version: string | undefined; at: number } | undefined;
  for (;;) {
    signal.throwIfAborted();
    options.onLook?.();
    try {
      const current = await kubernetes.get(leaseResource, options.name, { signal, deadlineMs }).catch((error: unknown) => {
        if (isNotFound(error)) return undefined;
        throw error;
      });
      const { version: seenVersion } = seen ?? {};
      const version = current?.metadata.resourceVersion;
      if (seen === undefined || seenVersion !== version) seen = { version, at: performance.now() };
      const holder = current?.spec?.holderIdentity;
      const restMs = (current?.spec?.leaseDurationSeconds ?? options.durationSeconds) * 1_000 - (performance.now() - seen.at);
      if (!holder || restMs <= 0) return await take(kubernetes, options, current, signal);
    } catch (error) {
      signal.throwIfAborted();
      if (!isConflict(error)) options.log.warn({ err: error }, "the lease cannot be read or taken; trying again");
    }
    await delay(durationMs * lookPart * (0.8 + Math.random() * 0.4), undefined, { signal });
  }
}

/** Writes this process into the lease; refused with 409 when someone else was faster. */
async function take(kubernetes: Kubernetes, options: LeaseOptions, current: Lease | undefined, signal: AbortSignal): Promise<Term> {
  const { name, identity, durationSeconds, log } = options;
  const durationMs = durationSeconds * 1_000;
  const now = microTime();
  const wanted: Lease = {
    metadata: { name, ...(current && { resourceVersion: current.metadata.resourceVersion ?? "" }) },
    spec: {
      holderIdentity: identity,
      leaseDurationSeconds: durationSeconds,
      acquireTime: now,
      renewTime: now,
      leaseTransitions: (current?.spec?.leaseTransitions ?? 0) + (current ? 1 : 0),
    },
  };
  let heldUntil = performance.now() + durationMs * (1 - marginPart);
  const call = { deadlineMs: durationMs * renewPart, signal };
  let held = current ? await kubernetes.replace(leaseResource, wanted, call) : await kubernetes.create(leaseResource, wanted, call);
  const end = new AbortController();
  const stopped = new AbortController();
  const lose = (why: string): void => {
    if (!end.signal.aborted) end.abort(new LeaseLost(why));
  };
  const check = (): void => {
    if (performance.now() >= heldUntil) lose("the lease could not be renewed in time");
    end.signal.throwIfAborted();
  };

  /** One renewal; the time counts from before it was sent, which no other operator can have seen earlier. */
  async function renew(): Promise<void> {
    const sentAt = performance.now();
    const renewed = { ...held, spec: { ...held.spec, renewTime: microTime() } };
    try {
      held = await kubernetes.replace(leaseResource, renewed, { deadlineMs: durationMs * renewPart });
      heldUntil = sentAt + durationMs * (1 - marginPart);
      return;
    } catch (error) {
      if (!isConflict(error) && !isNotFound(error)) {
        log.warn({ err: error }, "the lease was not renewed; trying again until it ends");
        return;
      }
    }
    // Someone changed it: an own renewal whose answer was lost, or another holder.
    const now = await kubernetes.get(leaseResource, name, { deadlineMs: durationMs * renewPart }).catch(() => undefined);
    if (now === undefined) return;
    if (now.spec?.holderIdentity !== identity) lose(`the lease is held by ${now.spec?.holderIdentity ?? "nobody"}`);
    held = now;
  }

  async function keep(): Promise<void> {
    while (!end.signal.aborted && !stopped.signal.aborted) {
      await delay(durationMs * renewPart, undefined, { signal: stopped.signal }).catch(() => undefined);
      if (stopped.signal.aborted) return;
      if (performance.now() >= heldUntil) return lose("the lease could not be renewed in time");
      await renew();
    }
  }
  const keeping = keep();
  // Its own clock, for a renewal that hangs must not hide the end.
  const watchdog = setInterval(() => {
    if (performance.now() >= heldUntil) lose("the lease could not be renewed in time");
  }, durationMs / 30);
  end.signal.addEventListener("abort", () => clearInterval(watchdog));

  return {
    signal: end.signal,
    check,
    async release() {
      stopped.abort();
      await keeping;
      clearInterval(watchdog);
      if (end.signal.aborted) return;
      const freed = { ...held, spec: { ...held.spec, holderIdentity: "", leaseDurationSeconds: 1, renewTime: microTime() } };
      lose("the lease was given back");
      await kubernetes.replace(leaseResource, freed, { deadlineMs: durationMs * renewPart }).catch((error: unknown) => {
        log.warn({ err: error }, "the lease was not given back; it ends by itself");
      });
    },
  };
}

/** Now, in the form of a MicroTime. */
export function microTime(): string {
  return new Date().toISOString().replace("Z", "000Z");
}
