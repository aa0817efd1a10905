import type { BuildInput, BuildResult } from "./build-contract.ts";
import { type BuildPhase, compile, type Workshop } from "./compile.ts";
import { readNpmSettings } from "./packages/npm-settings.ts";
import { createPackageStore } from "./packages/package-store.ts";
import { createRegistry } from "./packages/registry.ts";
import { createTypeCheck } from "./type-check/type-check.ts";

/** What the parent starts a build process with (JSON, the one argument). */
export interface ChildSettings {
  npmCache: string;
  /** Of this process alone; the parent removes it. */
  unpackFolder: string;
  kapTypes: string;
  typeCheckMs: number;
  typeCheckHeapMib: number;
  fetchTimeoutMs: number;
  maxTarballBytes: number;
  maxPackages: number;
  maxPackageBytes: number;
}

export type FromChild =
  | { kind: "ready" }
  | { kind: "phase"; phase: BuildPhase }
  | { kind: "result"; result: BuildResult; unpackedBytes: number }
  | { kind: "fault"; message: string };
export type ToChild = { kind: "build"; input: BuildInput };

/**
 * The build process: hostile source is read here and nowhere else. It serves one build at a time until its parent ends it; when the
 * parent is gone it ends itself.
 */
const settings = JSON.parse(process.argv[2] ?? "{}") as ChildSettings;
const registry = createRegistry({
  settings: readNpmSettings(process.env),
  cacheDir: settings.npmCache,
  fetchTimeoutMs: settings.fetchTimeoutMs,
  maxTarballBytes: settings.maxTarballBytes,
});
const workshop: Workshop = {
  registry,
  store: createPackageStore(registry, settings.unpackFolder),
  limits: { maxPackages: settings.maxPackages, maxBytes: settings.maxPackageBytes },
  unpackFolder: settings.unpackFolder,
  typeCheck: createTypeCheck({
    kapTypes: settings.kapTypes,
    unpackFolder: settings.unpackFolder,
    limitMs: settings.typeCheckMs,
    heapMib: settings.typeCheckHeapMib,
  }),
};

function tell(message: FromChild): void {
  process.send?.(message);
}

const warmUp: BuildInput = {
  files: [{ path: "main.ts", content: 'import { db } from "kap";\nexport default { fetch: () => Response.json(typeof db) };\n' }],
  main_file: "main.ts",
  strict: false,
  locked: [],
};

process.on("disconnect", () => process.exit(0));
process.on("message", (message: ToChild) => {
  compile(message.input, workshop, (phase) => tell({ kind: "phase", phase })).then(
    (result) => tell({ kind: "result", result, unpackedBytes: workshop.store.bytes() }),
    // esbuild's own process may have died of the program; this one ends with it, and the parent has another.
    (error: Error) => tell({ kind: "fault", message: error.stack ?? String(error) }),
  );
});
await workshop.typeCheck.ready;
await compile(warmUp, workshop, () => undefined);
tell({ kind: "ready" });
