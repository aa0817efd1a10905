import { createHash } from "node:crypto";
import * as esbuild from "esbuild";
import { BuildRefused, type Diagnostic, fileError } from "./build-contract.ts";
import { makeCodeCache } from "./code-cache.ts";
import { type ModuleNames, outsideRefusal, ownNamespace, programErrors } from "./display-path.ts";
import { type Pins, readSpecifier } from "./import-specifier.ts";
import { type OwnFiles, ownLoader, resolveOwnFile } from "./own-files.ts";
import { missingInPackage, packageImports, resolveInPackage } from "./packages/package-imports.ts";
import type { PackageTree } from "./packages/package-tree.ts";
import type { Scan } from "./scan.ts";

export interface Bundle {
  bundle: string;
  bundle_map: string;
  code_cache: Uint8Array | null;
  bundle_sha256: string;
  warnings: Diagnostic[];
}

export interface BundleInput {
  files: OwnFiles;
  pins: Pins;
  scan: Scan;
  tree: PackageTree;
  names: ModuleNames;
  /** Where packages are unpacked; every path in the output is relative to it, so no machine's folders show. */
  unpackFolder: string;
  jsxImportSource: string;
}

/** Names that only the wrapper declares. A program's own use of them is renamed by esbuild or shadowed. */
const tableName = "__kap_entries";
const metaName = "__kap_meta";
const tableNamespace = "kap-table";
const platformNamespace = "kap-platform";

/** What `import … from "kap"` reads: the object that the runtime installs before the first module evaluates. */
const platformModule = `const kap = globalThis[Symbol.for("kap")]; export const db = kap.db, store = kap.store, secrets = kap.secrets; export default kap;`;

/**
 * Bundles all entries into one classic script (see `BuildResult`). Dynamic imports become lazily evaluated modules, so each entry, and what
 * it imports, evaluates on its first call; top-level await works. Throws `BuildRefused`.
 */
export async function bundle(input: BundleInput): Promise<Bundle> {
  const { names, scan, unpackFolder } = input;
  const result = await esbuild
    .build({
      entryPoints: [{ in: tableNamespace, out: "bundle" }],
      bundle: true,
      write: false,
      metafile: true,
      format: "esm",
      platform: "browser",
      // Worker-style builds of packages first; esbuild adds "import", "require" and "default" by itself.
      conditions: ["workerd", "worker", "browser"],
      mainFields: ["browser", "module", "main"],
      target: "es2024",
      supported: { "dynamic-import": false },
      define: { "import.meta": metaName, "process.env.NODE_ENV": '"production"' },
      banner: { js: `"use strict";(async()=>{const ${metaName}={url:"file:///kap/"};let ${tableName};` },
      footer: { js: `return ${tableName}})()` },
      jsx: "automatic",
      jsxImportSource: input.jsxImportSource,
      // An inline configuration keeps esbuild from reading tsconfig.json files on disk.
      tsconfigRaw: "{}",
      loader: { ".css": "text", ".txt": "text", ".html": "text", ".svg": "text", ".sql": "text", ".wasm": "binary" },
      minifySyntax: true,
      minifyWhitespace: true,
      legalComments: "none",
      charset: "utf8",
      sourcemap: "external",
      sourcesContent: false,
      outdir: unpackFolder,
      absWorkingDir: unpackFolder,
      logLevel: "silent",
      logLimit: 50,
      plugins: [ownImports(input), packageImports(names)],
    })
    .catch((failure: { errors?: esbuild.Message[] }) => {
      const errors = programErrors(failure).map((message) => explainMissing(names.error(message)));
      throw new BuildRefused(errors.map((error) => ({ ...error, file: error.file || (scan.entries[0] ?? "") })));
    });
  refuseOutsideReads(result.metafile, input);
  const script = result.outputFiles.find((file) => file.path.endsWith(".js"))?.text ?? "";
  const map = result.outputFiles.find((file) => file.path.endsWith(".map"))?.text ?? "";
  const code = script.trimEnd();
  return {
    bundle: code,
    bundle_map: renameSources(map, names),
    code_cache: makeCodeCache(code),
    bundle_sha256: createHash("sha256").update(code).digest("hex"),
    warnings: result.warnings
      .map((message) => ({ ...names.error(message), severity: "warning" as const }))
      .filter((warning) => input.files.has(warning.file)),
  };
}

