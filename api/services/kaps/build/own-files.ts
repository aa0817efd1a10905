import type { SourceFile } from "./build-contract.ts";
import { isScript, scriptExtensions } from "./file-paths.ts";

/** The kap's files by path. */
export type OwnFiles = ReadonlyMap<string, string>;

export function ownFiles(files: SourceFile[]): OwnFiles {
  return new Map(files.map((file) => [file.path, file.content]));
}

const completions = [...scriptExtensions, ".json"];
/** TypeScript programs may import `./a.js` and mean `./a.ts`. */
const emittedAs: Record<string, string[]> = { ".js": [".ts", ".tsx"], ".jsx": [".tsx"], ".mjs": [".mts"] };

/**
 * The file that the relative `specifier` means inside `importer`: the exact path, a TypeScript source behind a `.js` name, a missing
 * extension completed, or a folder's index file. Undefined when there is none; null when it leaves the kap's folder.
 */
export function resolveOwnFile(files: OwnFiles, importer: string, specifier: string): string | undefined | null {
  const path = joinPath(importer, specifier);
  if (path === null) return null;
  if (path !== "" && !specifier.endsWith("/")) {
    if (files.has(path)) return path;
    const extension = /\.[a-z]+$/.exec(path)?.[0] ?? "";
    for (const source of emittedAs[extension] ?? []) {
      const candidate = path.slice(0, -extension.length) + source;
      if (files.has(candidate)) return candidate;
    }
    for (const completion of completions) if (files.has(path + completion)) return path + completion;
  }
  const folder = path === "" ? "" : `${path}/`;
  for (const completion of completions) if (files.has(`${folder}index${completion}`)) return `${folder}index${completion}`;
  return undefined;
}

/** The path that `specifier` names from `importer`'s folder, "" for the kap's own folder; null when it lies outside. */
function joinPath(importer: string, specifier: string): string | null {
  const segments = importer.split("/").slice(0, -1);
  for (const segment of specifier.split("/")) {
    if (segment === "" || segment === ".") continue;
    if (segment !== "..") segments.push(segment);
    else if (segments.pop() === undefined) return null;
  }
  return segments.join("/");
}

export type OwnLoader = "ts" | "tsx" | "js" | "jsx" | "json" | "text";

/** How a file is read when it is imported: `with {type}` decides, then the extension; what is neither program nor JSON is text. */
export function ownLoader(path: string, attribute: string | undefined): OwnLoader {
  if (attribute === "text" || attribute === "json") return attribute;
  if (path.endsWith(".json")) return "json";
  if (!isScript(path)) return path.endsWith(".cjs") ? "js" : path.endsWith(".cts") ? "ts" : "text";
  if (path.endsWith(".tsx")) return "tsx";
  if (path.endsWith(".jsx")) return "jsx";
  return path.endsWith("ts") ? "ts" : "jsx";
}
