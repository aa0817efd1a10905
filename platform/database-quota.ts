import type { ClientBase, Pool } from "pg";
import { type SizeEffect, SqlRefusal } from "./sql-guard.ts";

/** How old a measure may be, at least, before it is taken again; one that takes long is taken more rarely. */
const freshMs = 1_000;
const costFactor = 20;
/** Statements that only read, as far as their text tells, are followed by a measure this much more rarely. */
const readingFactor = 5;
/** A statement's own connection goes back before its measure is begun: the program's next one comes first. */
const delayMs = 200;
/** A size that cannot be measured for so long counts as one that is over. */
const unmeasuredMs = 60_000;
const readOnlyTransaction = "25006";

/** What a schema's relations take on disk: rows and indexes, dead and free space in them, and what is stored out of line. */
const sizeSql = `
  select coalesce(sum(pg_total_relation_size(c.oid)), 0)::float8 as bytes
  from kap_catalog.pg_class c where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'm', 'S')`;

/**
 * Holds a kap's database to its size (decided §7.2), in one process: the size is measured about once a second while statements run, beside them, and a
 * database that is over takes no more statements that could make it grow. So it can end up over by what the statements of about a second write,
 * and by those that are running then to their own limit. Once it is over, statements that free space work and are followed by a new measure, and
 * everything else reads in a transaction that cannot write: what a function does is not in the text of its call.
 */
export class DatabaseQuota {
  limitBytes: number;
  readonly #schemaName: string;
  readonly #onFailure: (error: unknown) => void;
  readonly #leastCeilingBytes: number;
  #bytes = 0;
  #measuredAt = Number.NEGATIVE_INFINITY;
  #intervalMs = freshMs;
  #failingSince: number | null = null;
  /** Statements that may have freed space, ever: a measure that one of them overtook is out of date when it comes. */
  #freed = 0;
  #timer: NodeJS.Timeout | undefined;

  /** `onFailure` hears of the first failure of a row of them. Statements that free space are refused too from twice the size on, or this much over it. */
  constructor(schemaName: string, limitBytes: number, onFailure: (error: unknown) => void, leastCeilingBytes: number = 1024 * 1024 * 1024) {
    this.#schemaName = schemaName;
    this.limitBytes = limitBytes;
    this.#leastCeilingBytes = leastCeilingBytes;
    this.#onFailure = onFailure;
  }

  get #isOver(): boolean {
    return this.#bytes > this.limitBytes || this.#isUnmeasurable;
  }

  get #isUnmeasurable(): boolean {
    return this.#failingSince !== null && performance.now() - this.#failingSince > unmeasuredMs;
  }

  /**
   * Before a statement, or before a batch for the most that one of it does: `true` when it must run in a transaction that cannot write. A database that
   * is known to be over is measured anew, on the given connection, before something is refused for it.
   * @throws SqlRefusal QUOTA_EXCEEDED
   */
  async admit(effect: SizeEffect, client: ClientBase): Promise<boolean> {
    if (!this.#isOver) return false;
    if (this.#isStale(1)) await this.measure(client);
    return this.#check(effect);
  }

  /** Before a statement of a transaction that is open: measures when it is time to, since a transaction may write for long. @throws SqlRefusal QUOTA_EXCEEDED */
  async admitWithin(effect: SizeEffect, client: ClientBase): Promise<void> {
    if (this.#isStale(1)) {
      // A measure that fails must not fail the transaction.
      await client.query("savepoint size");
      await this.measure(client);
      await client.query("rollback to size; release size");
    }
    this.#check(effect);
  }

  #check(effect: SizeEffect): boolean {
    if (!this.#isOver) return false;
    if (effect === "reads") return true;
    if (effect === "drops") return false;
    // Triggers and functions could fill the database by way of statements that free space: from here on only what cannot call any is taken.
    const isFar = this.#isUnmeasurable || this.#bytes > this.limitBytes + Math.max(this.limitBytes, this.#leastCeilingBytes);
    if (effect === "frees" && !isFar) return false;
    throw this.#refusal();
  }

  /** After a statement, whatever its end: what it freed holds at once, and the size is measured soon if that was long ago. */
  ran(effect: SizeEffect, pool: Pool): void {
    if (this.#isOver && effect !== "reads") {
      this.#freed += 1;
      this.#measuredAt = Number.NEGATIVE_INFINITY;
    }
    if (this.#timer || !this.#isStale(effect === "reads" ? readingFactor : 1)) return;
    this.#timer = setTimeout(() => {
      void this.#measureBeside(pool).finally(() => {
        this.#timer = undefined;
      });
    }, delayMs);
    this.#timer.unref();
  }

  #isStale(factor: number): boolean {
    return performance.now() - this.#measuredAt > this.#intervalMs * factor;
  }

  async #measureBeside(pool: Pool): Promise<void> {
    if (pool.ending) return;
    try {
      const client = await pool.connect();
      try {
        await this.measure(client);
      } finally {
        client.release();
      }
    } catch (error) {
      this.#failed(error);
    }
  }

  /** Measures now, on a connection of the kap's role. Answers whether the database is over its size; a failure leaves what was known. */
  async measure(client: ClientBase): Promise<boolean> {
    const began = performance.now();
    const freed = this.#freed;
    try {
      const { rows } = await client.query<{ bytes: number }>(sizeSql, [this.#schemaName]);
      this.#bytes = Number(rows[0]?.bytes ?? 0);
      this.#failingSince = null;
    } catch (error) {
      this.#failed(error);
    } finally {
      const ended = performance.now();
      this.#measuredAt = freed === this.#freed ? ended : Number.NEGATIVE_INFINITY;
      this.#intervalMs = Math.max(freshMs, (ended - began) * costFactor);
    }
    return this.#isOver;
  }

  #failed(error: unknown): void {
    if (this.#failingSince !== null) return;
    this.#failingSince = performance.now();
    this.#onFailure(error);
  }

  /** What a statement's error is when it was one that a transaction may not write which was made so by `admit`. */
  shown(error: unknown, wasReadOnly: boolean): unknown {
    return wasReadOnly && error instanceof SqlRefusal && error.details?.sqlstate === readOnlyTransaction ? this.#refusal() : error;
  }

  #refusal(): SqlRefusal {
    const fix = "DROP or TRUNCATE tables, or DELETE rows and VACUUM FULL their table; or ask the operator for more";
    return this.#isUnmeasurable
      ? new SqlRefusal(
          "QUOTA_EXCEEDED",
          `The size of the kap's database cannot be measured, for it has too many tables or one is locked for long: ${fix}.`,
        )
      : new SqlRefusal("QUOTA_EXCEEDED", `The kap's database holds ${this.#bytes} of ${this.limitBytes} bytes: ${fix}.`, {
          used_bytes: this.#bytes,
          limit_bytes: this.limitBytes,
        });
  }
}
