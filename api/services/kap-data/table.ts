import { identifier } from "#platform/sql-text.ts";
import type { Deps } from "../../deps.ts";
import { Refusal, refuse } from "../../http/refusal.ts";
import type { KapRow } from "../kaps/kap.ts";
import { asKap } from "./kap-connection.ts";

/** A table of a kap as the contract shows it (spec 3 §2 B). */
export interface Table {
  name: string;
  columns: { name: string; type: string; nullable: boolean; default: string | null }[];
}

const tablesSql = `
  select c.relname as name,
         coalesce(jsonb_agg(jsonb_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'nullable', not a.attnotnull,
                            'default', case when a.attidentity <> '' then 'generated ' || case a.attidentity when 'a' then 'always' else 'by default' end || ' as identity'
                                            else pg_get_expr(d.adbin, d.adrelid) end) order by a.attnum) filter (where a.attnum is not null), '[]') as columns
  from kap_catalog.pg_class c
  left join kap_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
  left join kap_catalog.pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
  where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'p') group by c.oid, c.relname order by c.relname`;

/** All tables of the kap's schema, by name. */
export async function listTables(deps: Deps, kap: KapRow): Promise<Table[]> {
  return asKap(deps, kap, async (client) => (await client.query<Table>(tablesSql, [kap.schema_name])).rows);
}

/** The one column that is a table's primary key. Refuses with 404 for no such table, 409 `NO_SINGLE_COLUMN_KEY` where the key has none or several columns. */
export async function keyColumnOf(deps: Deps, kap: KapRow, table: string): Promise<string> {
  const found = await asKap(deps, kap, async (client) => {
    const { rows } = await client.query<{ columns: string[] | null }>(
      `select (select array_agg(a.attname::text) from kap_catalog.pg_index i join kap_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = any((i.indkey::int2[])[0:i.indnkeyatts - 1]) where i.indrelid = c.oid and i.indisprimary) as columns
       from kap_catalog.pg_class c where c.relnamespace = $1::regnamespace and c.relname = $2 and c.relkind in ('r', 'p')`,
      [kap.schema_name, table],
    );
    return rows[0];
  });
  if (!found) throw tableNotFound(table);
  if (found.columns?.length !== 1) {
    throw new Refusal(
      409,
      "NO_SINGLE_COLUMN_KEY",
      `${table} has no primary key of exactly one column: read and change its rows with POST …/db/query`,
    );
  }
  return found.columns[0] as string;
}

/** 404 unless the kap's schema has this table (or view). */
export async function requireTable(deps: Deps, kap: KapRow, table: string): Promise<string> {
  const isThere = await asKap(deps, kap, async (client) => {
    const { rowCount } = await client.query(
      `select 1 from kap_catalog.pg_class where relnamespace = $1::regnamespace and relname = $2 and relkind in ('r', 'p', 'v', 'm')`,
      [kap.schema_name, table],
    );
    return rowCount === 1;
  });
  if (!isThere) throw tableNotFound(table);
  return identifier(table);
}

function tableNotFound(table: string): Refusal {
  return refuse("NOT_FOUND", `the kap's database has no table ${JSON.stringify(table)}: see GET …/db/tables`);
}

export function rowNotFound(table: string, key: string): Refusal {
  return refuse("NOT_FOUND", `${table} has no row with the key ${JSON.stringify(key)}`);
}
