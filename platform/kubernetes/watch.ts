import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "../log.ts";
import { type ApiResource, type Kubernetes, KubernetesError } from "./client.ts";
import type { KubernetesObject } from "./objects.ts";
import { readWatchEvents } from "./watch-stream.ts";

/** A change of an object, as found by a watch or by comparing two lists. `previous` is what the store held before. */
export type ObjectChange<T> =
  | { type: "added"; object: T; previous?: undefined }
  | { type: "modified"; object: T; previous: T }
  | { type: "deleted"; object: T; previous: T };

export interface WatchOptions<T extends KubernetesObject> {
  resource: ApiResource<T>;
  labelSelector?: string;
  /** Every change, in the order in which the store takes it; called synchronously and never to throw. */
  onChange?(change: ObjectChange<T>): void;
  /** After every list: the store is whole. */
  onSynced?(): void;
  /** What is kept of an object; by default all but `metadata.managedFields`. */
  keep?(object: T): T;
  signal: AbortSignal;
  log: Logger;
  /** Seconds after which everything is listed anew, and so the longest for which a lost event stays unseen; 40 unless told. */
  relistSeconds?: number;
}

/** What a running watch knows. */
export interface ObjectWatch<T> {
  /** Objects by name. */
  store: ReadonlyMap<string, T>;
  /** Fulfils after the first whole list, or when the loop ends before it (then `isSynced` is false). */
  synced: Promise<void>;
  isSynced(): boolean;
  /** Milliseconds since the API server last told something: a list, an event, a bookmark. What the store says may be as old. */
  silentMs(): number;
  /** Milliseconds since the loop last got on, be it with an error: it turns at least every minute, or it hangs. */
  stuckMs(): number;
  /** How often a list or a watch has failed. */
  failures(): number;
  /** Fulfils when the loop has ended after its signal. */
  ended: Promise<void>;
}

/** A watch that has delivered nothing this long after the server should have ended it is cut. */
const graceMs = 5_000;
const listDeadlineMs = 10_000;
const pageSize = 500;
const minPauseMs = 200;
const maxPauseMs = 8_000;

/**
 * Keeps a copy of all objects of a kind in the namespace: list, then watch from there for a bounded time, then list again. Whatever goes wrong
 * (an error, a stream that breaks off or falls silent, 410 Gone, 429) ends in a new list after a growing, jittered pause that is at least what the
 * server asks for; what the list shows to be different is told like any change. So nothing is missed for longer than `relistSeconds` and a list,
 * whatever the watch did. Ends with its signal only.
 */
