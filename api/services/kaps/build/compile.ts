import { type BuildInput, BuildRefused, type BuildResult, type Diagnostic, fileError, type LockedPackage } from "./build-contract.ts";
import { bundle } from "./bundle.ts";
import { moduleNames } from "./display-path.ts";
import { type Pins, readSpecifier } from "./import-specifier.ts";
import { type OwnFiles, ownFiles } from "./own-files.ts";
import { readPins } from "./package-manifest.ts";
import type { PackageStore } from "./packages/package-store.ts";
import { type ExactPackage, type PackageTree, resolvePackageTree, type TreeLimits } from "./packages/package-tree.ts";
import { PackageUnavailable, type Registry } from "./packages/registry.ts";
import { type Scan, scan } from "./scan.ts";
import type { TypeCheck, TypeCheckOutcome } from "./type-check/type-check.ts";

/** What compiling stands on; all of it lives as long as the build process. */
export interface Workshop {
  registry: Registry;
  store: PackageStore;
  limits: TreeLimits;
  unpackFolder: string;
  typeCheck: TypeCheck;
}

/** Where a build is; told to the parent so that it can say what was going on when it had to end a build. */
export type BuildPhase = "reading imports" | "fetching packages" | "bundling and checking types";

/** JSX without a pragma makes elements with the first of these that the kap pins; Preact is the one named when none is. */
const jsxSources = [
  ["preact", "preact"],
  ["hono", "hono/jsx"],
  ["react", "react"],
] as const;

/** Builds one program. Refusals are part of the result; only faults of the platform are thrown. */
export async function compile(input: BuildInput, workshop: Workshop, onPhase: (phase: BuildPhase) => void): Promise<BuildResult> {
  try {
    return await compileOrThrow(input, workshop, onPhase);
  } catch (error) {
    if (error instanceof BuildRefused) return { ok: false, errors: error.errors, diagnostics: [] };
    throw error;
  }
}

async function compileOrThrow(input: BuildInput, workshop: Workshop, onPhase: (phase: BuildPhase) => void): Promise<BuildResult> {
  const { unpackFolder, typeCheck } = workshop;
  onPhase("reading imports");
  const files = ownFiles(input.files);
  const pins = readPins(files);
  const jsxImportSource = jsxSources.find(([name]) => pins.has(name))?.[1] ?? "preact";
  const scanned = await scan(files, pins, jsxImportSource);
  onPhase("fetching packages");
  const { tree, warnings } = await fetchPackages(input, files, pins, scanned, workshop);
  onPhase("bundling and checking types");
  const checking = typeCheck.run({
    files: input.files.map(({ path, content }) => [path, content]),
    unchecked: scanned.texts,
    packages: {
      pins: [...pins],
      tree: [...tree].map(([key, { name, root, dependencies }]) => [
        key,
        { name, root, dependencies: [...dependencies].map(([as, each]) => [as, `${each.name}@${each.version}`]) },
      ]),
    },
    jsxImportSource,
  });
  const bundling = bundle({ files, pins, scan: scanned, tree, names: moduleNames(tree, unpackFolder), unpackFolder, jsxImportSource });
  // Both run to their end: a check left behind would still be busy when the next build comes.
  const [bundled, checked] = await Promise.allSettled([bundling, checking]);
  if (bundled.status === "rejected") throw bundled.reason;
  if (checked.status === "rejected") throw checked.reason;
  const { warnings: bundleWarnings, ...output } = bundled.value;
  const diagnostics = [...warnings, ...bundleWarnings, ...entryRemarks(input, scanned), ...typeDiagnostics(checked.value, input)];
  const errors = diagnostics.filter(({ severity }) => severity === "error");
  if (input.strict && errors.length > 0) return { ok: false, errors: errors.map(({ severity: _, ...error }) => error), diagnostics };
  return { ok: true, ...output, entries: scanned.entries, packages: recorded(tree), diagnostics };
}

