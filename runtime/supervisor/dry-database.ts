import pg from "pg";
import type { KapLimits } from "#platform/assignment.ts";
import { DatabaseQuota } from "#platform/database-quota.ts";
import type { Logger } from "#platform/log.ts";
import { checkStatement, loadSqlGuard, SqlRefusal } from "#platform/sql-guard.ts";
import { runStatement, type SqlResult } from "#platform/sql-statement.ts";
import { identifier } from "#platform/sql-text.ts";
import { type HostCall, HostRefusal } from "./host-call.ts";
import {
  cancelStatement,
  clientConfig,
  type KapLogin,
  resultLimits,
  shownDatabaseError,
  statementOf,
  statementsOf,
  unreachable,
} from "./kap-database.ts";

/** PostgreSQL itself ends the transaction this long after a dry run could last. */
const transactionGraceMs = 5_000;
const idleMs = 5_000;
const closeMs = 3_000;
const permissionDenied = "42501";
const lockNotAvailable = "55P03";

/** Dry runs of a kap use its database one after the other, also those of different runtimes: each holds the kap's sequences. */
export const dryRunBusy = (): HostRefusal =>
  new HostRefusal("SqlError", "Another dry run of this kap has the database: try again when it has ended.", "DRY_RUN_BUSY");

/**
 * The database of one dry run: one transaction on a connection of its own that is always rolled back. Each statement, and each batch, stands in a
 * savepoint, so that one that fails undoes only itself, as on a connection that commits every statement. The connection ends with the run: nothing of a
 * session stays either.
 */
export class DryDatabase {
  readonly #login: KapLogin;
  readonly #limits: KapLimits;
  readonly #log: Logger;
  #client: Promise<pg.Client> | null = null;
  /** The statement that is going on: they stand in one transaction, so they come one after the other. */
  #turn: Promise<unknown> = Promise.resolve();
  #lost: string | null = null;
  #closing: Promise<void> | null = null;
  readonly #quota: DatabaseQuota;
  /** The database was over its size when the run began: its transaction cannot write. */
  #mustRead = false;