export function watchObjects<T extends KubernetesObject>(kubernetes: Kubernetes, options: WatchOptions<T>): ObjectWatch<T> {
  const { resource, signal, log, labelSelector, relistSeconds = 40 } = options;
  const store = new Map<string, T>();
  const synced = Promise.withResolvers<void>();
  let isSynced = false;
  let heardAt = performance.now();
  let turnedAt = performance.now();
  let failures = 0;
  let failuresInARow = 0;
  const keep = options.keep ?? withoutManagedFields;

  const heard = (): void => {
    heardAt = performance.now();
    turnedAt = heardAt;
  };
  const put = (object: T): void => {
    const { name } = object.metadata;
    const previous = store.get(name);
    if (previous !== undefined && previous.metadata.resourceVersion === object.metadata.resourceVersion) return;
    if (previous !== undefined && previous.metadata.uid !== object.metadata.uid) remove(previous);
    const kept = keep(object);
    const known = store.get(name);
    store.set(name, kept);
    options.onChange?.(known === undefined ? { type: "added", object: kept } : { type: "modified", object: kept, previous: known });
  };
  const remove = (object: T): void => {
    const previous = store.get(object.metadata.name);
    if (previous === undefined || previous.metadata.uid !== object.metadata.uid) return;
    store.delete(object.metadata.name);
    options.onChange?.({ type: "deleted", object, previous });
  };

  /** Lists everything and makes the store equal to it. Answers the version to watch from. */
  async function list(): Promise<string> {
    const unseen = new Map(store);
    let position: string | undefined;
    let version = "";
    do {
      const page = await kubernetes.listPage(
        resource,
        { labelSelector, limit: pageSize, continue: position },
        { signal, deadlineMs: listDeadlineMs },
      );
      heard();
      for (const object of page.items) {
        unseen.delete(object.metadata.name);
        put(object);
      }
      position = page.continue;
      version = page.resourceVersion;
    } while (position !== undefined);
    for (const gone of unseen.values()) remove(gone);
    isSynced = true;
    synced.resolve();
    options.onSynced?.();
    return version;
  }

  /** Watches until the server ends it. Answers the version to go on from. */
  async function watch(from: string, seconds: number): Promise<string> {
    const cut = AbortSignal.any([signal, AbortSignal.timeout(seconds * 1_000 + graceMs)]);
    let stream: Readable | undefined;
    let version = from;
    try {
      stream = await kubernetes.openWatch(resource, { labelSelector, resourceVersion: from, timeoutSeconds: seconds }, cut);
      heard();
      for await (const { type, object } of readWatchEvents<T>(stream)) {
        heard();
        version = object.metadata.resourceVersion ?? version;
        if (type === "DELETED") remove(object);
        else if (type !== "BOOKMARK") put(object);
        failuresInARow = 0;
      }
      return version;
    } finally {
      stream?.destroy();
    }
  }

  async function round(): Promise<void> {
    const end = performance.now() + relistSeconds * 1_000 * (0.85 + 0.15 * Math.random()); // replicas do not list in step
    let version = await list();
    const secondsLeft = (): number => Math.floor((end - performance.now()) / 1_000);
    for (let left = Math.max(1, secondsLeft()); left >= 1 && !signal.aborted; left = secondsLeft()) {
      const startedAt = performance.now();
      version = await watch(version, left);
      turnedAt = performance.now();
      failuresInARow = 0;
      // A server that ends every watch at once is not asked in a busy loop.
      if (turnedAt - startedAt < 1_000) await delay(1_000, undefined, { signal });
    }
  }

  async function loop(): Promise<void> {
    while (!signal.aborted) {
      try {
        await round();
      } catch (error) {
        turnedAt = performance.now();
        if (signal.aborted) break;
        if (isExpired(error)) {
          log.debug({ kind: resource.kind }, "the watch is too old for the API server: listing anew");
          failuresInARow += 1;
          if (failuresInARow === 1) continue;
        } else {
          failures += 1;
          failuresInARow += 1;
          log.warn({ err: error, kind: resource.kind }, "the watch broke: listing anew");
        }
        await delay(pauseAfter(error, failuresInARow), undefined, { signal }).catch(() => undefined);
      }
    }
    synced.resolve();
  }

  return {
    store,
    synced: synced.promise,
    isSynced: () => isSynced,
    silentMs: () => performance.now() - heardAt,
    stuckMs: () => performance.now() - turnedAt,
    failures: () => failures,
    ended: loop(),
  };
}

/** 410: the version is no longer known. Nothing is wrong, a new list is all it takes. */
function isExpired(error: unknown): boolean {
  return error instanceof KubernetesError && (error.status === 410 || error.reason === "Expired" || error.reason === "Gone");
}

/** Milliseconds to wait after the n-th failure in a row: doubling with full jitter, at least what the server asked for. */
function pauseAfter(error: unknown, failuresInARow: number): number {
  const ceiling = Math.min(maxPauseMs, minPauseMs * 2 ** Math.min(failuresInARow, 10));
  const asked = error instanceof KubernetesError ? (error.retryAfterMs ?? 0) : 0;
  return Math.max(minPauseMs / 2, Math.random() * ceiling, Math.min(asked, 30_000));
}

function withoutManagedFields<T extends KubernetesObject>(object: T): T {
  const metadata = { ...object.metadata } as T["metadata"] & { managedFields?: unknown };
  delete metadata.managedFields;
  return { ...object, metadata };
}
