import type { Readable } from "node:stream";
import { kapRoleContext } from "#platform/kap-database.ts";
import type { Db } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";
import { actorOf, type Caller } from "../../http/caller.ts";
import type { BuiltProgram } from "../kaps/build-program.ts";
import { insertWithFreeSlug } from "../kaps/create.ts";
import { type KapRow, recordKapChange } from "../kaps/kap.ts";
import { insertVersion } from "../kaps/save.ts";
import { mintToken } from "../kaps/token.ts";
import type { VersionRow } from "../kaps/version.ts";
import { measureDatabases } from "../runs/usage.ts";
import { buildVersions, readVersionFiles } from "./build-versions.ts";
import { checkTriggers, insertTriggers } from "./import-triggers.ts";
import { loadSql } from "./load-sql.ts";
import { archiveFormat, type ImportedManifest, type ManifestTrigger, type ManifestVersion } from "./manifest.ts";
import { readArchive } from "./read-archive.ts";
import { discardReserved, type Reserved, reserve } from "./reserve.ts";
import { openStaging, type Staging } from "./staging.ts";

/** A kap made from an archive. Secrets come by name only: their values never leave the place where they were set. */
export interface ImportedKap {
  kap: KapRow;
  version: VersionRow;
  bypassToken: string;
  secretNames: string[];
}

/**
 * Makes a kap from an archive, or nothing: files and database go into a bucket and a schema that no kap has yet, and the kap appears with all its versions, triggers and
 * history in one transaction at the end. When anything is wrong, or the process dies, what was loaded is removed.
 */
export async function importKap(
  deps: Deps,
  caller: Caller,
  client: string | null,
  body: Readable,
  signal: AbortSignal,
): Promise<ImportedKap> {
  const staging = await openStaging();
  let reserved: Reserved | null = null;
  let isMade = false;
  try {
    const place = await reserve(deps);
    reserved = place;
    const putFile = async (key: string, bytes: Readable, contentType: string): Promise<void> => {
      await deps.objects.put(place.bucket, key, bytes, { contentType, signal });
    };
    const { manifest, sqlPath } = await readArchive(deps, body, staging, putFile, signal);
    const triggers = checkTriggers(deps, manifest);
    const programOf = await buildVersions(deps, manifest.versions, staging, caller.org.id, signal);
    await loadSql(deps, place, sqlPath, signal);
    signal.throwIfAborted();
    const imported = await deps.db.transaction((trx) =>
      insertAll(deps, trx, { caller, client, place, manifest, triggers, staging, programOf }),
    );
    isMade = true;
    return imported;
  } finally {
    await staging.remove();
    if (reserved && !isMade) await discard(deps, reserved.id);
  }
}

/** Removes what was loaded for nothing; when that fails its job does it later. */
async function discard(deps: Deps, id: string): Promise<void> {
  await discardReserved(deps, { kap_id: id }).catch((error: unknown) => {
    deps.log.warn({ err: error, kap_id: id }, "what a refused import had loaded was not removed at once; its job removes it");
  });
}

interface Insertion {
  caller: Caller;
  client: string | null;
  place: Reserved;
  manifest: ImportedManifest;
  triggers: readonly ManifestTrigger[];
  staging: Staging;
  programOf(version: ManifestVersion): Promise<BuiltProgram>;
}

async function insertAll(deps: Deps, trx: Db, given: Insertion): Promise<ImportedKap> {
  const { caller, client, place, manifest } = given;
  const actor = actorOf(caller);
  const { id } = place;
  const fields = {
    id,
    org_id: caller.org.id,
    workspace_id: caller.workspaceId,
    name: manifest.kap.name,
    audience: "members",
    schema_name: place.schemaName,
    role_name: place.roleName,
    role_password: deps.keyring.seal(place.password, kapRoleContext(id)),
    bucket: place.bucket,
    created_by: JSON.stringify(actor),
  };
  const slug = await insertWithFreeSlug(trx, fields, manifest.kap.slug);
  const version = await insertVersions(trx, given);
  const [kap]: KapRow[] = await trx("kaps").where({ id }).update({ current_version_id: version.id }).returning("*");
  if (!kap) throw new Error(`the kap ${slug} was not written`);
  await insertTriggers(trx, id, version.main_file, given.triggers, actor);
  const { secret } = await mintToken(trx, deps.keyring, { kapId: id, kind: "bypass", name: "default", actor });
  const detail = { name: kap.name, audience: kap.audience, version_id: version.id };
  await recordKapChange(trx, caller, client, { kap_id: id, kind: "created", detail });
  await recordKapChange(trx, caller, client, {
    kap_id: id,
    kind: "db.imported",
    detail: {
      format: archiveFormat,
      from: { id: manifest.kap.id, slug: manifest.kap.slug },
      versions: manifest.versions.length,
      store_sql_sha256: manifest.archive.store_sql.sha256,
      secret_names: manifest.secret_names,
    },
  });
  await measureDatabases(trx, id);
  await deps.kapChanged(trx, id);
  return { kap, version, bypassToken: secret, secretNames: manifest.secret_names };
}

/** Writes all versions with the numbers they had; who imported them is who made them here. Answers the newest. */
async function insertVersions(trx: Db, { caller, client, place, manifest, staging, programOf }: Insertion): Promise<VersionRow> {
  const newIds = new Map<string, string>();
  let newest: VersionRow | null = null;
  for (const version of manifest.versions) {
    newest = await insertVersion(trx, {
      kapId: place.id,
      sequence: version.sequence,
      mainFile: version.main_file,
      files: await readVersionFiles(staging, version),
      program: await programOf(version),
      restoredFrom: version.restored_from === null ? null : (newIds.get(version.restored_from) ?? null),
      actor: actorOf(caller),
      client,
    });
    newIds.set(version.id, newest.id);
  }
  if (!newest) throw new Error("an archive without versions was let through");
  return newest;
}
