import ts from "typescript";
import { readSpecifier } from "../import-specifier.ts";
import { ownLoader } from "../own-files.ts";

/** The packages of a kap as the checker needs them (plain data: it crosses to a worker thread). */
export interface TypePackages {
  pins: [importName: string, pin: { name: string; version: string }][];
  /** By `name@version`: where it is unpacked, and the `name@version` behind each of its imports. */
  tree: [key: string, { name: string; root: string; dependencies: [importName: string, key: string][] }][];
}

/** Virtual folder of the kap's files inside a program. */
export const ownRoot = "/kap/";

type OwnResolver = (importer: string, specifier: string) => string | undefined | null;
type Resolved = ts.ResolvedModuleWithFailedLookupLocations;

const unresolved: Resolved = { resolvedModule: undefined };
/** So many look-ups are remembered before they are forgotten together. */
const maxKept = 50_000;

/** Finds what import statements mean for the type checker: the kap's own files, text and JSON, and the types that packages ship. */
export function createTypeImports(setup: { isReadable(path: string): boolean; textModulePath: string; options: ts.CompilerOptions }) {
  /** Package folders are named by their content, so what an import meant once it means always. */
  let cache = freshCache();
  let kept = 0;
  const host: ts.ModuleResolutionHost = {
    fileExists: (path) => setup.isReadable(path) && ts.sys.fileExists(path),
    readFile: (path) => (setup.isReadable(path) ? ts.sys.readFile(path) : undefined),
    directoryExists: (path) => setup.isReadable(`${path}/`) && ts.sys.directoryExists(path),
  };

  function freshCache(): ts.ModuleResolutionCache {
    return ts.createModuleResolutionCache(ownRoot, (path) => path, setup.options);
  }

  function inFolder(specifier: string, folder: string): ts.ResolvedModuleFull | undefined {
    return ts.resolveModuleName(specifier, `${folder}/importer.ts`, setup.options, host, cache).resolvedModule;
  }

  function inPackage(packages: TypePackages, key: string | undefined, subpath: string): ts.ResolvedModuleFull | undefined {
    const owner = packages.tree.find(([each]) => each === key)?.[1];
    if (owner === undefined) return undefined;
    const found = inFolder(owner.name + subpath, owner.root);
    if (found && found.extension !== ts.Extension.Js && found.extension !== ts.Extension.Mjs && found.extension !== ts.Extension.Cjs)
      return found;
    // A pinned @types package speaks for one that ships no types.
    const typesName = `@types/${owner.name.replace(/^@/, "").replace("/", "__")}`;
    const types = packages.tree.find(([, each]) => each.name === typesName)?.[1];
    return (types && inFolder(typesName + subpath, types.root)) ?? found;
  }

  function fromOwn(
    literal: ts.StringLiteralLike,
    importer: string,
    packages: TypePackages,
    resolveOwn: OwnResolver,
  ): ts.ResolvedModuleFull | undefined {
    const target = readSpecifier(literal.text, new Map(packages.pins));
    if (target.kind === "package") return inPackage(packages, `${target.name}@${target.version}`, target.subpath);
    if (target.kind !== "own") return undefined;
    const path = resolveOwn(importer, target.specifier);
    if (path === undefined || path === null) return undefined;
    if (/\.d\.[mc]?ts$/.test(path)) return { resolvedFileName: ownRoot + path, extension: ts.Extension.Dts };
    const loader = ownLoader(path, typeAttribute(literal));
    if (loader === "text") return { resolvedFileName: setup.textModulePath, extension: ts.Extension.Dts };
    return {
      resolvedFileName: ownRoot + path,
      extension: loader === "json" ? ts.Extension.Json : (/\.[a-z]+$/.exec(path)?.[0] ?? ts.Extension.Ts),
    };
  }

  function fromPackage(specifier: string, importer: string, packages: TypePackages): ts.ResolvedModuleFull | undefined {
    const owner = packages.tree.find(([, each]) => importer.startsWith(`${each.root}/`))?.[1];
    if (owner === undefined || /^[./#]/.test(specifier)) return inFolder(specifier, importer.slice(0, importer.lastIndexOf("/")));
    const [, name = specifier, subpath = ""] = /^(@[^/]+\/[^/]+|[^/]+)(\/.*)?$/.exec(specifier) ?? [];
    if (name === owner.name) return inFolder(specifier, owner.root);
    return inPackage(packages, owner.dependencies.find(([each]) => each === name)?.[1], subpath);
  }

  return {
    /** The look-ups remembered so far, for one program; starts afresh when they are too many. */
    cache(): ts.ModuleResolutionCache {
      if (kept > maxKept) {
        cache = freshCache();
        kept = 0;
      }
      return cache;
    },
    resolve(literal: ts.StringLiteralLike, containingFile: string, packages: TypePackages, resolveOwn: OwnResolver): Resolved {
      kept++;
      const isOwn = containingFile.startsWith(ownRoot);
      const found = isOwn
        ? fromOwn(literal, containingFile.slice(ownRoot.length), packages, resolveOwn)
        : fromPackage(literal.text, containingFile, packages);
      return found === undefined ? unresolved : { resolvedModule: found };
    },
  };
}

/** The `type` of `import … with {type: "…"}`. */
function typeAttribute(literal: ts.StringLiteralLike): string | undefined {
  const { parent } = literal;
  if (parent === undefined || !(ts.isImportDeclaration(parent) || ts.isExportDeclaration(parent))) return undefined;
  for (const { name, value } of parent.attributes?.elements ?? []) {
    if (name.text === "type" && ts.isStringLiteral(value)) return value.text;
  }
  return undefined;
}
