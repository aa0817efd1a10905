import { SourceMap, type SourceMapPayload } from "node:module";

const kitFrame = /^\s*at .*kapstone:guest.*$\n?/gm;
const bundleFrame = /kap:bundle:(\d+):(\d+)/g;

/** The name the bundle is compiled under; frames of the program carry it until they are mapped. */
export const bundleName = "kap:bundle";

/**
 * A function that rewrites the frames of a stack from the bundle to the author's files (`src/a.ts:3:5`), and drops the web API's own frames.
 * The map is decoded on the first stack that needs it. A map that cannot be read leaves the frames as they are.
 */
export function stackMapper(mapJson: Buffer | null): (stack: string) => string {
  let map: SourceMap | null | undefined;
  const load = (): SourceMap | null => {
    if (map !== undefined) return map;
    try {
      map = mapJson === null ? null : new SourceMap(JSON.parse(mapJson.toString("utf8")) as SourceMapPayload);
    } catch {
      map = null;
    }
    return map;
  };
  return (stack) =>
    stack.replace(kitFrame, "").replace(bundleFrame, (frame, line: string, column: string) => {
      const entry = load()?.findEntry(Number(line) - 1, Number(column) - 1);
      if (!entry || !("originalSource" in entry) || typeof entry.originalSource !== "string") return frame;
      return `${entry.originalSource.replace(/^(?:\.\.?\/)+/, "")}:${entry.originalLine + 1}:${entry.originalColumn + 1}`;
    });
}
