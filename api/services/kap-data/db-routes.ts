import { Readable } from "node:stream";
import { z } from "zod";
import type { SqlResult } from "#platform/sql-statement.ts";
import { identifier } from "#platform/sql-text.ts";
import type { Deps } from "../../deps.ts";
import type { Caller } from "../../http/caller.ts";
import { invalid, Refusal } from "../../http/refusal.ts";
import type { Route } from "../../http/route.ts";
import type { KapRow } from "../kaps/kap.ts";
import { dataRoutes } from "./data-route.ts";
import { openKapClient, runAsKap } from "./kap-connection.ts";
import { dumpSchema } from "./sql-dump.ts";
import { keyColumnOf, listTables, requireTable, rowNotFound } from "./table.ts";

const row = z.record(z.string(), z.unknown());
const result = z.object({ rows: z.array(row), row_count: z.number().int() });
const columnValues = z.record(z.string().min(1).max(63), z.unknown()).meta({ description: "Values by column name" });

/** A token without `db.write` runs in a transaction that cannot write: what a statement does is PostgreSQL's to know, not its text's. */
function isReadOnly(caller: Caller): boolean {
  return caller.kind === "store_token" && !caller.scopes.includes("db.write");
}

const badValueStates = new Set(["22P02", "22003", "22007", "22008"]);

/** Whether PostgreSQL found a parameter's text to be no value of its type. */
function isBadValue(error: unknown): boolean {
  const details = error instanceof Refusal ? (error.options.details as { sqlstate?: string } | null | undefined) : undefined;
  return details?.sqlstate !== undefined && badValueStates.has(details.sqlstate);
}

/** The one row that a statement answers; 404 when there is none. */
function firstOf(found: SqlResult, table: string, key: string): Record<string, unknown> {
  const first = found.rows[0];
  if (!first) throw rowNotFound(table, key);
  return first;
}

/** The row of a key. One that is not of the key's type names no row. */
async function byKey(table: string, key: string, run: () => Promise<SqlResult>): Promise<Record<string, unknown>> {
  const found = await run().catch((error: unknown) => {
    throw isBadValue(error) ? rowNotFound(table, key) : error;
  });
  return firstOf(found, table, key);
}

