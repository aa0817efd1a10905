import type { Logger } from "#platform/log.ts";
import type { SqlRefusal } from "#platform/sql-guard.ts";
import type { Assignment } from "../seam/assignment.ts";
import { frameKind } from "../seam/frames.ts";
import { causeOf } from "./cause.ts";
import type { RuntimeChild } from "./child-process.ts";
import { DryRuns } from "./dry-runs.ts";
import { type HostAnswer, type HostCall, HostRefusal, type RunAccount } from "./host-call.ts";
import type { KapDatabase } from "./kap-database.ts";
import { KapStore } from "./kap-store.ts";
import { OutwardFetch } from "./outward-fetch.ts";

/** What a program that sends statements has in its text. */
const statementCalls = [".query(", ".batch("];

/** The services programs call, with the kap's credentials. Answers go back to the child that asked, while it and the run are alive. */
export class HostServices {
  readonly #log: Logger;
  readonly #fetch: OutwardFetch;
  /** Made for the first statement, or when the program looks as if one would come. */
  #database: Promise<KapDatabase> | null = null;
  #store: KapStore | null = null;
  #assignment: Assignment | null = null;
  /** Each child numbers its runs itself, and two may be at work. */
  readonly #runs = new Map<RuntimeChild, Map<number, RunAccount>>();
  readonly dryRuns: DryRuns;

  constructor(egressAllow: string[], log: Logger) {
    this.#log = log;
    this.#fetch = new OutwardFetch(egressAllow);
    this.dryRuns = new DryRuns(log);
  }

  assign(assignment: Assignment): void {
    const before = this.#assignment;
    this.#assignment = assignment;
    if (!before || JSON.stringify(before.database) !== JSON.stringify(assignment.database)) {
      this.#closeDatabase().catch((error: unknown) =>
        this.#log.warn({ cause: causeOf(error) }, "connections of former credentials could not be closed"),
      );
      this.#database = null;
    }
    if (this.#store) this.#store.assignment = assignment;
    else this.#store = new KapStore(assignment);
  }

  /** A program that sends statements finds client, parser and connection, or finds them being made: while the child loads it. */
  anticipate({ programBytes }: Assignment): void {
    if (!this.#assignment || this.#database || !statementCalls.some((text) => programBytes.includes(text))) return;
    this.#database = this.#openDatabase(this.#assignment);
    this.#database.then(
      (database) => database.open(),
      (error: unknown) => this.#log.warn({ cause: causeOf(error) }, "the kap's database could not be prepared"),
    );
  }

  /** Answers one `call` frame; never throws. */
  call(child: RuntimeChild, number: number, runKey: number, frameText: string, bytes: Uint8Array): void {
    const opEnd = frameText.indexOf("\0");
    const contextEnd = frameText.indexOf("\0", opEnd + 1);
    const remainingEnd = frameText.indexOf("\0", contextEnd + 1);
    const context = frameText.slice(opEnd + 1, contextEnd);
    const run = this.#account(child, runKey);
    const call: HostCall = {
      op: frameText.slice(0, opEnd),
      remainingMs: Number(frameText.slice(contextEnd + 1, remainingEnd)),
      text: frameText.slice(remainingEnd + 1),
      // The frame's bytes are a view that lives only as long as this call.
      bytes: bytes.length === 0 ? bytes : new Uint8Array(bytes),
      run,
      streamKey: (streamId) => `${child.pid}/${context}/${String(streamId)}`,
    };
    this.#answer(call).then(
      ({ text, bytes }) => child.send(frameKind.settle, number, 1, text, bytes),
      (error: unknown) => child.send(frameKind.settle, number, 0, this.#refusalText(error)),
    );
  }

  #account(child: RuntimeChild, runKey: number): RunAccount {
    let runs = this.#runs.get(child);
    if (!runs) {
      runs = new Map();
      this.#runs.set(child, runs);
    }
    let run = runs.get(runKey);
    if (!run) {
      run = { fetches: 0, abort: new AbortController(), streams: new Set(), dry: null };
      runs.set(runKey, run);
    }
    return run;
  }

  /** A run that is to leave nothing behind has arrived; its calls come after this. */
  beginDry(child: RuntimeChild, runKey: number, runId: string): void {
    if (!this.#assignment || !this.#store) return;
    const run = this.#account(child, runKey);
    run.dry = this.dryRuns.begin(runId, run, this.#assignment, this.#store);
  }

  async #answer(call: HostCall): Promise<HostAnswer> {
    const assignment = this.#assignment;
    if (!assignment || !this.#store) throw new HostRefusal("Error", "This runtime serves no kap.");
    if (call.run.dry) return call.run.dry.answer(call);
    const { limits } = assignment;
    if (call.op.startsWith("db.")) {
      this.#database ??= this.#openDatabase(assignment);
      return (await this.#database).call(call, limits);
    }
    if (call.op.startsWith("store.")) return this.#store.call(call);
    if (call.op === "fetch" || call.op.startsWith("fetch.")) return this.#fetch.call(call, limits);
    throw new HostRefusal("TypeError", `There is no host call ${call.op}.`);
  }

  #refusalText(error: unknown): string {
    if (isSqlRefusal(error)) {
      // A program tells one database error from another by its SQLSTATE, as with any client.
      const code = error.code === "INVALID_SQL" && error.details ? String(error.details.sqlstate) : error.code;
      return JSON.stringify({ name: error.name, message: error.message, code });
    }
    if (error instanceof HostRefusal) return JSON.stringify({ name: error.name, message: error.message, code: error.code });
    if (error instanceof Error && (error.name === "AbortError" || error.name === "TimeoutError"))
      return JSON.stringify({ name: error.name, message: "The call was ended with its run." });
    this.#log.error({ cause: causeOf(error) }, "a host call failed");
    return JSON.stringify({ name: "Error", message: "The host could not do this; it has been logged for the operator of the platform." });
  }

  /** A run has ended: what it still waits for is cancelled, its streams are closed. */
  forget(child: RuntimeChild, runKey: number): void {
    const runs = this.#runs.get(child);
    const run = runs?.get(runKey);
    if (!runs || !run) return;
    runs.delete(runKey);
    run.abort.abort();
    if (run.dry) void run.dry.close(run);
    this.#fetch.forget(run);
    this.#store?.forget(run);
  }

  /** The child is gone, and every run with it. */
  forgetAll(child: RuntimeChild): void {
    for (const key of [...(this.#runs.get(child)?.keys() ?? [])]) this.forget(child, key);
    this.#runs.delete(child);
  }

  /** A parser that cannot be loaded now may be at the next call. */
  async #openDatabase({ database }: Assignment): Promise<KapDatabase> {
    try {
      const { KapDatabase } = await import("./kap-database.ts");
      return new KapDatabase(database, this.#log);
    } catch (error) {
      this.#database = null;
      throw error;
    }
  }

  async #closeDatabase(): Promise<void> {
    await (await this.#database)?.close();
  }

  async close(): Promise<void> {
    for (const child of [...this.#runs.keys()]) this.forgetAll(child);
    await Promise.all([this.#closeDatabase(), this.#fetch.close()]);
  }
}

/** By its shape: the class lives beside the parser, which is not loaded here. */
const isSqlRefusal = (error: unknown): error is SqlRefusal => error instanceof Error && error.name === "SqlError" && "details" in error;
