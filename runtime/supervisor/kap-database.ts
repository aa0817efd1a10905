import pg from "pg";
import type { KapLimits } from "#platform/assignment.ts";
import { DatabaseQuota } from "#platform/database-quota.ts";
import { sslOf } from "#platform/database-tls.ts";
import { impatientSocket } from "#platform/lasting-connection.ts";
import type { Logger } from "#platform/log.ts";
import { checkStatement, loadSqlGuard, mostEffect, type SizeEffect, SqlRefusal } from "#platform/sql-guard.ts";
import { databaseRefusal, pastCatalogRace, runStatement, type SqlResult } from "#platform/sql-statement.ts";
import type { Assignment } from "../seam/assignment.ts";
import { causeOf } from "./cause.ts";
import { type HostAnswer, type HostCall, HostRefusal } from "./host-call.ts";

const maxConnections = 8;
const idleMs = 30_000;
const connectTimeoutMs = 5_000;
const cancelTimeoutMs = 2_000;
const maxBatch = 100;

/** How to log in as the kap's role. */
export type KapLogin = Assignment["database"];

interface Statement {
  sql: string;
  params: unknown[];
}

/** A kap's own database, as its own login role. Each connection ends long statements by itself; the run's end cancels what is still going on. */
export class KapDatabase {
  readonly #pool: pg.Pool;
  readonly #login: KapLogin;
  readonly #log: Logger;
  readonly #guard = loadSqlGuard();
  readonly #quota: DatabaseQuota;
  #opening: Promise<void> | null = null;

  constructor(login: KapLogin, log: Logger) {
    this.#log = log;
    this.#login = login;
    this.#quota = new DatabaseQuota(login.schema, Number.POSITIVE_INFINITY, (error) =>
      log.warn({ err: error }, "the size of the kap's database could not be measured"),
    );
    this.#pool = new pg.Pool({
      ...clientConfig(login),
      max: maxConnections,
      idleTimeoutMillis: idleMs,
      application_name: "kap",
      keepAlive: true,
    });
    // A connection that breaks while idle is replaced at the next use; without a listener it would end the process.
    this.#pool.on("error", (error) => log.warn({ cause: causeOf(error) }, "an idle database connection ended"));
    this.#pool.on("connect", (client) => client.on("error", () => undefined)); // while it is held: its holder's next statement tells
  }

  /** Makes the first connection before a statement needs one; it waits for this one then. What keeps it from being made, that statement tells. */
  open(): void {
    const opened = this.#pool.connect().then(
      (client) => client.release(),
      () => undefined,
    );
    this.#opening = opened.then(() => {
      this.#opening = null;
    });
  }

  async call(call: HostCall, limits: KapLimits): Promise<HostAnswer> {
    await this.#guard;
    this.#quota.limitBytes = limits.db_bytes;
    const input = JSON.parse(call.text) as { sql?: unknown; params?: unknown; statements?: unknown };
    if (call.op === "db.query") return { text: JSON.stringify(await this.#query(statementOf(input), call, limits)) };
    if (call.op === "db.batch") return { text: JSON.stringify(await this.#batch(statementsOf(input.statements), call, limits)) };
    throw new HostRefusal("TypeError", `There is no host call ${call.op}.`);
  }

  #query(statement: Statement, call: HostCall, limits: KapLimits): Promise<SqlResult> {
    const effect = checkStatement(statement.sql);
    const run = (client: pg.PoolClient): Promise<SqlResult> => runStatement(client, statement.sql, statement.params, resultLimits(limits));
    return this.#onConnection(call, limits, effect, async (client) =>
      (await this.#quota.admit(effect, client)) ? this.#inTransaction(client, true, () => run(client)) : run(client),
    );
  }

  #batch(statements: Statement[], call: HostCall, limits: KapLimits): Promise<SqlResult[]> {
    const effects = statements.map(({ sql }) => checkStatement(sql));
    const most = mostEffect(effects);
    return this.#onConnection(call, limits, most, async (client) => {
      const mustRead = await this.#quota.admit(most, client);
      return this.#inTransaction(client, mustRead, async () => {
        const results: SqlResult[] = [];
        const left = resultLimits(limits);
        for (const [index, { sql, params }] of statements.entries()) {
          if (index > 0) await this.#quota.admitWithin(effects[index] ?? "grows", client);
          results.push(await runStatement(client, sql, params, left));
        }
        return results;
      });
    });
  }

  async #inTransaction<T>(client: pg.PoolClient, mustRead: boolean, work: () => Promise<T>): Promise<T> {
    await client.query(mustRead ? "begin read only" : "begin");
    try {
      const result = await work();
      await client.query("commit");
      return result;
    } catch (error) {
      await client.query("rollback");
      throw this.#quota.shown(error, mustRead);
    }
  }

  /** Lends a connection; ends its statement on the statement's time or the run's end, whichever is first. A connection of doubtful state is not used again. */
  async #onConnection<T>(call: HostCall, limits: KapLimits, effect: SizeEffect, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
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
      void cancelStatement(this.#login, client).catch((error: unknown) =>
        this.#log.warn({ cause: causeOf(error) }, "a statement could not be cancelled"),
      );
    const perStatement = call.op === "db.batch" ? limits.db_statement_ms * 4 : limits.db_statement_ms;
    const timer = setTimeout(cancel, Math.min(perStatement, call.remainingMs));
    signal.addEventListener("abort", cancel, { once: true });
    try {
      return await pastCatalogRace(() => work(client));
    } catch (error) {
      if (!(error instanceof SqlRefusal)) isBroken = true;
      throw shownDatabaseError(error, this.#log);
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", cancel);
      client.off("error", onError);
      client.release(isBroken || signal.aborted);
      this.#quota.ran(effect, this.#pool);
    }
  }

  async #connect(): Promise<pg.PoolClient> {
    try {
      await this.#opening;
      return await this.#pool.connect();
    } catch (error) {
      throw unreachable(error, this.#log);
    }
  }

  async close(): Promise<void> {
    await this.#opening;
    await this.#pool.end();
  }
}