/** Serves the table of entries, the kap's own files from memory, and the platform's module. */
function ownImports(input: BundleInput): esbuild.Plugin {
  const { files, pins, scan, tree } = input;
  const lazily = (path: string) => `()=>import(${JSON.stringify(path)})`;
  // Modules that no entry reaches are read too and dropped again by tree shaking: their missing names and broken JSON refuse the save as well.
  const table = [
    `${tableName}={__proto__:null,${scan.entries.map((path) => `[${JSON.stringify(path)}]:${lazily(path)}`).join(",")}};`,
    ...scan.modules.map((path, index) => `const unreached${index}=${lazily(path)};`),
  ];
  return {
    name: "own-files",
    setup(build) {
      build.onResolve({ filter: new RegExp(`^${tableNamespace}$`) }, ({ kind }) =>
        kind === "entry-point" ? { path: tableNamespace, namespace: tableNamespace } : undefined,
      );
      build.onLoad({ filter: /.*/, namespace: tableNamespace }, () => ({ contents: table.join(""), loader: "js" }));
      build.onResolve({ filter: /.*/, namespace: tableNamespace }, ({ path }) => ({ path, namespace: ownNamespace }));
      build.onResolve({ filter: /.*/, namespace: ownNamespace }, async (args) => {
        const target = readSpecifier(args.path, pins);
        if (target.kind === "refused") return { errors: [{ text: target.message }] };
        if (target.kind === "platform") return { path: "kap", namespace: platformNamespace };
        if (target.kind === "own") return { path: resolveOwnFile(files, args.importer, target.specifier) ?? "", namespace: ownNamespace };
        const owner = tree.get(`${target.name}@${target.version}`);
        if (owner === undefined) throw new Error(`${target.name}@${target.version} is imported but not in the tree`);
        return resolveInPackage(build, owner, target.subpath, args);
      });
      build.onLoad({ filter: /.*/, namespace: ownNamespace }, ({ path, with: attributes }) => ({
        contents: files.get(path) ?? "",
        loader: ownLoader(path, attributes.type),
      }));
      build.onLoad({ filter: /.*/, namespace: platformNamespace }, () => ({ contents: platformModule, loader: "js" }));
    },
  };
}

/** Whatever way a package found (`main`, `browser`, absolute or `..` paths): nothing outside the packages' folders gets out. */
function refuseOutsideReads(metafile: esbuild.Metafile, { names, scan }: BundleInput): void {
  const [main = ""] = scan.entries;
  const namespaces = new RegExp(`^(?:${tableNamespace}|${platformNamespace}|${ownNamespace}|kap-empty|\\(disabled\\)):|^<runtime>$`);
  for (const path of Object.keys(metafile.inputs)) {
    if (!namespaces.test(path) && names.display(path) === null) throw new BuildRefused([fileError(main, outsideRefusal)]);
  }
  for (const output of Object.values(metafile.outputs)) {
    const external = output.imports.find((each) => each.external && each.kind === "import-statement");
    if (external)
      throw new BuildRefused([
        fileError(main, `A package imports ${JSON.stringify(external.path)}, which cannot be bundled. Use another package.`),
      ]);
  }
}

/** esbuild's "Could not resolve" says nothing about where a package's name would have to come from. */
function explainMissing<T extends { file: string; message: string }>(error: T): T {
  const [, name] = /^Could not resolve "([^"]+)"/.exec(error.message) ?? [];
  const [, owner] = /^npm:(@?[^@]+@[^/]+)\//.exec(error.file) ?? [];
  if (name === undefined || owner === undefined) return error;
  return { ...error, message: missingInPackage(owner, name) };
}

function renameSources(text: string, names: ModuleNames): string {
  const map = JSON.parse(text) as { sources: string[] };
  map.sources = map.sources.map((source) => names.display(source) ?? "kap:platform");
  return JSON.stringify(map);
}
