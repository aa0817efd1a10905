import type { Deps } from "../../deps.ts";
import { Refusal, refuse } from "../../http/refusal.ts";
import type { BuildResult, Diagnostic, LockedPackage } from "./build/build-contract.ts";
import { BuildQueueFull } from "./build/builder.ts";
import type { SourceFile } from "./file-set.ts";

export type BuiltProgram = Extract<BuildResult, { ok: true }>;

/**
 * Compiles and bundles a file set. Refuses with 422 `BUILD_FAILED` and a line per error when it does not compile; with `strict`, type
 * errors refuse too (decided §7.1). `locked` makes a restore or an import use the packages of the earlier version.
 */
export async function buildProgram(
  deps: Deps,
  program: { files: readonly SourceFile[]; mainFile: string; strict: boolean; locked: LockedPackage[]; owner: string },
  signal: AbortSignal,
): Promise<BuiltProgram> {
  const input = {
    files: program.files.map(({ path, content }) => ({ path, content })),
    main_file: program.mainFile,
    strict: program.strict,
    locked: program.locked,
    owner: program.owner,
  };
  const result = await deps.builder.build(input, signal).catch((error: unknown) => {
    if (!(error instanceof BuildQueueFull)) throw error;
    throw refuse("UNAVAILABLE", error.message, { headers: { "retry-after": "2" } });
  });
  if (!result.ok) throw buildFailed(result.errors, result.diagnostics);
  return result;
}

function buildFailed(errors: Extract<BuildResult, { ok: false }>["errors"], diagnostics: Diagnostic[]): Refusal {
  const details = errors.length > 0 ? errors : diagnostics.filter((entry) => entry.severity === "error");
  const [first] = details;
  const more = details.length > 1 ? ` (and ${details.length - 1} more)` : "";
  const message = first ? `${first.file}:${first.line}:${first.column}: ${first.message}${more}` : "the program cannot be built";
  return new Refusal(422, "BUILD_FAILED", message, { details });
}
