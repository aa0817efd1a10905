import type { AssignedTrigger } from "#platform/assignment.ts";
import type { Db } from "#platform/postgres.ts";

/** What a runtime must know of a kap beside its secrets, as of one revision. */
export interface KapAssignment {
  org_id: string;
  slug: string;
  name: string;
  revision: number;
  version_id: string;
  bundle: string;
  bundle_map: string | null;
  /** V8's, made when the bundle was saved; null when there is none. */
  code_cache: Buffer | null;
  triggers: AssignedTrigger[];
  schema_name: string;
  role_name: string;
  /** Sealed, context `kap-role:<kap id>`. */
  role_password: Buffer;
}

/**
 * Reads a kap's current program and triggers in one statement, so that they belong to the revision they come with. Null when the kap does not exist
 * or serves nothing (deleted or disabled).
 */
export async function assignmentOf(db: Db, kapId: string): Promise<KapAssignment | null> {
  const { rows } = await db.raw<{ rows: KapAssignment[] }>(
    `select k.org_id, k.slug, k.name, k.revision, k.current_version_id as version_id, b.code as bundle, b.source_map as bundle_map, b.code_cache,
            k.schema_name, k.role_name, k.role_password,
            coalesce((select json_agg(json_build_object('id', t.id, 'kind', t.kind, 'file_path', t.file_path) order by t.id)
                      from kap_triggers t where t.kap_id = k.id and t.deleted_at is null), '[]'::json) as triggers
     from kaps k join kap_bundles b on b.version_id = k.current_version_id
     where k.id = ? and k.state = 'active'`,
    [kapId],
  );
  return rows[0] ?? null;
}
