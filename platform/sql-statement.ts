import type { PoolClient } from "pg";
import { checkStatement, SqlRefusal } from "./sql-guard.ts";
import { parameterText, type SqlParameter, type ValueReader, valueReader } from "./sql-values.ts";

/** Caps on one result (decided §7.2: 10,000 rows, 8 MiB). */
export interface ResultLimits {
  rows: number;
  bytes: number;
}

export interface SqlResult {
  rows: Record<string, unknown>[];
  row_count: number;
}

/** The part of pg's connection that a submitted query drives. */
interface WireConnection {
  parse(query: { text: string; name?: string; types?: number[] }): void;
  describe(target: { type: "S" | "P"; name?: string }): void;
  bind(portal: { statement?: string; values: (string | Buffer | null)[] }): void;
  execute(portal: { rows?: number }): void;
  flush(): void;
  sync(): void;
  on(event: string, listener: (message: { dataTypeIDs: number[] }) => void): void;
  off(event: string, listener: (message: { dataTypeIDs: number[] }) => void): void;
  stream: NodeJS.ReadableStream & { destroy(error?: Error): void; bytesRead: number };
}

interface Field {
  name: string;
  dataTypeID: number;
}

/** An error as PostgreSQL sends it. */
interface DatabaseError extends Error {
  code?: string;
  position?: string;
  detail?: string;
  hint?: string;
  table?: string;
  column?: string;
  constraint?: string;
}

/** What a statement's parameters and columns were when it was last described, per database user and text. Only speed hangs on it. */
const described = new Map<string, { parameters: number[] }>();
const maxDescribed = 2_000;
/** Longer texts are described each time: thousands of them would take hundreds of megabytes. */
const maxRememberedLength = 8_192;

/**
 * Runs exactly one guarded statement with parameters on a pg client, by the contract's rules for parameters and results.
 * The first use of a text describes it (one more round trip) so that parameters meet the types PostgreSQL expects.
 * @throws SqlRefusal INVALID_SQL, MULTIPLE_STATEMENTS, DUPLICATE_COLUMN_NAMES, RESULT_TOO_LARGE, STATEMENT_TIMEOUT; other errors are the connection's
 */
export function runStatement(client: PoolClient, sql: string, params: SqlParameter[], limits: ResultLimits): Promise<SqlResult> {
  checkStatement(sql);
  // A connection given up for the size of its result reports that as an error of the client too; the statement's refusal says it better.
  const quiet = (): void => undefined;
  client.on("error", quiet);
  const user = `${client.database ?? ""}/${client.user ?? ""}`;
  return new Promise<SqlResult>((resolve, reject) => {
    client.query(new GuardedStatement(sql, params, limits, `${user}/${sql}`, resolve, reject) as never);
  }).finally(() => client.off("error", quiet));
}

/** An object's name in one of PostgreSQL's own unique indexes, to which nobody writes but by DDL. */
const catalogIndex = /^pg_[a-z_]+_index$/;

/**
 * Does `work` once more when another session made the object of the same name while it did: `IF NOT EXISTS` looks before it writes, so of two programs that make
 * their table at the same moment PostgreSQL refuses one (23505 on a catalog). The second time it finds what is there. `work` is a statement or a whole transaction.
 */
export async function pastCatalogRace<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const details = error instanceof SqlRefusal ? error.details : null;
    if (details?.sqlstate !== uniqueViolation || !catalogIndex.test(String(details.constraint))) throw error;
    return await work();
  }
}

/** A query for `client.query`: pg calls `submit` and the `handle…` methods as messages arrive. */
class GuardedStatement {
  readonly text: string;
  readonly #params: SqlParameter[];
  readonly #limits: ResultLimits;
  readonly #cacheKey: string;
  readonly #resolve: (result: SqlResult) => void;
  readonly #reject: (error: unknown) => void;
  #connection: WireConnection | null = null;
  #names: string[] = [];
  #readers: ValueReader[] = [];
  #rows: Record<string, unknown>[] = [];
  #rowCount: number | null = null;
  #bytes = 0;
  #refusal: unknown = null;
  #isSynced = false;
  #isDescribing = false;
  #startBytes = 0;

