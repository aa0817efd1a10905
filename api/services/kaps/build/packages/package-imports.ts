import { isBuiltin } from "node:module";
import { join } from "node:path";
import type { OnResolveArgs, OnResolveResult, Plugin, PluginBuild } from "esbuild";
import type { ModuleNames } from "../display-path.ts";
import type { TreePackage } from "./package-tree.ts";

/** Marks a resolution that must go on with esbuild's own algorithm (exports, browser fields, extensions) instead of coming back here. */
const native = Symbol("native");

const emptyNamespace = "kap-empty";

/** Resolves `subpath` ("" or "/a/b") of `owner` by its `exports` and main fields. */
export async function resolveInPackage(
  build: PluginBuild,
  owner: TreePackage,
  subpath: string,
  args: OnResolveArgs,
): Promise<OnResolveResult> {
  const { kind, with: attributes } = args;
  const found = await build.resolve(owner.name + subpath, {
    resolveDir: owner.root,
    kind,
    namespace: "file",
    with: attributes,
    pluginData: native,
  });
  if (found.errors.length > 0) {
    const label = `${owner.name}@${owner.version}`;
    const hint = found.errors.flatMap(({ notes }) => notes.map(({ text }) => text)).find((text) => text.includes("not exported")) ?? "";
    return {
      errors: [
        { text: `The package ${label} has nothing to import as "${owner.name}${subpath}". Check the path after the name. ${hint}`.trim() },
      ],
    };
  }
  const { path, namespace, sideEffects, suffix } = found;
  return { path, namespace, sideEffects, suffix };
}

/**
 * Bare imports inside packages: each package sees its own dependencies (and what the kap pins, never what happens to lie on the disk).
 * Relative imports stay with esbuild, which is many times faster than asking here for each.
 */
export function packageImports(names: ModuleNames): Plugin {
  return {
    name: "package-imports",
    setup(build) {
      build.onResolve({ filter: /^[^./#]/, namespace: "file" }, async (args) => {
        if (args.pluginData === native) return undefined;
        const owner = names.packageOf(args.importer);
        if (owner === undefined) return undefined;
        const replaced = browserField(owner.manifest)[args.path];
        if (replaced === false) return { path: args.path, namespace: emptyNamespace };
        if (typeof replaced === "string" && replaced.startsWith(".")) {
          return resolveInPackage(build, owner, join("/", replaced), args);
        }
        const specifier = typeof replaced === "string" ? replaced : args.path;
        const [, name = specifier, subpath = ""] = /^(@[^/]+\/[^/]+|[^/]+)(\/.*)?$/.exec(specifier) ?? [];
        const dependency = owner.dependencies.get(name) ?? (owner.name === name ? owner : undefined);
        if (dependency) return resolveInPackage(build, dependency, subpath, args);
        // A `require` or `import()` inside try … catch is optional: esbuild knows, and refuses the others.
        const isOptionalForm = args.kind === "require-call" || args.kind === "require-resolve" || args.kind === "dynamic-import";
        if (
          isOptionalForm &&
          !(await build.resolve(args.path, { resolveDir: args.resolveDir, kind: args.kind, namespace: "file", pluginData: native })).path
        )
          return undefined;
        return { errors: [{ text: missingInPackage(`${owner.name}@${owner.version}`, args.path) }] };
      });
      build.onLoad({ filter: /.*/, namespace: emptyNamespace }, () => ({ contents: "module.exports = {}", loader: "js" }));
    },
  };
}

/** Why a package's import leads nowhere, for the author of the kap. */
export function missingInPackage(owner: string, specifier: string): string {
  if (isBuiltin(specifier))
    return `The package ${owner} needs "${specifier}" of Node, which a kap does not have. Use a package (or an entry of this one) made for browsers or workers.`;
  if (/^[./#]|^[a-z][a-z0-9+.-]*:/i.test(specifier))
    return `The package ${owner} imports "${specifier}", which is not in it. Use another version of it, or another package.`;
  return `The package ${owner} imports "${specifier}", which it does not list as a dependency. Pin "${specifier}" in package.json beside it, or use another package.`;
}

/** The package's replacements for imports in browsers: a path or name, or false for nothing. */
function browserField(manifest: Record<string, unknown>): Record<string, unknown> {
  const field = manifest.browser;
  return field !== null && typeof field === "object" ? (field as Record<string, unknown>) : {};
}