/** Packages that are imported as values must be there; those that only type imports name are a warning when they cannot be had. */
async function fetchPackages(
  input: BuildInput,
  files: OwnFiles,
  pins: Pins,
  scanned: Scan,
  workshop: Workshop,
): Promise<{ tree: PackageTree; warnings: Diagnostic[] }> {
  const mentioned = mentionedPackages(files, pins);
  const known = [...[...pins.values()], ...scanned.packages, ...mentioned];
  const typesOnly = mentioned.filter(
    (each) => !scanned.packages.some(({ name, version }) => name === each.name && version === each.version),
  );
  const resolve = (roots: ExactPackage[]) => resolvePackageTree(roots, known, input.locked, workshop);
  try {
    return { tree: await resolve([...scanned.packages, ...typesOnly]), warnings: [] };
  } catch (error) {
    if (!(error instanceof PackageUnavailable)) throw error;
    if (typesOnly.length === 0) throw refusal(error, scanned, input);
    try {
      const warning: Diagnostic = {
        ...fileError(input.main_file, `Types are not checked against every package: ${error.message}`),
        severity: "warning",
      };
      return { tree: await resolve(scanned.packages), warnings: [warning] };
    } catch (second) {
      throw second instanceof PackageUnavailable ? refusal(second, scanned, input) : second;
    }
  }
}

function refusal(error: PackageUnavailable, scanned: Scan, input: BuildInput): BuildRefused {
  const named = scanned.packages.find(({ name }) => error.message.includes(name));
  const place = named && scanned.places.get(`${named.name}@${named.version}`);
  return new BuildRefused([{ ...(place ?? { file: input.main_file, line: 1, column: 1 }), message: error.message }]);
}

/** Pinned packages that some file names in quotes, and `npm:` specifiers: those of type-only imports among them never reach the bundler. */
function mentionedPackages(files: OwnFiles, pins: Pins): ExactPackage[] {
  const found = new Map<string, ExactPackage>();
  const texts = [...files].filter(([path]) => /\.[cm]?[jt]sx?$/.test(path)).map(([, content]) => content);
  for (const [importName, pin] of pins) {
    const isNamed = texts.some((text) =>
      ['"', "'"].some((quote) => text.includes(`${quote}${importName}${quote}`) || text.includes(`${quote}${importName}/`)),
    );
    const isTypes = importName.startsWith("@types/");
    if (isNamed || isTypes) found.set(`${pin.name}@${pin.version}`, pin);
  }
  for (const text of texts) {
    for (const [, specifier = ""] of text.matchAll(/["'](npm:[^"'\s]{1,300})["']/g)) {
      const target = readSpecifier(specifier, pins);
      if (target.kind === "package") found.set(`${target.name}@${target.version}`, { name: target.name, version: target.version });
    }
  }
  return [...found.values()];
}

function entryRemarks(input: BuildInput, { entries }: Scan): Diagnostic[] {
  if (entries.includes(input.main_file)) return [];
  return [
    {
      ...fileError(
        input.main_file,
        "The main file has no default export, so nothing answers requests (501). Add export default { fetch(request, ctx) { … } }.",
      ),
      severity: "warning",
    },
  ];
}

function typeDiagnostics(outcome: TypeCheckOutcome, input: BuildInput): Diagnostic[] {
  if ("diagnostics" in outcome) return outcome.diagnostics;
  const message = `The type check did not finish: ${outcome.unfinished}. ${input.strict ? "A strict save needs it; simplify the types or save without strict." : "The version was built without it."}`;
  return [{ ...fileError(input.main_file, message), severity: input.strict ? "error" : "warning" }];
}

/** The tree as the version records it, in a fixed order. */
function recorded(tree: PackageTree): LockedPackage[] {
  return [...tree.values()]
    .map(({ name, version, integrity, bytes }) => ({ name, version, integrity, bytes }))
    .sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.version < b.version ? -1 : 1));
}
