import { randomFillSync } from "node:crypto";

const pool = new Uint8Array(10 * 256);
let poolOffset = pool.length;
let lastMs = 0;
let counter = 0;

const hex: string[] = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/**
 * A new UUIDv7 (RFC 9562 §5.7): 48 bits of Unix milliseconds, a 12-bit counter that keeps the ids of one process in order
 * within a millisecond, and 62 random bits. Ids are made in code, never by the database, so a row can be named before it is written.
 */
export function newId(nowMs: number = Date.now()): string {
  if (nowMs > lastMs) {
    lastMs = nowMs;
    counter = 0;
  } else if (++counter > 0xfff) {
    lastMs += 1;
    counter = 0;
  }
  if (poolOffset + 8 > pool.length) {
    randomFillSync(pool);
    poolOffset = 0;
  }
  const at = poolOffset;
  poolOffset += 8;
  const byte = (index: number): string => hex[pool[at + index] ?? 0] as string;
  const time = lastMs.toString(16).padStart(12, "0");
  const variant = hex[((pool[at] ?? 0) & 0x3f) | 0x80] as string;
  return `${time.slice(0, 8)}-${time.slice(8)}-7${counter.toString(16).padStart(3, "0")}-${variant}${byte(1)}-${byte(2)}${byte(3)}${byte(4)}${byte(5)}${byte(6)}${byte(7)}`;
}

const uuidPattern = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Whether a text has the form of a UUID. An id that has not is never sent to the database: it names nothing. */
export function isId(text: string): boolean {
  return uuidPattern.test(text);
}