export const clientConfig = ({ host, port, user, password, database, tls }: KapLogin): pg.ClientConfig => ({
  host,
  port,
  user,
  password,
  database,
  ssl: sslOf(tls),
  connectionTimeoutMillis: connectTimeoutMs,
});

/** What a program is told of a database error: PostgreSQL's refusal in the contract's words, or that the database cannot be reached. */
export function shownDatabaseError(error: unknown, log: Logger): unknown {
  if (error instanceof HostRefusal) return error;
  const refusal = databaseRefusal(error);
  return refusal instanceof SqlRefusal ? refusal : unreachable(error, log);
}

/** What a program is told when its session cannot be used, or made at all, whatever the server says: the cause is for those who run the platform, in the log. */
export function unreachable(error: unknown, log: Logger): HostRefusal {
  log.warn({ cause: causeOf(error) }, "the kap's database could not be used");
  return new HostRefusal("SqlError", "The kap's database cannot be reached at the moment; try again.", "DATABASE_UNAVAILABLE");
}

/** What pg's client stands on, and its types leave out. */
interface WireConnection extends pg.Connection {
  connect(portOrPath: number | string, host?: string): void;
  requestSsl(): void;
  cancel(processID: number, secretKey: number): void;
}

/** PostgreSQL's cancel request for what a client is doing, on a connection of its own: the busy one cannot be asked. Encrypted as that one is. */
export async function cancelStatement({ host, port, tls }: KapLogin, client: pg.ClientBase): Promise<void> {
  const { processID, secretKey } = client as pg.ClientBase & { processID?: number; secretKey?: number };
  if (processID === undefined || secretKey === undefined) return;
  const connection = new pg.Connection({ ssl: sslOf(tls), stream: () => impatientSocket(cancelTimeoutMs) }) as WireConnection;
  const cancel = (): void => connection.cancel(processID, secretKey);
  // The server answers by closing the connection.
  await new Promise<void>((resolve, reject) => {
    connection
      .on("connect", () => (tls ? connection.requestSsl() : cancel()))
      .on("sslconnect", () => connection.stream.once("secureConnect", cancel))
      .on("error", reject)
      .on("end", resolve);
    if (host.startsWith("/")) connection.connect(`${host}/.s.PGSQL.${port}`);
    else connection.connect(port, host);
  });
}

export const resultLimits = (limits: KapLimits): { rows: number; bytes: number } => ({
  rows: limits.db_rows,
  bytes: limits.db_result_bytes,
});

export function statementOf(input: { sql?: unknown; params?: unknown }): Statement {
  const { sql, params = [] } = input;
  if (typeof sql !== "string") throw new HostRefusal("TypeError", "The SQL must be a text.");
  if (!Array.isArray(params)) throw new HostRefusal("TypeError", "The parameters must be an array.");
  return { sql, params };
}

export function statementsOf(input: unknown): Statement[] {
  if (!Array.isArray(input) || input.length > maxBatch)
    throw new HostRefusal("TypeError", `A batch is an array of at most ${maxBatch} statements.`);
  return input.map((statement) => statementOf(statement as { sql?: unknown; params?: unknown }));
}
