import { newId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";
import { type Actor, actorOf, type Caller } from "../../http/caller.ts";
import { invalid, Refusal } from "../../http/refusal.ts";
import type { Diagnostic, LockedPackage } from "./build/build-contract.ts";
import { type BuiltProgram, buildProgram } from "./build-program.ts";
import { describeFiles, readContents, type SourceFile, storeContents } from "./file-set.ts";
import { type KapRow, lockKap, recordKapChange, refuseDeleted } from "./kap.ts";
import { inTurn } from "./turns.ts";
import { findVersion, type VersionRow } from "./version.ts";

/** A new version as it is about to be written. */
export interface NewVersion {
  kapId: string;
  sequence: number;
  mainFile: string;
  files: readonly SourceFile[];
  program: BuiltProgram;
  restoredFrom: string | null;
  actor: Actor;
  client: string | null;
}

/** Writes a version: its record, the contents it is the first to have, and its bundle. */
export async function insertVersion(trx: Db, version: NewVersion): Promise<VersionRow> {
  const { program } = version;
  const [row]: VersionRow[] = await trx("kap_versions")
    .insert({
      id: newId(),
      kap_id: version.kapId,
      sequence: version.sequence,
      main_file: version.mainFile,
      files: JSON.stringify(describeFiles(version.files)),
      packages: JSON.stringify(program.packages),
      diagnostics: JSON.stringify(program.diagnostics),
      bundle_sha256: program.bundle_sha256,
      restored_from: version.restoredFrom,
      created_by: JSON.stringify(version.actor),
      client: version.client,
    })
    .returning("*");
  if (!row) throw new Error("the version was not written");
  await storeContents(trx, version.kapId, version.files);
  await trx("kap_bundles").insert({
    version_id: row.id,
    code: program.bundle,
    source_map: program.bundle_map,
    code_cache: program.code_cache && Buffer.from(program.code_cache),
  });
  return row;
}

/** A save as asked for. */
export interface Save {
  base: string;
  mainFile: string | null;
  files: readonly SourceFile[];
  strict: boolean;
}

/** A saved version with the type errors that did not refuse it. */
export interface Saved {
  version: VersionRow;
  diagnostics: Diagnostic[];
}

/**
 * Saves a new version that replaces the whole file set (spec 3 §9 B). The base must be the current version, else 409 `VERSION_CONFLICT`:
 * looked at before the build, so that a stale save costs nothing, and decided by a conditional update, so that of any number of saves on
 * one base exactly one wins.
 */
export function saveFiles(deps: Deps, caller: Caller, client: string | null, kap: KapRow, save: Save, signal: AbortSignal): Promise<Saved> {
  return inTurn(kap.id, async () => {
    const current = await checkBase(deps.db, kap.id, save.base);
    const base = await findVersion(deps.db, kap.id, current.current_version_id);
    const mainFile = save.mainFile ?? base.main_file;
    await refuseDroppedTriggers(deps.db, kap.id, save.files);
    const program = await buildProgram(deps, { files: save.files, mainFile, strict: save.strict, locked: [], owner: kap.org_id }, signal);
    return advance(deps, { kind: "saved", caller, client, base, mainFile, files: save.files, program, restoredFrom: null });
  });
}

/** Makes an earlier version the newest again, built with the packages it was saved with. The base rule is that of a save. */
export function restoreVersion(
  deps: Deps,
  caller: Caller,
  client: string | null,
  kap: KapRow,
  restored: VersionRow,
  baseId: string,
  signal: AbortSignal,
): Promise<Saved> {
  return inTurn(kap.id, async () => {
    const current = await checkBase(deps.db, kap.id, baseId);
    const base = await findVersion(deps.db, kap.id, current.current_version_id);
    const files = await readContents(deps.db, kap.id, restored.files);
    await refuseDroppedTriggers(deps.db, kap.id, files);
    const locked: LockedPackage[] = restored.packages;
    const program = await buildProgram(deps, { files, mainFile: restored.main_file, strict: false, locked, owner: kap.org_id }, signal);
    const mainFile = restored.main_file;
    return advance(deps, { kind: "restored", caller, client, base, mainFile, files, program, restoredFrom: restored });
  });
}

interface Advance {
  kind: "saved" | "restored";
  caller: Caller;
  client: string | null;
  base: VersionRow;
  mainFile: string;
  files: readonly SourceFile[];
  program: BuiltProgram;
  restoredFrom: VersionRow | null;
}

/** One transaction: the version, the current version's conditional change, the request trigger that follows the main file, the history. */
async function advance(deps: Deps, step: Advance): Promise<Saved> {
  const { base, caller, client } = step;
  const kapId = base.kap_id;
  const version = await deps.db.transaction(async (trx) => {
    const kap = await lockKap(trx, kapId);
    if (kap.current_version_id !== base.id) throw versionConflict(kap.current_version_id, base.id);
    await refuseDroppedTriggers(trx, kapId, step.files);
    const actor = actorOf(caller);
    const row = await insertVersion(trx, {
      kapId,
      sequence: base.sequence + 1,
      mainFile: step.mainFile,
      files: step.files,
      program: step.program,
      restoredFrom: step.restoredFrom?.id ?? null,
      actor,
      client,
    });
    await trx("kaps").where({ id: kapId }).increment("revision", 1).update({ current_version_id: row.id, updated_at: trx.fn.now() });
    await trx("kap_triggers").where({ kap_id: kapId, kind: "request" }).whereNull("deleted_at").update({ file_path: step.mainFile });
    await recordKapChange(trx, caller, client, {
      kap_id: kapId,
      kind: step.kind,
      detail: {
        version_id: row.id,
        sequence: row.sequence,
        base_version_id: base.id,
        ...(step.restoredFrom ? { restored_from: step.restoredFrom.id, restored_sequence: step.restoredFrom.sequence } : {}),
      },
    });
    await deps.kapChanged(trx, kapId);
    return row;
  });
  return { version, diagnostics: step.program.diagnostics };
}

async function checkBase(db: Db, kapId: string, base: string): Promise<KapRow> {
  const kap: KapRow | undefined = await db("kaps").where({ id: kapId }).first();
  if (!kap) throw new Error(`the kap ${kapId} vanished`);
  refuseDeleted(kap);
  if (kap.current_version_id !== base) throw versionConflict(kap.current_version_id, base);
  return kap;
}

function versionConflict(current: string, base: string): Refusal {
  return new Refusal(
    409,
    "VERSION_CONFLICT",
    `base_version_id ${base} is not the current version any more, ${current} is: read the kap again, merge your change into it, and save with that base`,
    { details: { base_version_id: base, current_version_id: current } },
  );
}

/** 422 when a file that a schedule or the inbox runs is not among the files (decided §7.3). The request trigger follows the main file. */
async function refuseDroppedTriggers(db: Db, kapId: string, files: readonly SourceFile[]): Promise<void> {
  const paths = new Set(files.map((file) => file.path));
  const triggers: { id: string; kind: string; file_path: string }[] = await db("kap_triggers")
    .where({ kap_id: kapId })
    .whereNot("kind", "request")
    .whereNull("deleted_at")
    .select("id", "kind", "file_path");
  const dropped = triggers.filter((trigger) => !paths.has(trigger.file_path));
  if (dropped.length === 0) return;
  throw invalid(
    ...dropped.map(({ id, kind, file_path }) => ({
      path: "files",
      message: `${file_path} is missing, and the ${kind} trigger ${id} runs it: keep the file, or delete the trigger first`,
    })),
  );
}
