import type { ClientBase } from "pg";
import Cursor from "pg-cursor";
import { identifier, literal } from "#platform/sql-text.ts";
import { readCatalog, type SchemaObject } from "./sql-catalog.ts";

const batchRows = 500;

/**
 * Everything in a kap's schema as SQL that `psql -f` loads into an empty PostgreSQL: types, functions, sequences, tables, rows as INSERT (any client loads it),
 * then constraints, indexes, views, triggers and comments. One REPEATABLE READ snapshot; rows are read by cursor, so memory is constant.
 * The client must be logged in as the kap's role with the schema as its search_path: names come out unqualified.
 */
export async function* dumpSchema(client: ClientBase, schema: string): AsyncGenerator<string> {
  await client.query("begin isolation level repeatable read read only");
  try {
    await client.query("set local statement_timeout = 0");
    await client.query("set local datestyle = 'ISO, YMD'");
    await client.query("set local intervalstyle = 'postgres'");
    await client.query("set local extra_float_digits = 3");
    await client.query("set local bytea_output = 'hex'");
    await client.query("set local timezone = 'UTC'");
    yield "-- A kap's database. Load it into an empty database: psql -f store.sql\n";
    yield "set client_encoding = 'UTF8';\nset standard_conforming_strings = on;\nset check_function_bodies = off;\nset datestyle = 'ISO, YMD';\nset intervalstyle = 'postgres';\nset timezone = 'UTC';\nset client_min_messages = warning;\n\nbegin;\n";
    const objects = await readCatalog(client, schema);
    for (const object of objects.filter((entry) => entry.phase === "before")) yield `\n${object.sql}\n`;
    for (const object of objects) if (object.table) yield* dumpRows(client, schema, object.table);
    for (const object of objects.filter((entry) => entry.phase === "after")) yield `\n${object.sql}\n`;
    yield "\ncommit;\n";
  } finally {
    await client.query("rollback");
  }
}

/** The rows of one table as INSERT statements, one per row; generated columns are left to be generated. */
async function* dumpRows(client: ClientBase, schema: string, table: NonNullable<SchemaObject["table"]>): AsyncGenerator<string> {
  if (table.columns.length === 0) {
    const { rows } = await client.query<{ n: string }>(`select count(*) as n from ${identifier(schema)}.${identifier(table.name)}`);
    for (let i = 0; i < Number(rows[0]?.n ?? 0); i++) yield `insert into ${identifier(table.name)} default values;\n`;
    return;
  }
  const names = table.columns.map(identifier);
  const head = `insert into ${identifier(table.name)} (${names.join(", ")})${table.hasIdentity ? " overriding system value" : ""} values (`;
  const only = table.isPartitioned ? "" : "only ";
  const cursor = client.query(
    new Cursor<(string | null)[]>(
      `select ${names.map((name) => `${name}::text`).join(", ")} from ${only}${identifier(schema)}.${identifier(table.name)}`,
      [],
      {
        rowMode: "array",
      },
    ),
  );
  try {
    for (;;) {
      const rows = await cursor.read(batchRows);
      if (rows.length === 0) return;
      yield rows.map((row) => `${head}${row.map((value) => (value === null ? "null" : literal(value))).join(", ")});\n`).join("");
    }
  } finally {
    await cursor.close();
  }
}
