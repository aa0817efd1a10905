import type { Db } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";

/** A kap's consumption of one day in UTC (decided §7.4). Sizes are the last ones measured that day. */
export interface UsageDay {
  kap_id: string;
  day: string;
  runs: number;
  failed_runs: number;
  cpu_ms: number;
  duration_ms: number;
  db_ms: number;
  db_bytes: number;
  store_bytes: number;
  mail_messages: number;
  egress_bytes: number;
}

/** The window that is shown (spec 3 §8). */
const shownDays = 30;

/** Consumption of an organisation's kaps over the last 30 days, newest day first. */
export async function readUsage(db: Db, orgId: string, workspaceId: string | null): Promise<UsageDay[]> {
  const { rows } = await db.raw<{ rows: UsageDay[] }>(
    `select u.kap_id, to_char(u.day, 'YYYY-MM-DD') as day, u.runs, u.failed_runs, u.cpu_ms, u.duration_ms, u.db_ms, u.db_bytes, u.store_bytes,
            u.mail_messages, u.egress_bytes
     from kap_usage u join kaps k on k.id = u.kap_id
     where k.org_id = ? and (?::uuid is null or k.workspace_id = ?) and u.day > (now() at time zone 'utc')::date - ?::int
     order by u.day desc, k.created_at, k.id`,
    [orgId, workspaceId, workspaceId, shownDays] as string[],
  );
  return rows;
}

/** Measures what the kaps' schemas and buckets hold and notes it for today. */
export async function measureStorage(deps: Pick<Deps, "db" | "objects">): Promise<void> {
  await measureDatabases(deps.db);
  const kaps: { id: string; bucket: string }[] = await deps.db("kaps").select("id", "bucket").whereNull("purged_at");
  for (const kap of kaps) {
    const bytes = await bucketBytes(deps, kap.bucket);
    if (bytes === 0) continue;
    await deps.db.raw(
      `insert into kap_usage (kap_id, day, store_bytes) values (?, (now() at time zone 'utc')::date, ?)
       on conflict (kap_id, day) do update set store_bytes = excluded.store_bytes`,
      [kap.id, bytes],
    );
  }
}

/** Measures what the schemas of all kaps hold, or of one, and notes it for today. */
export async function measureDatabases(db: Db, kapId: string | null = null): Promise<void> {
  await db.raw(
    `insert into kap_usage (kap_id, day, db_bytes)
     select k.id, (now() at time zone 'utc')::date, coalesce(sum(pg_total_relation_size(c.oid)), 0)
     from kaps k join pg_namespace n on n.nspname = k.schema_name left join pg_class c on c.relnamespace = n.oid and c.relkind in ('r', 'm', 'S')
     where k.purged_at is null and (?::uuid is null or k.id = ?)
     group by k.id
     having count(c.oid) > 0 or exists (select 1 from kap_usage t where t.kap_id = k.id and t.day = (now() at time zone 'utc')::date)
     on conflict (kap_id, day) do update set db_bytes = excluded.db_bytes`,
    [kapId, kapId] as string[],
  );
}

async function bucketBytes(deps: Pick<Deps, "objects">, bucket: string): Promise<number> {
  let bytes = 0;
  for (let after: string | undefined; ; ) {
    const page = await deps.objects.list(bucket, after === undefined ? {} : { after });
    for (const object of page.objects) bytes += object.sizeBytes;
    if (page.next === null) return bytes;
    after = page.next;
  }
}
