import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "#platform/log.ts";
import type { Assignment } from "../seam/assignment.ts";
import type { DatabaseEffect, DeleteEffect, DryEffect, DryReport, PutEffect } from "../seam/dry-report.ts";
import type { LogLine, RunEnd } from "../seam/records.ts";
import { secretRedactor } from "../seam/redaction.ts";
import type { DryDatabase } from "./dry-database.ts";
import { DryStore } from "./dry-store.ts";
import { type DryAnswers, type HostAnswer, type HostCall, HostRefusal, type RunAccount } from "./host-call.ts";
import type { KapStore } from "./kap-store.ts";

const maxEffects = 1_000;
const maxTextLength = 4_096;
/** How long a dry run waits for the one that has the database. */
const turnMs = 5_000;

/** One dry run: what it asks of the host is answered from a transaction and an overlay, refused, and noted in the order in which it was asked. */
export class DryRun implements DryAnswers {
  readonly #assignment: Assignment;
  readonly #store: DryStore;
  readonly #log: Logger;
  readonly #redact: (text: string) => string;
  readonly #effects: DryEffect[] = [];
  readonly #lines: LogLine[] = [];
  #droppedEffects = 0;
  #batches = 0;
  #database: Promise<DryDatabase> | null = null;
  #isOver = false;
  readonly #over = Promise.withResolvers<void>();
  readonly #undone = Promise.withResolvers<void>();
  readonly #turn: (until: Promise<void>) => Promise<void>;

  /** `turn` settles when the run may open its transaction, and keeps the next dry run waiting until the given promise settles. */
  constructor(assignment: Assignment, store: KapStore, turn: (until: Promise<void>) => Promise<void>, log: Logger) {
    this.#turn = turn;
    this.#assignment = assignment;
    this.#store = new DryStore(store);
    this.#log = log;
    this.#redact = secretRedactor(assignment.secrets);
  }

  /** Answers a host call of the run. @throws HostRefusal, SqlRefusal */
  async answer(call: HostCall): Promise<HostAnswer> {
    switch (call.op) {
      case "db.query":
        return this.#query(call);
      case "db.batch":
        return this.#batch(call);
      case "store.put": {
        const input = JSON.parse(call.text) as Parameters<DryStore["put"]>[1];
        const effect = this.#note<PutEffect>({
          kind: "store.put",
          key: this.#shown(input.key),
          existed: null,
          bytes: null,
          content_type: null,
          error: null,
        });
        await this.#noting(effect, async () => Object.assign(effect, { ...(await this.#store.put(call, input)), key: effect.key }));
        return {};
      }
      case "store.delete": {
        const input = JSON.parse(call.text) as { key: string };
        const effect = this.#note<DeleteEffect>({ kind: "store.delete", key: this.#shown(input.key), existed: null, error: null });
        await this.#noting(effect, async () => Object.assign(effect, { ...(await this.#store.delete(call, input)), key: effect.key }));
        return {};
      }
      case "fetch": {
        const { method, url } = JSON.parse(call.text) as { method: string; url: string };
        this.#note({ kind: "fetch", method: this.#shown(method), url: this.#shown(url) });
        const shown = URL.canParse(url) ? new URL(url).origin : "the address";
        throw new HostRefusal("TypeError", `fetch is refused in a dry run: ${method} to ${shown} was noted and not sent.`, "DRY_RUN");
      }
      case "fetch.cancel":
        return {};
      case "dry.wait-until":
        this.#note({ kind: "wait-until" });
        return {};
    }
    if (call.op.startsWith("store.")) return this.#store.read(call);
    throw new HostRefusal("TypeError", `${call.op} is refused in a dry run.`, "DRY_RUN");
  }

  async #query(call: HostCall): Promise<HostAnswer> {
    const input = JSON.parse(call.text) as { sql: string };
    const effect = this.#note<DatabaseEffect>({ kind: "db", sql: this.#shown(input.sql), row_count: null, batch: null, error: null });
    const result = await this.#noting(effect, async () => (await this.#open()).query(call, input));
    effect.row_count = result.row_count;
    return { text: JSON.stringify(result) };
  }

  async #batch(call: HostCall): Promise<HostAnswer> {
    const { statements } = JSON.parse(call.text) as { statements: { sql: string }[] };
    const batch = ++this.#batches;
    const effects = statements.map(({ sql }) =>
      this.#note<DatabaseEffect>({ kind: "db", sql: this.#shown(sql), row_count: null, batch, error: null }),
    );
    let done = 0;
    try {
      const results = await (await this.#open()).batch(call, statements, (index, { row_count }) => {
        const effect = effects[index];
        if (effect) effect.row_count = row_count;
        done = index + 1;
      });
      return { text: JSON.stringify(results) };
    } catch (error) {
      const failed = Math.min(done, effects.length - 1);
      effects.forEach((effect, index) => {
        effect.error =
          index === failed ? this.#shown(messageOf(error)) : index < failed ? "undone with its batch" : "not run: its batch had failed";
      });
      throw error;
    }
  }

  #open(): Promise<DryDatabase> {
    if (this.#isOver) throw ended();
    this.#database ??= this.#openDatabase(this.#assignment);
    return this.#database;
  }

  /** Loaded with the first dry run that asks: client and parser are a good part of this process's memory. */
  async #openDatabase({ database, limits }: Assignment): Promise<DryDatabase> {
    const { DryDatabase, dryRunBusy } = await import("./dry-database.ts");
    const mayBegin = this.#turn(this.#undone.promise).then(() => true);
    const waited = new AbortController();
    const late = delay(turnMs, false, { signal: waited.signal }).catch(() => false);
    const hasTurn = await Promise.race([mayBegin, this.#over.promise.then(() => false), late]);
    waited.abort();
    if (this.#isOver) throw ended();
    if (!hasTurn) throw dryRunBusy();
    return new DryDatabase(database, limits, this.#log);
  }

  #note<E extends DryEffect>(effect: E): E {
    if (this.#effects.length < maxEffects) this.#effects.push(effect);
    else this.#droppedEffects++;
    return effect;
  }

  async #noting<T>(effect: { error: string | null }, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      effect.error = this.#shown(messageOf(error));
      throw error;
    }
  }

  /** Programs write secrets into addresses and statements; what people read shows their names (decided §7.3). */
  #shown(text: string): string {
    const shown = this.#redact(String(text));
    return shown.length > maxTextLength ? `${shown.slice(0, maxTextLength)} … [cut]` : shown;
  }

  addLine(line: LogLine): void {
    this.#lines.push(line);
  }

  /** Undoes everything; safe to repeat. Settles when nothing of the run is left. */
  async close(run: RunAccount): Promise<void> {
    this.#isOver = true;
    this.#over.resolve();
    run.abort.abort();
    this.#store.forget(run);
    const database = await this.#database?.catch(() => null);
    await database?.close();
    this.#undone.resolve();
  }

  report(end: RunEnd): DryReport {
    return { end, effects: this.#effects, effects_dropped: this.#droppedEffects, lines: this.#lines };
  }
}

const ended = (): HostRefusal => new HostRefusal("SqlError", "The dry run has ended.");
const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
