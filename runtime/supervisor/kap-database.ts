import { connect } from "node:net";
import pg from "pg";
import type { Logger } from "#platform/log.ts";
import { loadSqlGuard, SqlRefusal } from "#platform/sql-guard.ts";
import { databaseRefusal, runStatement, type SqlResult } from "#platform/sql-statement.ts";
import type { Assignment, KapLimits } from "../seam/assignment.ts";
import { type HostAnswer, type HostCall, HostRefusal } from "./host-services.ts";

const maxConnections = 8;
const idleMs = 30_000;
const connectTimeoutMs = 5_000;
const cancelTimeoutMs = 2_000;
/** PostgreSQL protocol, "CancelRequest". */
const cancelRequestCode = 80_877_102;
const maxBatch = 100;

interface Statement {
  sql: string;
  params: unknown[];
}

/** A kap's own database, as its own login role. Each connection ends long statements by itself; the run's end cancels what is still going on. */
export class KapDatabase {
  readonly #pool: pg.Pool;
  readonly #config: pg.ClientConfig;
  readonly #log: Logger;
  readonly #guard = loadSqlGuard();

  constructor(database: Assignment["database"], log: Logger) {
    const { host, port, user, password } = database;
    this.#log = log;
    this.#config = { host, port, user, password, database: database.database, connectionTimeoutMillis: connectTimeoutMs };
    this.#pool = new pg.Pool({ ...this.#config, max: maxConnections, idleTimeoutMillis: idleMs, application_name: "kap", keepAlive: true });
    // A connection that breaks while idle is replaced at the next use; without a listener it would end the process.
    this.#pool.on("error", (error) => log.warn({ err: error }, "an idle database connection ended"));
  }

  async call(call: HostCall, limits: KapLimits): Promise<HostAnswer> {
    await this.#guard;
    const input = JSON.parse(call.text) as { sql?: unknown; params?: unknown; statements?: unknown };
    if (call.op === "db.query") return { text: JSON.stringify(await this.#query(statementOf(input), call, limits)) };
    if (call.op === "db.batch") return { text: JSON.stringify(await this.#batch(statementsOf(input.statements), call, limits)) };
    throw new HostRefusal("TypeError", `There is no host call ${call.op}.`);
  }

  #query(statement: Statement, call: HostCall, limits: KapLimits): Promise<SqlResult> {
    return this.#onConnection(call, limits, (client) => runStatement(client, statement.sql, statement.params, resultLimits(limits)));
  }

  #batch(statements: Statement[], call: HostCall, limits: KapLimits): Promise<SqlResult[]> {
    return this.#onConnection(call, limits, async (client) => {
      await client.query("begin");
      try {
        const results: SqlResult[] = [];
        const left = resultLimits(limits);
        for (const { sql, params } of statements) results.push(await runStatement(client, sql, params, left));
        await client.query("commit");
        return results;
      } catch (error) {
        await client.query("rollback");
        throw error;
      }
    });
  }

  /** Lends a connection; ends its statement on the statement's time or the run's end, whichever is first. A connection of doubtful state is not used again. */
  async #onConnection<T>(call: HostCall, limits: KapLimits, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const { signal } = call.run.abort;
    signal.throwIfAborted();
    const client = await this.#connect();
    // The run may have ended while this waited for a connection: nothing of it is begun any more.
    if (signal.aborted) {
      client.release();
      signal.throwIfAborted();
    }
    let isBroken = false;
    const onError = (): void => {
      isBroken = true;
    };
    client.on("error", onError);
    const cancel = (): void =>
      void this.#cancel(client).catch((error: unknown) => this.#log.warn({ err: error }, "a statement could not be cancelled"));
    const perStatement = call.op === "db.batch" ? limits.db_statement_ms * 4 : limits.db_statement_ms;
    const timer = setTimeout(cancel, Math.min(perStatement, call.remainingMs));
    signal.addEventListener("abort", cancel, { once: true });
    try {
      return await work(client);
    } catch (error) {
      if (!(error instanceof SqlRefusal)) isBroken = true;
      throw this.#shown(error);
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", cancel);
      client.off("error", onError);
      client.release(isBroken || signal.aborted);
    }
  }

  async #connect(): Promise<pg.PoolClient> {
    try {
      return await this.#pool.connect();
    } catch (error) {
      throw this.#shown(error);
    }
  }

  #shown(error: unknown): unknown {
    const refusal = databaseRefusal(error);
    if (refusal instanceof SqlRefusal) return refusal;
    this.#log.warn({ err: error }, "the kap's database could not be used");
    return new HostRefusal("SqlError", "The kap's database cannot be reached at the moment; try again.", "DATABASE_UNAVAILABLE");
  }

  /** PostgreSQL's cancel request, on a connection of its own: the busy one cannot be asked. */
  async #cancel(client: pg.PoolClient): Promise<void> {
    const { processID, secretKey } = client as pg.PoolClient & { processID?: number; secretKey?: number };
    if (processID === undefined || secretKey === undefined) return;
    const { host = "localhost", port = 5432 } = this.#config;
    const socket = host.startsWith("/") ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host);
    socket.setTimeout(cancelTimeoutMs, () => socket.destroy(new Error("no answer to the cancel request")));
    const request = Buffer.alloc(16);
    request.writeInt32BE(16, 0);
    request.writeInt32BE(cancelRequestCode, 4);
    request.writeInt32BE(processID, 8);
    request.writeInt32BE(secretKey, 12);
    socket.on("connect", () => socket.write(request));
    // The server answers by closing the connection.
    await new Promise<void>((resolve, reject) =>
      socket
        .on("error", reject)
        .on("close", () => resolve())
        .resume(),
    );
  }

  async close(): Promise<void> {
    await this.#pool.end();
  }
}

const resultLimits = (limits: KapLimits): { rows: number; bytes: number } => ({ rows: limits.db_rows, bytes: limits.db_result_bytes });

function statementOf(input: { sql?: unknown; params?: unknown }): Statement {
  const { sql, params = [] } = input;
  if (typeof sql !== "string") throw new HostRefusal("TypeError", "The SQL must be a text.");
  if (!Array.isArray(params)) throw new HostRefusal("TypeError", "The parameters must be an array.");
  return { sql, params };
}

function statementsOf(input: unknown): Statement[] {
  if (!Array.isArray(input) || input.length > maxBatch)
    throw new HostRefusal("TypeError", `A batch is an array of at most ${maxBatch} statements.`);
  return input.map((statement) => statementOf(statement as { sql?: unknown; params?: unknown }));
}
