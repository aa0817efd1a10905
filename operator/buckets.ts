import { setTimeout as delay } from "node:timers/promises";
import type { ObjectStore } from "#platform/objects/store.ts";
import type { PartState } from "./status.ts";

/** How long a bucket that was there is believed to be; asked anew a little earlier by some, so that not all are asked at once. */
const believedMs = 20 * 60_000;

const answerMs = 10_000;

/** Looks after the kaps' buckets, now and then: each look is a request to the store. */
export interface Buckets {
  /** Makes the bucket where it is missing. Throws nothing: a store that cannot be asked is a state. */
  ensure(bucket: string): Promise<PartState>;
  forget(bucket: string): void;
}

export function createBuckets(objects: ObjectStore | null): Buckets {
  const seenUntil = new Map<string, number>();
  return {
    async ensure(bucket) {
      if (objects === null) return { status: "Unknown", reason: "NotLookedAfter", message: "objects are kept as files of the API" };
      if (performance.now() < (seenUntil.get(bucket) ?? 0)) return bucketReady;
      try {
        await Promise.race([objects.ensureBucket(bucket), late()]);
        seenUntil.set(bucket, performance.now() + believedMs * (0.75 + Math.random() / 4));
        return bucketReady;
      } catch (error) {
        const cause = error instanceof Error ? error.message || error.name : String(error);
        return { status: "False", reason: "StoreUnavailable", message: `the bucket cannot be looked at: ${cause.slice(0, 300)}` };
      }
    },
    forget: (bucket) => void seenUntil.delete(bucket),
  };
}

/** The store's own deadlines are those of large objects. */
async function late(): Promise<never> {
  await delay(answerMs, undefined, { ref: false });
  throw new Error(`no answer within ${answerMs} ms`);
}

const bucketReady: PartState = { status: "True", reason: "Present", message: "the bucket is there" };
