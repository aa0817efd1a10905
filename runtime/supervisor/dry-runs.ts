import type { Logger } from "#platform/log.ts";
import type { Assignment } from "../seam/assignment.ts";
import type { DryReport } from "../seam/dry-report.ts";
import type { Ended } from "../seam/records.ts";
import { DryRun } from "./dry-run.ts";
import type { RunAccount } from "./host-call.ts";
import type { KapStore } from "./kap-store.ts";

/** How long the api waits with one question, and how long a report nobody asks for is kept. */
const waitMs = 10_000;
const keptMs = 60_000;

interface Known {
  run: DryRun;
  account: RunAccount;
  done: Promise<DryReport>;
  finish: (report: Promise<DryReport>) => void;
  hasEnded: boolean;
  timer: NodeJS.Timeout;
}

/** The dry runs of this runtime, by the id of the run: what they did goes to who asked for them and into no report. */
export class DryRuns {
  readonly #known = new Map<string, Known>();
  readonly #log: Logger;
  #lastTurn: Promise<void> = Promise.resolve();

  constructor(log: Logger) {
    this.#log = log;
  }

  begin(id: string, account: RunAccount, assignment: Assignment, store: KapStore): DryRun {
    const run = new DryRun(assignment, store, (until) => this.#turn(until), this.#log);
    const { promise, resolve } = Promise.withResolvers<DryReport>();
    const timer = this.#forgetLater(id, assignment.limits.request_wall_ms + keptMs);
    this.#known.set(id, { run, account, done: promise, finish: resolve, hasEnded: false, timer });
    return run;
  }

  #forgetLater(id: string, ms: number): NodeJS.Timeout {
    return setTimeout(() => this.#known.delete(id), ms).unref();
  }

  /** They have the database one after the other: two that handle the same mail would only wait for each other's rows, inside their transactions. */
  #turn(until: Promise<void>): Promise<void> {
    const mine = this.#lastTurn;
    this.#lastTurn = mine.then(() => until);
    return mine;
  }

  /** Takes ends and lines of dry runs out of what a child, or its board, tells; answers the rest, which is to be reported. */
  take(ended: Ended): Ended {
    if (this.#known.size === 0) return ended;
    for (const line of ended.lines) this.#known.get(line.run_id)?.run.addLine(line);
    for (const end of ended.runs) {
      const known = this.#known.get(end.id);
      if (!known || known.hasEnded) continue;
      known.hasEnded = true;
      clearTimeout(known.timer);
      known.timer = this.#forgetLater(end.id, keptMs);
      known.finish(known.run.close(known.account).then(() => known.run.report(end)));
    }
    return {
      runs: ended.runs.filter(({ id }) => !this.#known.has(id)),
      lines: ended.lines.filter(({ run_id }) => !this.#known.has(run_id)),
    };
  }

  /** The report of a dry run, once everything of the run has been undone; it is told once. Null when there is none within ten seconds. */
  async report(id: string): Promise<DryReport | null> {
    const known = this.#known.get(id);
    if (!known) return null;
    const late = new Promise<null>((resolve) => setTimeout(() => resolve(null), waitMs).unref());
    const report = await Promise.race([known.done, late]);
    if (report) {
      clearTimeout(known.timer);
      this.#known.delete(id);
    }
    return report;
  }
}
