import type { Loader, Message, Metafile } from "esbuild";
import * as esbuild from "esbuild";
import { type BuildError, BuildRefused } from "./build-contract.ts";
import { moduleNames, ownNamespace, programErrors } from "./display-path.ts";
import { isScript } from "./file-paths.ts";
import { type Pins, readSpecifier } from "./import-specifier.ts";
import { type OwnFiles, ownLoader, resolveOwnFile } from "./own-files.ts";
import type { ExactPackage } from "./packages/package-tree.ts";

/** What a look at every program file, each on its own, has found. */
export interface Scan {
  /** Program files with a default export, in path order. */
  entries: string[];
  /** Program files without one. */
  modules: string[];
  /** Program files that are no programs here: others import them as text, and they would not build. */
  texts: string[];
  /** npm packages that some file imports as a value, in name order. */
  packages: ExactPackage[];
  /** Where each of them (`name@version`) is first imported. */
  places: ReadonlyMap<string, { file: string; line: number; column: number }>;
}

/**
 * Parses every program file and checks each of its imports without reading any package. Throws `BuildRefused` with all syntax errors,
 * missing files and refused imports of all files, reachable or not.
 */
export async function scan(files: OwnFiles, pins: Pins, jsxImportSource: string): Promise<Scan> {
  const first = await scanPrograms(files, [], pins, jsxImportSource);
  if (first.errors.length === 0) return first;
  // A page's own script, imported as text, may be anything: look again without such files.
  const texts = [...first.asText]
    .filter((path) => isScript(path) && !first.asModule.has(path) && first.errors.some(({ file }) => file === path))
    .sort();
  const second = texts.length > 0 ? await scanPrograms(files, texts, pins, jsxImportSource) : first;
  if (second.errors.length > 0) throw new BuildRefused(second.errors);
  return second;
}

/** A scan, the errors it met, and how the kap's own files import each other. */
interface Look extends Scan {
  errors: BuildError[];
  asText: ReadonlySet<string>;
  asModule: ReadonlySet<string>;
}

async function scanPrograms(files: OwnFiles, texts: string[], pins: Pins, jsxImportSource: string): Promise<Look> {
  const scripts = [...files.keys()].filter((path) => isScript(path) && !texts.includes(path)).sort();
  const asText = new Set<string>();
  const asModule = new Set<string>();
  const packages = new Map<string, ExactPackage>();
  const importers = new Map<string, { importer: string; specifier: string }>();
  const plugin: esbuild.Plugin = {
    name: "scan",
    setup(build) {
      build.onResolve({ filter: /.*/ }, ({ kind, path, importer, with: attributes }) => {
        if (kind === "entry-point") return { path: scripts[Number(path)] ?? "", namespace: ownNamespace };
        const refusal = attributeProblem(attributes) ?? checkImport(path, importer, attributes.type === "text");
        return refusal === null ? { path, external: true } : { errors: [{ text: refusal }] };
      });
      build.onLoad({ filter: /.*/, namespace: ownNamespace }, ({ path }) => ({
        contents: files.get(path) ?? "",
        loader: ownLoader(path, undefined) as Loader,
      }));
    },
  };

  function checkImport(specifier: string, importer: string, isText: boolean): string | null {
    const target = readSpecifier(specifier, pins);
    if (target.kind === "refused") return isJsxRuntime(specifier, jsxImportSource) ? jsxRefusal(jsxImportSource) : target.message;
    if (target.kind === "package") {
      const key = `${target.name}@${target.version}`;
      packages.set(key, { name: target.name, version: target.version });
      if (!importers.has(key)) importers.set(key, { importer, specifier });
    }
    if (target.kind !== "own") return null;
    const found = resolveOwnFile(files, importer, target.specifier);
    if (found) (isText ? asText : asModule).add(found);
    return ownFileProblem(found, target.specifier);
  }

  let errors: BuildError[] = [];
  const outputs: Metafile["outputs"] = await esbuild
    .build({
      ...scanOptions,
      // By number: esbuild reads a * in an entry's name as a pattern.
      entryPoints: scripts.map((_, index) => String(index)),
      jsxImportSource,
      plugins: [plugin],
    })
    .then(
      ({ metafile }) => metafile.outputs,
      (failure: { errors?: Message[] }) => {
        errors = inOrder(programErrors(failure).map(moduleNames(new Map(), "/").error));
        return {};
      },
    );
  const withDefault = new Set<string>();
  for (const { entryPoint, exports } of Object.values(outputs)) {
    if (entryPoint !== undefined && exports.includes("default")) withDefault.add(entryPoint.slice(ownNamespace.length + 1));
  }
  return {
    entries: scripts.filter((path) => withDefault.has(path)),
    modules: scripts.filter((path) => !withDefault.has(path)),
    packages: [...packages.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, each]) => each),
    texts,
    errors,
    asText,
    asModule,
    places: new Map([...importers].map(([key, { importer, specifier }]) => [key, placeOf(files.get(importer) ?? "", importer, specifier)])),
  };
}

const scanOptions = {
  bundle: true,
  write: false,
  metafile: true,
  format: "esm",
  platform: "browser",
  target: "es2024",
  outdir: "/scan",
  absWorkingDir: "/",
  logLevel: "silent",
  logLimit: 50,
  jsx: "automatic",
  tsconfigRaw: "{}",
} as const satisfies esbuild.BuildOptions;

/** Why a relative import cannot be followed, or null when it can. */
function ownFileProblem(found: string | undefined | null, specifier: string): string | null {
  if (found === null) return `"${specifier}" leads outside of the kap's folder. Import files of the kap only.`;
  if (found === undefined)
    return `"${specifier}" is not among the files of the kap (tried as it is, with .ts, .tsx, .js, .json and as a folder with an index file). Add the file or correct the path.`;
  return null;
}

function attributeProblem(attributes: Record<string, string>): string | null {
  const unknown = Object.entries(attributes).find(([key, value]) => key !== "type" || (value !== "json" && value !== "text"));
  return unknown === undefined
    ? null
    : `The import attribute ${unknown[0]}: "${unknown[1]}" is not known; use with { type: "json" } or with { type: "text" }.`;
}

function isJsxRuntime(specifier: string, jsxImportSource: string): boolean {
  return specifier === `${jsxImportSource}/jsx-runtime`;
}

function jsxRefusal(source: string): string {
  return `JSX needs a package that makes elements: pin "${source}" in package.json, or name another one at the top of the file: /** @jsxImportSource npm:hono@4.6.0/jsx */ (with an exact version).`;
}

/** By file and place, each once. */
function inOrder(errors: BuildError[]): BuildError[] {
  const unique = new Map(errors.map((error) => [JSON.stringify(error), error]));
  return [...unique.values()].sort((a, b) => (a.file < b.file ? -1 : a.file > b.file ? 1 : a.line - b.line || a.column - b.column));
}

/** The first place of a quoted specifier in a file; esbuild tells places only with errors. */
function placeOf(text: string, file: string, specifier: string): { file: string; line: number; column: number } {
  const found = Math.max(text.indexOf(`"${specifier}"`), text.indexOf(`'${specifier}'`), 0);
  const before = text.slice(0, found).split("\n");
  return { file, line: before.length, column: (before.at(-1)?.length ?? 0) + 1 };
}
