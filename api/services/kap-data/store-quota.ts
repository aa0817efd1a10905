import type { Deps } from "../../deps.ts";
import { storeObjectBytes } from "../../gateway/limits.ts";
import { Refusal } from "../../http/refusal.ts";
import type { KapRow } from "../kaps/kap.ts";
import { listAll } from "./file-tar.ts";

const mebibyte = 1024 * 1024;
const freshMs = 60_000;

/** Sizes are measured by listing the bucket, at most once a minute and kap in each process; puts in between are added to what was measured. */
const measured = new Map<string, { at: number; bytes: number }>();
const maxKept = 10_000;

/** The bytes of a kap's file store, at most a minute old, plus what this process has put since. */
async function storeBytes(deps: Deps, bucket: string): Promise<number> {
  const known = measured.get(bucket);
  if (known && Date.now() - known.at < freshMs) return known.bytes;
  let bytes = 0;
  for await (const object of listAll(deps.objects, bucket)) bytes += object.sizeBytes;
  if (measured.size >= maxKept) measured.clear();
  measured.set(bucket, { at: Date.now(), bytes });
  return bytes;
}

/** Adds to what was measured. */
export function countStored(bucket: string, bytes: number): void {
  const known = measured.get(bucket);
  if (known) known.bytes += bytes;
}

/**
 * How many bytes a put of this key may have for the store to stay within its size (decided §7.2: 10 GiB unless configured otherwise); 422 `QUOTA_EXCEEDED` where those
 * declared are more. A body of unknown length (null) is let in while there is room at all: its caller stops it at that many bytes, and counts them.
 *
 * Nothing is refused by an old measure: where it would not let the put in, the store is measured anew, less what the put replaces. What lets in is a minute old, so
 * the store can end up over its size by what other replicas take in that minute.
 */
export async function roomFor(deps: Deps, kap: KapRow, key: string, declaredBytes: number | null): Promise<number> {
  const limit = deps.config.storeQuotaMb * mebibyte;
  let room = limit - (await storeBytes(deps, kap.bucket));
  if (room < (declaredBytes ?? storeObjectBytes)) {
    measured.delete(kap.bucket);
    const replaced = await deps.objects.head(kap.bucket, key);
    room = limit - (await storeBytes(deps, kap.bucket)) + (replaced?.sizeBytes ?? 0);
    if (room < (declaredBytes ?? 1)) throw storeFull(deps.config, room);
  }
  countStored(kap.bucket, declaredBytes ?? 0);
  return room;
}

/** 422: the file has more bytes than there is room for beside what the store holds. */
export function storeFull(config: Deps["config"], roomBytes: number): Refusal {
  const limitBytes = config.storeQuotaMb * mebibyte;
  const usedBytes = limitBytes - roomBytes;
  return new Refusal(
    422,
    "QUOTA_EXCEEDED",
    `the kap's file store holds ${usedBytes} of ${limitBytes} bytes beside this file: delete files, or ask the operator for more`,
    { details: { used_bytes: usedBytes, limit_bytes: limitBytes } },
  );
}
