import { readFileSync } from "node:fs";
import { dirname } from "node:path";
import ts from "typescript";
import type { Diagnostic } from "../build-contract.ts";
import { isDeclaration, isScript } from "../file-paths.ts";
import { resolveOwnFile } from "../own-files.ts";
import { createTypeImports, ownRoot, type TypePackages } from "./type-imports.ts";

/** One type check: all files of a kap and the packages it can import. */
export interface TypeCheckInput {
  files: [path: string, content: string][];
  /** Program files that are only imported as text; nothing about them is checked. */
  unchecked: string[];
  packages: TypePackages;
  jsxImportSource: string;
}

export type TypeChecker = (input: TypeCheckInput) => Diagnostic[];

const kapTypesPath = "/kap-types/kap.d.ts";
const textModulePath = "/kap-types/text.d.ts";
const textModule = "declare const text: string;\nexport default text;\n";
/** Most diagnostics of one build, and the most characters of one. */
const maxDiagnostics = 200;
const maxMessageLength = 2_000;
/** Package declarations that stay parsed between builds, in characters of source. */
const maxKeptCharacters = 24_000_000;

const libFolder = `${dirname(ts.getDefaultLibFilePath({}))}/`;
/** A kap is no browser page; its globals are those of kap.d.ts. Packages that ask for these libraries get empty ones. */
const foreignLibrary = /^lib\.(?:dom|webworker|scripthost)\b/;

const baseOptions: ts.CompilerOptions = {
  target: ts.ScriptTarget.ESNext,
  module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
  moduleDetection: ts.ModuleDetectionKind.Force,
  customConditions: ["workerd", "worker", "browser"],
  lib: ["lib.esnext.d.ts"],
  types: [],
  jsx: ts.JsxEmit.ReactJSX,
  strict: true,
  noImplicitAny: false, // a handler may leave its parameters without types, as that of decided §7.1 does
  noEmit: true,
  skipLibCheck: true,
  allowJs: true,
  checkJs: false,
  isolatedModules: true,
  resolveJsonModule: true,
  allowImportingTsExtensions: true,
};

/** "Is not a module": packages with types only for a bare name are `any`, as those without types are, which is no error of the kap's author. */
const untypedModule = 2306;

/**
 * A type checker that stays warm: parsed and bound library files (and, up to a bound, package declarations) live on, a kap's own files are
 * dropped after its check. `unpackFolder` is the only place on disk, besides TypeScript's own libraries, that is ever read.
 */
export function createTypeChecker(kapTypes: URL, unpackFolder: string): TypeChecker {
  const libraries = new Map<string, ts.SourceFile | undefined>();
  const declarations = new Map<string, ts.SourceFile | undefined>();
  let keptCharacters = 0;
  const virtual = new Map([
    [kapTypesPath, readFileSync(kapTypes, "utf8")],
    [textModulePath, textModule],
  ]);
  const isReadable = (path: string) => path.startsWith(`${unpackFolder}/`) && !path.split("/").includes("..");
  const imports = createTypeImports({ isReadable, textModulePath, options: baseOptions });

  /** Folders of this machine are nothing to an author: packages go by their names. */
  const readable = (text: string) =>
    text.replaceAll(ownRoot, "").replaceAll(new RegExp(`${RegExp.escape(unpackFolder)}/[0-9a-f]+/node_modules/`, "g"), "");

  function keep(path: string, languageVersion: ts.ScriptTarget | ts.CreateSourceFileOptions): ts.SourceFile | undefined {
    const isLibrary = path.startsWith(libFolder);
    if (!isLibrary && !isReadable(path) && !virtual.has(path)) return undefined;
    const store = isLibrary || virtual.has(path) ? libraries : declarations;
    if (store.has(path)) return store.get(path);
    const text = foreignLibrary.test(path.slice(libFolder.length)) && isLibrary ? "" : (virtual.get(path) ?? ts.sys.readFile(path));
    const file = text === undefined ? undefined : ts.createSourceFile(path, text, languageVersion);
    if (store === declarations) keptCharacters += text?.length ?? 0;
    store.set(path, file);
    return file;
  }

  return (input) => {
    if (keptCharacters > maxKeptCharacters) {
      declarations.clear();
      keptCharacters = 0;
    }
    const own = new Map(input.files.map(([path, content]) => [ownRoot + path, content]));
    const ownNames = new Map(input.files);
    const options = { ...baseOptions, jsxImportSource: input.jsxImportSource };
    const host: ts.CompilerHost = {
      getSourceFile(path, languageVersion) {
        const text = own.get(path);
        return text === undefined ? keep(path, languageVersion) : ts.createSourceFile(path, text, languageVersion);
      },
      resolveModuleNameLiterals: (literals, containingFile) =>
        literals.map((literal) =>
          imports.resolve(literal, containingFile, input.packages, (importer, specifier) => resolveOwnFile(ownNames, importer, specifier)),
        ),
      getModuleResolutionCache: imports.cache,
      getDefaultLibFileName: () => `${libFolder}lib.esnext.d.ts`,
      getDefaultLibLocation: () => libFolder,
      getCurrentDirectory: () => ownRoot,
      getCanonicalFileName: (path) => path,
      useCaseSensitiveFileNames: () => true,
      getNewLine: () => "\n",
      fileExists: (path) => own.has(path) || virtual.has(path) || (isReadable(path) && ts.sys.fileExists(path)),
      readFile: (path) => own.get(path) ?? virtual.get(path) ?? (isReadable(path) ? ts.sys.readFile(path) : undefined),
      directoryExists: (path) => isReadable(`${path}/`) && ts.sys.directoryExists(path),
      realpath: (path) => path,
      writeFile: () => undefined,
    };
    const unchecked = new Set(input.unchecked.map((path) => ownRoot + path));
    const checked = [...own.keys()].filter((path) => (isScript(path) || isDeclaration(path)) && !unchecked.has(path));
    const program = ts.createProgram({ rootNames: [...checked, kapTypesPath], options, host });
    const found: Diagnostic[] = [];
    for (const path of checked) {
      const file = program.getSourceFile(path);
      if (file === undefined) continue;
      const diagnostics = isDeclaration(path) ? program.getSyntacticDiagnostics(file) : program.getSemanticDiagnostics(file);
      for (const diagnostic of diagnostics)
        if (diagnostic.code !== untypedModule) found.push(toDiagnostic(diagnostic, file, path.slice(ownRoot.length), readable));
      if (found.length >= maxDiagnostics) break;
    }
    return found.slice(0, maxDiagnostics);
  };
}

function toDiagnostic(diagnostic: ts.Diagnostic, file: ts.SourceFile, path: string, readable: (text: string) => string): Diagnostic {
  const { line, character } = file.getLineAndCharacterOfPosition(diagnostic.start ?? 0);
  const message = readable(ts.flattenDiagnosticMessageText(diagnostic.messageText, "\n")).slice(0, maxMessageLength);
  return {
    file: path,
    line: line + 1,
    column: character + 1,
    message,
    severity: diagnostic.category === ts.DiagnosticCategory.Error ? "error" : "warning",
  };
}
