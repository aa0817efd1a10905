import { isId } from "#platform/ids.ts";
import type { Db } from "#platform/postgres.ts";
import type { Actor } from "../../http/caller.ts";
import { notFound } from "../../http/refusal.ts";
import type { Diagnostic, LockedPackage } from "./build/build-contract.ts";
import type { VersionFile } from "./file-set.ts";

/** A version as PostgreSQL keeps it: an immutable snapshot of the whole file set. */
export interface VersionRow {
  id: string;
  kap_id: string;
  sequence: number;
  main_file: string;
  files: VersionFile[];
  packages: LockedPackage[];
  diagnostics: Diagnostic[];
  bundle_sha256: string;
  restored_from: string | null;
  created_at: Date;
  created_by: Actor;
  client: string | null;
}

/** The version as the contract shows it (decided §7.3); `files` may carry contents. */
export function presentVersion(version: VersionRow, files: readonly VersionFile[] = version.files): Record<string, unknown> {
  return {
    id: version.id,
    kap_id: version.kap_id,
    sequence: version.sequence,
    main_file: version.main_file,
    files,
    bundle_sha256: version.bundle_sha256,
    restored_from: version.restored_from,
    created_at: version.created_at,
    created_by: version.created_by,
    client: version.client,
  };
}

/** Finds a version of a kap, or refuses with 404. */
export async function findVersion(db: Db, kapId: string, versionId: string): Promise<VersionRow> {
  const row: VersionRow | undefined = isId(versionId)
    ? await db("kap_versions").where({ id: versionId, kap_id: kapId }).first()
    : undefined;
  if (!row) throw notFound(`the version ${versionId}`);
  return row;
}
