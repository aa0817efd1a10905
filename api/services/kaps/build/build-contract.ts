/** One source file of a kap: a path inside the kap and its text. */
export interface SourceFile {
  path: string;
  content: string;
}

/** An npm package as a version records it: name, exact version, and the subresource integrity of its tarball. `bytes` is its unpacked size. */
export interface LockedPackage {
  name: string;
  version: string;
  integrity: string;
  bytes?: number;
}

/**
 * What one build gets. `locked` is empty for a save; for a restore or an import it is the `packages` of the earlier version, so that the
 * same bytes come out. `owner` (an org or kap id) makes the queue fair: owners take turns.
 */
export interface BuildInput {
  files: SourceFile[];
  main_file: string;
  strict: boolean;
  locked: LockedPackage[];
  owner?: string;
}

/** A reason for refusing a save. `line` and `column` are 1-based and count UTF-16 units, as editors do. */
export interface BuildError {
  file: string;
  line: number;
  column: number;
  message: string;
}

/** A remark beside a version; it refuses the save only when the build is strict and its severity is `error`. */
export interface Diagnostic extends BuildError {
  severity: "error" | "warning";
}

/**
 * What comes out. `bundle` is a classic strict script whose completion value is a promise of `{[file_path]: () => Promise<namespace>}`, one
 * entry per path in `entries` (every script file with a default export); nothing evaluates before its entry is called. `bundle_map` is a
 * source map (JSON) without the sources' contents; its `sources` are kap file paths and `npm:name@version/path`. `code_cache` is V8's, of the bundle
 * (null where there is none). `bundle_sha256` is lowercase hex.
 */
export type BuildResult =
  | {
      ok: true;
      bundle: string;
      bundle_map: string;
      code_cache: Uint8Array | null;
      bundle_sha256: string;
      entries: string[];
      packages: LockedPackage[];
      diagnostics: Diagnostic[];
    }
  | { ok: false; errors: BuildError[]; diagnostics: Diagnostic[] };

/** A program cannot be built as it is; `errors` go to its author. Everything else that is thrown is a fault of the platform. */
export class BuildRefused extends Error {
  override name = "BuildRefused";
  readonly errors: BuildError[];
  constructor(errors: BuildError[]) {
    super(errors[0]?.message ?? "The program cannot be built.");
    this.errors = errors;
  }
}

/** An error that belongs to a file as a whole. */
export function fileError(file: string, message: string): BuildError {
  return { file, line: 1, column: 1, message };
}
