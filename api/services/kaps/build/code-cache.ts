import { Script } from "node:vm";

/**
 * V8 takes a code cache only from a process with its own flags. These are those of a runtime's child that it compares; `code-cache.test.ts` fails when
 * they drift apart.
 */
export const codeCacheFlags = ["--no-node-snapshot", "--disallow-code-generation-from-strings"];

/** Beyond this a cache is more than a claim should carry. */
const maxBundleLength = 2 * 1024 * 1024;

/**
 * V8's cache of a bundle's compiled code. The bundle is compiled and never run: what programs do reaches no cache, and a runtime gives none back.
 * Functions that V8 compiles at their first call are not in it: with them it has five times the bundle's size, and costs a claim more than it saves.
 * Null for a bundle that is too large, or that V8 does not read (the runtime then says why).
 */
export function makeCodeCache(bundle: string): Uint8Array | null {
  if (bundle.length > maxBundleLength) return null;
  try {
    return new Uint8Array(new Script(bundle, { filename: "kap:bundle" }).createCachedData());
  } catch {
    return null;
  }
}