/** The relational database of a kap, as its own role (spec 3 §4 B). */
export const dbRoutes: Route[] = [
  ...dataRoutes({
    method: "POST",
    suffix: "/db/query",
    summary: "Runs exactly one SQL statement",
    scope: "db.read",
    body: z.strictObject({ sql: z.string().min(1), params: z.array(z.unknown()).max(65_535).default([]) }),
    responses: { 200: { description: "The complete result, or a named refusal", schema: result } },
    async handler({ deps, caller, resource: kap, body }) {
      return { status: 200, body: await runAsKap(deps, kap, body.sql, body.params, { readOnly: isReadOnly(caller) }) };
    },
  }),
  ...dataRoutes({
    method: "GET",
    suffix: "/db/tables",
    summary: "Tables and their columns",
    scope: "db.read",
    responses: {
      200: {
        description: "Tables by name",
        schema: z.object({
          tables: z.array(
            z.object({
              name: z.string(),
              columns: z.array(z.object({ name: z.string(), type: z.string(), nullable: z.boolean(), default: z.string().nullable() })),
            }),
          ),
        }),
      },
    },
    async handler({ deps, resource: kap }) {
      return { status: 200, body: { tables: await listTables(deps, kap) } };
    },
  }),
  ...dataRoutes({
    method: "GET",
    suffix: "/db/tables/{table}/rows",
    summary: "All rows of a table, or a named refusal when they are too many",
    scope: "db.read",
    responses: { 200: { description: "The complete result", schema: result } },
    async handler({ deps, resource: kap, params }) {
      const name = await requireTable(deps, kap, params.table ?? "");
      return { status: 200, body: await runAsKap(deps, kap, `select * from ${name}`, [], { readOnly: true }) };
    },
  }),
  ...dataRoutes({
    method: "POST",
    suffix: "/db/tables/{table}/rows",
    summary: "Inserts a row; defaults apply to omitted columns",
    scope: "db.write",
    body: columnValues,
    responses: { 201: { description: "The inserted row", schema: result } },
    async handler({ deps, resource: kap, params, body }) {
      const name = await requireTable(deps, kap, params.table ?? "");
      const columns = Object.keys(body);
      const values =
        columns.length === 0
          ? "default values"
          : `(${columns.map(identifier).join(", ")}) values (${columns.map((_, index) => `$${index + 1}`).join(", ")})`;
      return {
        status: 201,
        body: await runAsKap(deps, kap, `insert into ${name} ${values} returning *`, Object.values(body), { readOnly: false }),
      };
    },
  }),
  ...dataRoutes({
    method: "GET",
    suffix: "/db/tables/{table}/rows/{key}",
    summary: "One row by the table's single-column primary key",
    scope: "db.read",
    responses: { 200: { description: "The row", schema: row } },
    async handler({ deps, resource: kap, params: { table = "", key = "" } }) {
      const column = await keyColumnOf(deps, kap, table);
      const sql = `select * from ${identifier(table)} where ${identifier(column)} = $1`;
      return { status: 200, body: await byKey(table, key, () => runAsKap(deps, kap, sql, [key], { readOnly: true })) };
    },
  }),
  ...dataRoutes({
    method: "PUT",
    suffix: "/db/tables/{table}/rows/{key}",
    summary: "Changes columns of one row; an explicit null stays null",
    scope: "db.write",
    body: columnValues,
    responses: { 200: { description: "The changed row", schema: row } },
    async handler({ deps, resource: kap, params: { table = "", key = "" }, body }) {
      const column = await keyColumnOf(deps, kap, table);
      const names = Object.keys(body);
      if (names.length === 0) throw invalid({ path: "", message: "names no column: send the columns to change" });
      const set = names.map((name, index) => `${identifier(name)} = $${index + 1}`).join(", ");
      const [from, keyName] = [identifier(table), identifier(column)];
      const sql = `update ${from} set ${set} where ${keyName} = $${names.length + 1} returning *`;
      try {
        return {
          status: 200,
          body: firstOf(await runAsKap(deps, kap, sql, [...Object.values(body), key], { readOnly: false }), table, key),
        };
      } catch (error) {
        // The key or one of the values is none of its type: whether it is the key, reading by it tells.
        if (isBadValue(error))
          await byKey(table, key, () => runAsKap(deps, kap, `select * from ${from} where ${keyName} = $1`, [key], { readOnly: true }));
        throw error;
      }
    },
  }),
  ...dataRoutes({
    method: "DELETE",
    suffix: "/db/tables/{table}/rows/{key}",
    summary: "Deletes one row and answers it",
    scope: "db.write",
    responses: { 200: { description: "The deleted row", schema: row } },
    async handler({ deps, resource: kap, params: { table = "", key = "" } }) {
      const column = await keyColumnOf(deps, kap, table);
      const sql = `delete from ${identifier(table)} where ${identifier(column)} = $1 returning *`;
      return { status: 200, body: await byKey(table, key, () => runAsKap(deps, kap, sql, [key], { readOnly: false })) };
    },
  }),
  ...dataRoutes({
    method: "GET",
    suffix: "/db/export",
    summary: "The whole database as SQL that psql loads",
    scope: "db.read",
    responses: { 200: { description: "A dump", contentType: "application/sql" } },
    async handler({ deps, resource: kap }) {
      return {
        status: 200,
        stream: Readable.from(dumpAsKap(deps, kap), { objectMode: false }),
        headers: { "content-type": "application/sql", "content-disposition": 'attachment; filename="store.sql"' },
      };
    },
  }),
];

/** The dump over a connection of the kap's own that lives as long as the download. */
export async function* dumpAsKap(deps: Deps, kap: KapRow): AsyncGenerator<string> {
  const client = await openKapClient(deps, kap);
  try {
    yield* dumpSchema(client, kap.schema_name);
  } finally {
    await client.end();
  }
}