  constructor(
    sql: string,
    params: SqlParameter[],
    limits: ResultLimits,
    cacheKey: string,
    resolve: (result: SqlResult) => void,
    reject: (error: unknown) => void,
  ) {
    this.text = sql;
    this.#params = params;
    this.#limits = limits;
    this.#cacheKey = cacheKey;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  submit(connection: WireConnection): void {
    this.#connection = connection;
    this.#startBytes = connection.stream.bytesRead;
    connection.stream.on("data", this.#watch);
    connection.parse({ text: this.text });
    const known = described.get(this.#cacheKey);
    if (known) {
      this.#execute(known.parameters);
      return;
    }
    this.#isDescribing = true;
    connection.on("parameterDescription", this.#described);
    connection.on("noData", this.#noColumns);
    connection.describe({ type: "S" });
    connection.flush();
  }

  /** One row can be larger than any result may be; it is never gathered whole: the connection is given up instead. */
  readonly #watch = (): void => {
    const connection = this.#connection;
    if (!connection || connection.stream.bytesRead - this.#startBytes < this.#limits.bytes * 3 + 1_048_576) return;
    this.#refusal = this.#tooLarge();
    connection.stream.destroy(new Error("a result was larger than a kap may read"));
  };

  #parameterTypes: number[] = [];

  readonly #described = (message: { dataTypeIDs: number[] }): void => {
    this.#parameterTypes = message.dataTypeIDs;
  };

  readonly #noColumns = (): void => {
    if (this.#isDescribing) this.#describeEnded([]);
  };

  /** The description ends with the columns, or with the word that there are none. */
  #describeEnded(fields: Field[]): void {
    this.#isDescribing = false;
    const duplicate = duplicateName(fields);
    if (duplicate !== null) {
      this.#abandon(duplicateRefusal(duplicate));
      return;
    }
    if (this.text.length <= maxRememberedLength) {
      if (described.size >= maxDescribed) described.delete(described.keys().next().value ?? "");
      described.set(this.#cacheKey, { parameters: this.#parameterTypes });
    }
    this.#execute(this.#parameterTypes);
  }

  #abandon(refusal: unknown): void {
    this.#refusal = refusal;
    this.#connection?.sync();
    this.#isSynced = true;
  }

  #execute(types: number[]): void {
    const connection = this.#connection as WireConnection;
    let values: (string | Buffer | null)[];
    try {
      if (types.length !== this.#params.length)
        throw new SqlRefusal("INVALID_SQL", `The statement has ${types.length} parameters, but ${this.#params.length} values were given.`);
      values = this.#params.map((value, index) => parameterText(value, types[index] ?? 0, index + 1));
    } catch (error) {
      this.#abandon(error);
      return;
    }
    connection.bind({ values });
    connection.describe({ type: "P", name: "" });
    connection.execute({ rows: this.#limits.rows + 1 });
    connection.sync();
    this.#isSynced = true;
  }

  handleRowDescription(message: { fields: Field[] }): void {
    if (this.#isDescribing) {
      this.#describeEnded(message.fields);
      return;
    }
    const duplicate = duplicateName(message.fields);
    if (duplicate !== null) this.#refusal ??= duplicateRefusal(duplicate);
    this.#names = message.fields.map((field) => field.name);
    this.#readers = message.fields.map((field) => valueReader(field.dataTypeID));
  }

  handleDataRow(message: { fields: (string | null)[] }): void {
    if (this.#refusal) return;
    const row = Object.create(null) as Record<string, unknown>;
    const { fields } = message;
    for (let index = 0; index < fields.length; index++) {
      const text = fields[index];
      this.#bytes += (text?.length ?? 4) + 4;
      row[this.#names[index] ?? ""] = text === null || text === undefined ? null : (this.#readers[index] as ValueReader)(text);
    }
    this.#rows.push(row);
    if (this.#bytes > this.#limits.bytes || this.#rows.length > this.#limits.rows) {
      this.#refusal = this.#tooLarge();
      this.#rows = [];
    }
  }

  #tooLarge(): SqlRefusal {
    const { rows, bytes } = this.#limits;
    return new SqlRefusal(
      "RESULT_TOO_LARGE",
      `The result is larger than ${rows} rows or ${bytes} bytes: select fewer rows or columns, or page with LIMIT and a key.`,
    );
  }

  handleCommandComplete(message: { text: string }): void {
    const count = /(\d+)$/.exec(message.text)?.[1];
    this.#rowCount = count === undefined ? null : Number(count);
  }

  /** More rows than the cap: the portal ends with the sync that is already on its way. */
  handlePortalSuspended(): void {
    this.#refusal ??= this.#tooLarge();
    this.#rows = [];
  }

  handleEmptyQuery(): void {
    this.#refusal ??= new SqlRefusal("INVALID_SQL", "There is no statement: send exactly one.");
  }

  handleCopyInResponse(connection: { sendCopyFail(message: string): void }): void {
    connection.sendCopyFail("COPY is refused");
  }

  handleCopyData(): void {
    this.#refusal ??= new SqlRefusal("INVALID_SQL", "COPY is refused.");
  }

  handleError(error: unknown): void {
    // Without a sync the server would wait for one before it takes the next statement.
    if (!this.#isSynced) this.#connection?.sync();
    this.#settle();
    described.delete(this.#cacheKey);
    this.#reject(this.#refusal ?? databaseRefusal(error));
  }

  handleReadyForQuery(): void {
    this.#settle();
    if (this.#refusal) {
      this.#reject(this.#refusal);
      return;
    }
    this.#resolve({ rows: this.#rows, row_count: this.#rowCount ?? this.#rows.length });
  }

  #settle(): void {
    this.#connection?.stream.removeListener("data", this.#watch);
    this.#connection?.off("parameterDescription", this.#described);
    this.#connection?.off("noData", this.#noColumns);
    this.#connection = null;
  }
}

function duplicateName(fields: Field[]): string | null {
  const seen = new Set<string>();
  for (const { name } of fields) {
    if (seen.has(name)) return name;
    seen.add(name);
  }
  return null;
}

const duplicateRefusal = (name: string): SqlRefusal =>
  new SqlRefusal("DUPLICATE_COLUMN_NAMES", `Two result columns are named ${JSON.stringify(name)}: give each its own name with AS.`);

const uniqueViolation = "23505";
const queryCanceled = "57014";
const diskFull = "53100";
/** The server ended the session, or never let it begin: no word about the statement. */
const sessionLost = /^(08|57P)/;

/** PostgreSQL's refusal in the contract's words; an error that is not about the statement (a lost connection) passes through. */
export function databaseRefusal(error: unknown): unknown {
  if (!(error instanceof Error) || !/^[0-9A-Z]{5}$/.test((error as DatabaseError).code ?? "")) return error;
  const { code = "", message, position, detail, hint, table, column, constraint } = error as DatabaseError;
  if (sessionLost.test(code)) return error;
  if (code === queryCanceled)
    return new SqlRefusal("STATEMENT_TIMEOUT", "The statement took longer than it may: narrow it, or add an index.", { sqlstate: code });
  const details: Record<string, string | number> = { sqlstate: code };
  if (position !== undefined) details.position = Number(position);
  for (const [name, value] of Object.entries({ detail, hint, table, column, constraint })) if (value !== undefined) details[name] = value;
  return new SqlRefusal(code === diskFull ? "QUOTA_EXCEEDED" : "INVALID_SQL", `PostgreSQL: ${message}`, details);
}