  constructor(login: KapLogin, limits: KapLimits, log: Logger) {
    this.#login = login;
    this.#limits = limits;
    this.#log = log;
    this.#quota = new DatabaseQuota(login.schema, limits.db_bytes, (error) =>
      log.warn({ err: error }, "the size of the kap's database could not be measured"),
    );
  }

  /** Runs one statement. @throws SqlRefusal, HostRefusal */
  query(call: HostCall, input: { sql?: unknown; params?: unknown }): Promise<SqlResult> {
    const { sql, params } = statementOf(input);
    return this.#inTurn(call, this.#limits.db_statement_ms, (client) => this.#run(client, sql, params));
  }

  /** Runs statements of which all or none count; tells after each how many rows it had. @throws SqlRefusal, HostRefusal */
  batch(call: HostCall, input: unknown, ran: (index: number, result: SqlResult) => void): Promise<SqlResult[]> {
    const statements = statementsOf(input);
    return this.#inTurn(call, this.#limits.db_statement_ms * 4, async (client) => {
      const results: SqlResult[] = [];
      for (const { sql, params } of statements) {
        const result = await this.#run(client, sql, params);
        ran(results.length, result);
        results.push(result);
      }
      return results;
    });
  }

  async #run(client: pg.Client, sql: string, params: unknown[]): Promise<SqlResult> {
    await this.#quota.admitWithin(checkStatement(sql), client);
    return runStatement(client as pg.PoolClient, sql, params, resultLimits(this.#limits));
  }

  #inTurn<T>(call: HostCall, timeoutMs: number, work: (client: pg.Client) => Promise<T>): Promise<T> {
    const turn = this.#turn.then(() => this.#inSavepoint(call, timeoutMs, work));
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  async #inSavepoint<T>(call: HostCall, timeoutMs: number, work: (client: pg.Client) => Promise<T>): Promise<T> {
    const { signal } = call.run.abort;
    signal.throwIfAborted();
    const client = await this.#open();
    signal.throwIfAborted();
    this.#refuseLost();
    const cancel = (): void =>
      void cancelStatement(this.#login, client).catch((error: unknown) =>
        this.#log.warn({ err: error }, "a statement could not be cancelled"),
      );
    const timer = setTimeout(cancel, Math.min(timeoutMs, call.remainingMs));
    signal.addEventListener("abort", cancel, { once: true });
    try {
      await client.query("savepoint statement");
      const result = await work(client);
      // What is deferred to the commit would be checked by it. In a savepoint that is undone, so that it stays deferred in what follows.
      await client.query("savepoint ends; set constraints all immediate; rollback to ends; release statement");
      this.#stillIn(client);
      return result;
    } catch (error) {
      await this.#undo(client);
      throw this.#shown(error);
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", cancel);
    }
  }

  async #undo(client: pg.Client): Promise<void> {
    try {
      await client.query("rollback to statement; release statement");
      this.#stillIn(client);
    } catch {
      this.#lost ??= "the connection broke";
    }
  }

  /** Nothing a program may send ends a transaction; if something did, nothing more of this run would be let near the database. */
  #stillIn(client: pg.Client): void {
    if (client.getTransactionStatus() === "T") return;
    this.#lost ??= "the transaction is over";
    this.#log.error({ status: client.getTransactionStatus() }, "a dry run's statement ended its transaction");
  }

  #refuseLost(): void {
    if (this.#lost !== null)
      throw new HostRefusal(
        "SqlError",
        `The dry run has lost its database transaction (${this.#lost}). It must not stand idle for more than ${idleMs / 1_000} seconds, nor read a result that is too large.`,
        "DRY_RUN_LOST",
      );
  }

  #shown(error: unknown): unknown {
    const shown = this.#quota.shown(shownDatabaseError(error, this.#log), this.#mustRead);
    if (shown instanceof SqlRefusal && shown.details?.sqlstate === permissionDenied && /for sequence/.test(shown.message))
      return new SqlRefusal("INVALID_SQL", "setval() is refused in a dry run: it could not be taken back.", shown.details);
    return shown;
  }

  #open(): Promise<pg.Client> {
    if (this.#closing) throw new HostRefusal("SqlError", "The dry run has ended.");
    this.#client ??= this.#begin();
    return this.#client;
  }

  async #begin(): Promise<pg.Client> {
    await loadSqlGuard();
    const client = new pg.Client({
      ...clientConfig(this.#login),
      application_name: "kap dry run",
      // What it has locked others wait for: it lasts no longer than its run, and does not stand idle for long.
      options: `-c idle_in_transaction_session_timeout=${idleMs} -c transaction_timeout=${this.#limits.request_wall_ms + transactionGraceMs}`,
    });
    client.on("error", (error) => {
      this.#lost ??= "the connection ended";
      this.#log.warn({ err: error }, "the database connection of a dry run ended");
    });
    try {
      await client.connect();
      this.#mustRead = await this.#quota.measure(client);
      if (this.#mustRead) {
        await client.query("begin read only");
        return client;
      }
      await client.query("begin");
      // No rollback takes setval() back. It needs UPDATE; nextval(), whose gaps harm nothing, needs USAGE only.
      await client.query(`revoke update on all sequences in schema ${identifier(this.#login.schema)} from current_user`);
      return client;
    } catch (error) {
      this.#lost ??= "it could not be opened";
      await client.end().catch(() => undefined);
      if ((error as { code?: unknown }).code === lockNotAvailable) throw dryRunBusy();
      throw unreachable(error, this.#log);
    }
  }

  /** Rolls everything back and ends the session. Settles when PostgreSQL has done so, or its connection is cut, upon which it does. */
  close(): Promise<void> {
    this.#closing ??= this.#end();
    return this.#closing;
  }

  async #end(): Promise<void> {
    const client = await this.#client?.catch(() => null);
    if (!client) return;
    const cut = setTimeout(
      () => (client as pg.Client & { connection: { stream: { destroy(): void } } }).connection.stream.destroy(),
      closeMs,
    );
    try {
      await this.#turn;
      await client.query("rollback");
    } catch (error) {
      this.#log.warn({ err: error }, "a dry run's connection broke before its rollback, which PostgreSQL then does by itself");
    } finally {
      await client.end().catch(() => undefined);
      clearTimeout(cut);
    }
  }
}
