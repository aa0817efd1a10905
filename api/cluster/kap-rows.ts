import { type Kap, type KapSpec, kapApiVersion, kapLabels } from "#platform/kap-resource.ts";
import type { Db } from "#platform/postgres.ts";
import { parseCron } from "../services/triggers/cron.ts";

/** What PostgreSQL says of a kap, as far as its resource tells it. */
export interface KapRow {
  id: string;
  org_id: string;
  slug: string;
  name: string;
  state: KapSpec["state"];
  audience: KapSpec["audience"];
  revision: number;
  version_id: string | null;
  version: number;
  schema_name: string;
  role_name: string;
  bucket: string;
  purged_at: Date | null;
  crons: string[];
  has_intervals: boolean;
}

const statement = (condition: string): string => `
  select k.id, k.org_id, k.slug, k.name, k.state, k.audience, k.revision, k.current_version_id as version_id, coalesce(v.sequence, 0) as version,
         k.schema_name, k.role_name, k.bucket, k.purged_at,
         coalesce(array_agg(distinct t.cron) filter (where t.cron is not null), '{}') as crons,
         coalesce(bool_or(t.interval_seconds is not null), false) as has_intervals
  from kaps k
  left join kap_versions v on v.id = k.current_version_id
  left join kap_triggers t on t.kap_id = k.id and t.kind = 'schedule' and t.enabled and t.deleted_at is null and k.state = 'active'
  where ${condition}
  group by k.id, v.sequence
  order by k.id
  limit ?`;

/** A kap as it is now; null when there has never been one of this id. */
export async function readKapRow(db: Db, kapId: string): Promise<KapRow | null> {
  const { rows } = await db.raw<{ rows: KapRow[] }>(statement("k.id = ?"), [kapId, 1]);
  return rows[0] ?? null;
}

/** All kaps, purged ones too, in pages. */
export async function* readKapRows(db: Db, pageSize = 500): AsyncGenerator<KapRow[]> {
  for (let after = "00000000-0000-0000-0000-000000000000"; ; ) {
    const { rows } = await db.raw<{ rows: KapRow[] }>(statement("k.id > ?"), [after, pageSize]);
    const last = rows.at(-1);
    if (!last) return;
    yield rows;
    after = last.id;
  }
}

/** The resource a kap should have: its fields as the API owns them. */
export function desiredKap(row: KapRow, { release, address }: { release: string; address: string }): Kap {
  return {
    apiVersion: kapApiVersion,
    kind: "Kap",
    metadata: {
      name: row.slug,
      labels: {
        [kapLabels.managedBy]: "kapstone",
        [kapLabels.instance]: release,
        [kapLabels.kapId]: row.id,
        [kapLabels.orgId]: row.org_id,
      },
    },
    spec: {
      kapId: row.id,
      orgId: row.org_id,
      name: row.name,
      slug: row.slug,
      address,
      state: row.state,
      revision: row.revision,
      versionId: row.version_id,
      version: row.version,
      audience: row.audience,
      database: { schema: row.schema_name, role: row.role_name },
      bucket: row.bucket,
      schedules: [...new Set(row.crons.map((cron) => parseCron(cron).portable))].sort(),
      hasIntervals: row.has_intervals,
    },
  };
}
