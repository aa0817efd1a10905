import { kapConnectionLimit, kapRoleContext, provisionKapDatabase } from "#platform/kap-database.ts";
import type { Keyring } from "#platform/keyring.ts";
import type { Knex } from "#platform/postgres.ts";
import type { PartState } from "./status.ts";

/** A kap whose data are to be there, and what of its database is missing. */
export interface KapDatabaseState {
  kapId: string;
  /** Of `schema`, `role`, `privileges`; empty when all is there. */
  missing: string[];
}

/** Kaps whose data are to be there: not purged, nor being purged, which takes schema and role before it says so. */
function kept(alias: string): string {
  return `${alias}.purged_at is null and not (${alias}.state = 'deleted' and ${alias}.recover_until <= now())`;
}

/** One statement over the catalogs, for all kaps or one. */
const missingParts = `
  select k.id as kap_id, array_remove(array[
           case when n.oid is null then 'schema' end,
           case when r.oid is null or not r.rolcanlogin then 'role' end,
           case when n.oid is not null and r.oid is not null and not has_schema_privilege(r.oid, n.oid, 'usage, create') then 'privileges' end
         ], null) as missing
  from kapstone.kaps k
  left join pg_catalog.pg_namespace n on n.nspname = k.schema_name
  left join pg_catalog.pg_roles r on r.rolname = k.role_name
  where ${kept("k")}`;

/** The databases of all kaps, looked at by one statement; made again where something is missing. */
export interface KapDatabases {
  /** Looks at all kaps anew. Answers those that lack something. */
  look(): Promise<KapDatabaseState[]>;
  /** The state of one kap's database by the last look, else by a look of its own; null when PostgreSQL has no kap of that id whose data are to be there. */
  stateOf(kapId: string): Promise<KapDatabaseState | null>;
  /** Makes what is missing, by the function that made it first: schema, role and rights come back; what was in a dropped schema does not. */
  repair(kapId: string): Promise<void>;
}

export function createKapDatabases(db: Knex, options: { keyring: Keyring; databaseName: string }): KapDatabases {
  let known = new Map<string, KapDatabaseState>();
  return {
    async look() {
      const { rows } = await db.raw<{ rows: { kap_id: string; missing: string[] }[] }>(missingParts);
      known = new Map(rows.map(({ kap_id, missing }) => [kap_id, { kapId: kap_id, missing }]));
      return [...known.values()].filter(({ missing }) => missing.length > 0);
    },
    async stateOf(kapId) {
      const found = known.get(kapId);
      if (found && found.missing.length === 0) return found;
      const { rows } = await db.raw<{ rows: { kap_id: string; missing: string[] }[] }>(`${missingParts} and k.id = ?`, [kapId]);
      const state = rows[0] ? { kapId, missing: rows[0].missing } : null;
      if (state) known.set(kapId, state);
      else known.delete(kapId);
      return state;
    },
    async repair(kapId) {
      await db.transaction(async (trx) => {
        const { rows } = await trx.raw<{ rows: { schema_name: string; role_name: string; role_password: Buffer }[] }>(
          `select schema_name, role_name, role_password from kaps k where id = ? and ${kept("k")} for update`,
          [kapId],
        );
        const [kap] = rows;
        if (!kap) return;
        await provisionKapDatabase(trx, {
          schemaName: kap.schema_name,
          roleName: kap.role_name,
          password: options.keyring.open(kap.role_password, kapRoleContext(kapId)),
          databaseName: options.databaseName,
          connectionLimit: kapConnectionLimit,
        });
      });
      known.delete(kapId);
    },
  };
}

export const databaseReady: PartState = { status: "True", reason: "Present", message: "schema and login role are there" };
