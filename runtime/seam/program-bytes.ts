import { createHash } from "node:crypto";

/**
 * A program as it travels: bundle, source map and code cache one after another as they are, beside the signed or framed text that gives their
 * lengths in bytes (0: there is none). Nothing of it is escaped, encoded or parsed on the way to the isolate.
 */
export interface ProgramSizes {
  bundle_bytes: number;
  map_bytes: number;
  cache_bytes: number;
}

/** What a child makes of them. The map is text of JSON, not decoded before a stack needs it; the cache is V8's, of this bundle. */
export interface ProgramParts {
  bundle: string;
  map: Buffer | null;
  cache: ArrayBuffer | null;
}

const lengthOf = (sizes: ProgramSizes): number => sizes.bundle_bytes + sizes.map_bytes + sizes.cache_bytes;

/** Whether the bytes are those a digest (SHA-256, lowercase hex) and lengths speak of. */
export function isProgram(program: Buffer, sizes: ProgramSizes & { sha256: string }): boolean {
  return program.length === lengthOf(sizes) && createHash("sha256").update(program).digest("hex") === sizes.sha256;
}

/** Cuts the bytes into parts of their own: nothing of `program` is kept. */
export function cutProgram(program: Buffer, sizes: ProgramSizes): ProgramParts {
  const mapEnd = sizes.bundle_bytes + sizes.map_bytes;
  return {
    bundle: program.toString("utf8", 0, sizes.bundle_bytes),
    map: sizes.map_bytes === 0 ? null : Buffer.from(program.subarray(sizes.bundle_bytes, mapEnd)),
    cache: sizes.cache_bytes === 0 ? null : new Uint8Array(program.subarray(mapEnd, mapEnd + sizes.cache_bytes)).buffer,
  };
}
