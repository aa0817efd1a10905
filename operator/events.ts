import { createHash } from "node:crypto";
import { kapFieldManagers } from "#platform/kap-resource.ts";
import { type ApiResource, isConflict, type Kubernetes } from "#platform/kubernetes/client.ts";
import type { KubernetesObject } from "#platform/kubernetes/objects.ts";
import type { Logger } from "#platform/log.ts";

interface Event extends KubernetesObject {
  [field: string]: unknown;
}

const eventResource: ApiResource<Event> = { apiVersion: "v1", kind: "Event", plural: "events" };
/** How long the same event about the same object is not said again. */
const repeatMs = 10 * 60_000;
const remembered = 5_000;

export type EventReason =
  | "Adopted"
  | "Ready"
  | "NotReady"
  | "RuntimeEnded"
  | "DatabaseRepaired"
  | "DatabaseNotReady"
  | "StoreNotReady"
  | "Released"
  | "ReleasedBlindly";

export interface EventRecorder {
  /** Says something about an object, once in ten minutes; failing to say it is logged and harms nothing. */
  say(
    object: KubernetesObject & { apiVersion: string; kind: string },
    type: "Normal" | "Warning",
    reason: EventReason,
    message: string,
  ): void;
  /** Waits for what is being said. */
  flush(): Promise<void>;
}

/** Events of the operator, shown by `kubectl describe`. Their names are made of what they say, so an operator that takes over repeats none. */
export function createEventRecorder(kubernetes: Kubernetes, identity: string, log: Logger): EventRecorder {
  const saidAt = new Map<string, number>();
  const underWay = new Set<Promise<void>>();
  return {
    say(object, type, reason, message) {
      const { name, uid, namespace } = object.metadata;
      const digest = createHash("sha256").update(`${uid}\0${reason}\0${message}`).digest("hex").slice(0, 16);
      const now = performance.now();
      if (now - (saidAt.get(digest) ?? Number.NEGATIVE_INFINITY) < repeatMs) return;
      saidAt.delete(digest);
      saidAt.set(digest, now); // newest last
      const [oldest] = saidAt.keys();
      if (saidAt.size > remembered && oldest !== undefined) saidAt.delete(oldest);
      const at = new Date().toISOString().replace(/\.\d+Z$/, "Z");
      const event: Event = {
        metadata: { name: `${name.slice(0, 200)}.${digest}` },
        involvedObject: { apiVersion: object.apiVersion, kind: object.kind, name, uid, namespace: namespace ?? kubernetes.namespace },
        type,
        reason,
        message: message.slice(0, 1_000),
        source: { component: kapFieldManagers.operator },
        reportingComponent: kapFieldManagers.operator,
        reportingInstance: identity.slice(0, 128),
        firstTimestamp: at,
        lastTimestamp: at,
        count: 1,
      };
      const sending = kubernetes
        .create(eventResource, event)
        .then(
          () => undefined,
          async (error: unknown) => {
            if (!isConflict(error)) throw error;
            await kubernetes.mergePatch(eventResource, event.metadata.name, { lastTimestamp: at });
          },
        )
        .catch((error: unknown) => log.warn({ err: error, reason }, "an event was not said"))
        .finally(() => underWay.delete(sending));
      underWay.add(sending);
    },
    async flush() {
      await Promise.all(underWay);
    },
  };
}
