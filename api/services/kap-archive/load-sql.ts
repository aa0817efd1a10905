import { createReadStream } from "node:fs";
import pg from "pg";
import { checkStatement, loadSqlGuard, SqlRefusal } from "#platform/sql-guard.ts";
import { databaseRefusal } from "#platform/sql-statement.ts";
import type { Deps } from "../../deps.ts";
import { databaseBytes } from "../../gateway/limits.ts";
import { Refusal } from "../../http/refusal.ts";
import { badArchive } from "./archive-refusal.ts";
import { ScriptError, sqlStatements } from "./sql-statements.ts";

const mebibyte = 1024 * 1024;
/** A row larger than this cannot be loaded: a statement stands in memory. */
const maxStatementLength = 64 * mebibyte;
/** The parser of the guard takes statements up to this size; larger ones must be plain inserts. */
const maxGuardedBytes = 256 * 1024;
/** Statements that go to the server together. */
const batchLength = 256 * 1024;
const loadMs = 10 * 60_000;
const statementMs = 60_000;
/** How often the size of the database is looked at while it is loaded. */
const batchesBetweenMeasures = 64;

/** What the dump sets for the one who loads it; the loader's connection is set so by itself, and runs none of it. */
const preamble = new Set([
  "set client_encoding = 'UTF8'",
  "set standard_conforming_strings = on",
  "set check_function_bodies = off",
  "set datestyle = 'ISO, YMD'",
  "set intervalstyle = 'postgres'",
  "set timezone = 'UTC'",
  "set client_min_messages = warning",
  "begin",
  "commit",
]);
const sessionSettings = {
  standard_conforming_strings: "on",
  check_function_bodies: "off",
  datestyle: "ISO,YMD",
  intervalstyle: "postgres",
  timezone: "UTC",
  client_min_messages: "error",
  statement_timeout: String(statementMs),
  transaction_timeout: "0",
};

/** Where a script is loaded: a kap's schema, as its role. */
export interface LoadTarget {
  schemaName: string;
  roleName: string;
  password: string;
}

/**
 * Loads a script as the kap's own role, which may do nothing outside its schema: never as the platform. Each statement is held to the rules of `db.query` before it
 * is sent, so what is no part of a dump is refused by name (422). What has run stays: the caller drops the schema when this throws.
 */
export async function loadSql(deps: Deps, target: LoadTarget, path: string, signal: AbortSignal): Promise<void> {
  await loadSqlGuard();
  const client = connectAs(deps, target);
  const limit = AbortSignal.any([signal, AbortSignal.timeout(loadMs)]);
  const cut = (): void => void client.end().catch(() => undefined);
  await client.connect();
  limit.addEventListener("abort", cut, { once: true });
  try {
    await runScript(deps, client, target, path);
    limit.throwIfAborted();
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    if (limit.aborted) throw badArchive("store.sql", `takes longer to load than ${loadMs / 60_000} minutes`);
    throw asRefusal(error);
  } finally {
    limit.removeEventListener("abort", cut);
    await client.end();
  }
}

function connectAs(deps: Deps, target: LoadTarget): pg.Client {
  const url = new URL(deps.config.databaseUrl);
  url.username = target.roleName;
  url.password = encodeURIComponent(target.password);
  const options = Object.entries({ ...sessionSettings, search_path: target.schemaName })
    .map(([name, value]) => `-c ${name}=${value}`)
    .join(" ");
  const client = new pg.Client({
    connectionString: url.href,
    connectionTimeoutMillis: 5_000,
    query_timeout: statementMs * 2,
    application_name: "kapstone-import",
    options,
  });
  client.on("error", () => undefined);
  return client;
}

async function runScript(deps: Deps, client: pg.Client, target: LoadTarget, path: string): Promise<void> {
  let batch = "";
  let batches = 0;
  const flush = async (): Promise<void> => {
    if (batch === "") return;
    await client.query(batch);
    batch = "";
    if (++batches % batchesBetweenMeasures === 0) await checkSize(deps, target);
  };
  for await (const statement of sqlStatements(createReadStream(path, { encoding: "utf8" }), maxStatementLength)) {
    if (preamble.has(withoutLeadingComments(statement))) continue;
    if (Buffer.byteLength(statement) > maxGuardedBytes) {
      if (!/^insert\s+into\s/i.test(statement))
        throw new ScriptError(`a statement that is no INSERT is longer than ${maxGuardedBytes} bytes`);
      await flush();
      await client.query({ text: statement, queryMode: "extended" } as pg.QueryConfig); // the server takes one statement only
      continue;
    }
    checkStatement(statement);
    batch += `${statement};\n`;
    if (batch.length > batchLength) await flush();
  }
  await flush();
  await checkSize(deps, target);
}

function withoutLeadingComments(statement: string): string {
  return statement.replace(/^(?:\s*--[^\n]*\n)+/, "").trim();
}

/** Refuses with 422 `QUOTA_EXCEEDED` when what is loaded is larger than a kap's database may be. */
async function checkSize(deps: Deps, target: LoadTarget): Promise<void> {
  const limit = databaseBytes(deps.config);
  const { rows } = await deps.db.raw<{ rows: { bytes: string }[] }>(
    `select coalesce(sum(pg_total_relation_size(c.oid)), 0)::text as bytes from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = ? and c.relkind in ('r', 'm', 'p')`,
    [target.schemaName],
  );
  const bytes = Number(rows[0]?.bytes ?? 0);
  if (bytes <= limit) return;
  const message = `store.sql: it makes a database of more than the ${limit} bytes a kap may have: import less, or ask the operator for more`;
  throw new Refusal(422, "QUOTA_EXCEEDED", message, { details: { used_bytes: bytes, limit_bytes: limit } });
}

function asRefusal(error: unknown): unknown {
  if (error instanceof ScriptError) return badArchive("store.sql", error.message);
  const known = error instanceof SqlRefusal ? error : databaseRefusal(error);
  return known instanceof SqlRefusal ? badArchive("store.sql", known.message) : error;
}
