/** Random bytes from the host's generator, drawn in blocks so that small wishes cost no crossing. */
import { syncBytes } from "./host.ts";
import { U8 } from "./primordials.ts";

const blockSize = 1024;
let block = new U8(0);
let used = 0;

/** `count` fresh random bytes (at most 65,536). */
export function randomBytes(count: number): Uint8Array<ArrayBuffer> {
  if (count > blockSize / 4) return new U8(syncBytes("random", `${count}`));
  if (used + count > block.length) {
    block = new U8(syncBytes("random", `${blockSize}`));
    used = 0;
  }
  const bytes = new U8(count);
  for (let index = 0; index < count; index++) {
    bytes[index] = block[used] as number;
    // What has been given out is not kept.
    block[used++] = 0;
  }
  return bytes;
}
