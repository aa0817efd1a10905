import type { Deps } from "../../deps.ts";
import { Refusal } from "../../http/refusal.ts";
import type { KapRow } from "../kaps/kap.ts";
import { listAll } from "./file-tar.ts";

const mebibyte = 1024 * 1024;
const freshMs = 60_000;

/** Sizes are measured by listing the bucket, at most once a minute and kap in each process; puts in between are added to what was measured. */
const measured = new Map<string, { at: number; bytes: number }>();
const maxKept = 10_000;

/** The bytes of a kap's file store, at most a minute old, plus what this process has put since. */
export async function storeBytes(deps: Deps, bucket: string): Promise<number> {
  const known = measured.get(bucket);
  if (known && Date.now() - known.at < freshMs) return known.bytes;
  let bytes = 0;
  for await (const object of listAll(deps.objects, bucket)) bytes += object.sizeBytes;
  if (measured.size >= maxKept) measured.clear();
  measured.set(bucket, { at: Date.now(), bytes });
  return bytes;
}

/**
 * Refuses a put that would take the store over its size (decided §7.2: 10 GiB unless configured otherwise). A measure a minute old, so the store can
 * end up over it by what several replicas take in that minute.
 */
export async function checkStoreQuota(deps: Deps, kap: KapRow, addedBytes: number): Promise<void> {
  const limit = deps.config.storeQuotaMb * mebibyte;
  const bytes = await storeBytes(deps, kap.bucket);
  if (bytes + addedBytes > limit) {
    throw new Refusal(
      422,
      "QUOTA_EXCEEDED",
      `the kap's file store holds ${bytes} of ${limit} bytes: delete files, or ask the operator for more`,
      {
        details: { used_bytes: bytes, limit_bytes: limit },
      },
    );
  }
  const known = measured.get(kap.bucket);
  if (known) known.bytes += addedBytes;
}
