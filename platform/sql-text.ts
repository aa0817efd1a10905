import type { ClientBase, Pool } from "pg";
import type { Db } from "./postgres.ts";

/** Whatever can run a statement: the process's pool, a transaction, or a plain client. */
export type SqlRunner = Db | ClientBase | Pool;

/** Runs one statement without parameters (DDL takes none) and returns its rows. What varies is quoted by `identifier` and `literal`. */
export async function runSql<T = Record<string, unknown>>(runner: SqlRunner, text: string): Promise<T[]> {
  // Knex reads `?` as a placeholder; escaped it is passed on as it is.
  if ("raw" in runner) return (await runner.raw<{ rows: T[] }>(text.replaceAll("?", "\\?"))).rows;
  return (await runner.query(text)).rows as T[];
}

/** A name as an SQL identifier. */
export function identifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** A text as an SQL literal, whatever `standard_conforming_strings` says. */
export function literal(text: string): string {
  const quoted = `'${text.replaceAll("'", "''")}'`;
  return text.includes("\\") ? ` E${quoted.replaceAll("\\", "\\\\")}` : quoted;
}
