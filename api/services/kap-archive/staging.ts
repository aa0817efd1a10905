import { createHash } from "node:crypto";
import { createWriteStream } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";

/** A folder of a transfer's own, for what must be known whole before it goes on: only its owner reads it, and it goes with the transfer. */
export interface Staging {
  path(name: string): string;
  remove(): Promise<void>;
}

export async function openStaging(): Promise<Staging> {
  const folder = await mkdtemp(join(tmpdir(), "kapstone-archive-"));
  return {
    path: (name) => join(folder, name),
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

/** Size and SHA-256 (hex) of bytes that went by. */
export interface Measure {
  size: number;
  sha256: string;
}

/** A stream that lets bytes through and knows, at their end, how many there were and their digest. */
export function measuring(): { through: Transform; result(): Measure } {
  const hash = createHash("sha256");
  let size = 0;
  const through = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      size += chunk.length;
      hash.update(chunk);
      done(null, chunk);
    },
  });
  return { through, result: () => ({ size, sha256: hash.digest("hex") }) };
}

/** Writes a stream into a file and measures it. */
export async function spool(source: AsyncIterable<unknown>, path: string, signal: AbortSignal): Promise<Measure> {
  const { through, result } = measuring();
  await pipeline(Readable.from(source, { objectMode: false }), through, createWriteStream(path, { mode: 0o600 }), { signal });
  return result();
}
