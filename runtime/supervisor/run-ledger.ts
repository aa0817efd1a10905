import type { Ended, Outcome } from "../seam/records.ts";

/** More than a board has slots: whatever a board still shows of ended runs is found here. */
const maxTold = 2_048;
const maxOutcomes = 1_000;

export interface KnownOutcome {
  outcome: Outcome;
  detail: string | null;
}

/** What this runtime has heard of the ends of runs lately. */
export class RunLedger {
  /** A child hands an end over before its board stops showing the run. */
  readonly told = new Set<string>();
  readonly #outcomes = new Map<string, KnownOutcome>();
  lastEndedAt = Date.now();

  note({ runs }: Ended): void {
    if (runs.length > 0) this.lastEndedAt = Date.now();
    for (const { id, outcome, detail } of runs) {
      this.told.add(id);
      if (this.told.size > maxTold) this.told.delete(this.told.values().next().value ?? "");
      if (outcome === "ok") continue;
      this.#outcomes.set(id, { outcome, detail });
      if (this.#outcomes.size > maxOutcomes) this.#outcomes.delete(this.#outcomes.keys().next().value ?? "");
    }
  }

  /** How a run ended that did not end well; null when it is not known (any more). */
  outcomeOf(runId: string): KnownOutcome | null {
    return this.#outcomes.get(runId) ?? null;
  }
}
