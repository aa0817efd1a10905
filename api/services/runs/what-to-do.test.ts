import { expect, test } from "vitest";
import { outcomes } from "#platform/run-outcome.ts";
import type { TriggerKind } from "#platform/trigger-kind.ts";
import { messageOf, whatToDo } from "./what-to-do.ts";

const kinds: TriggerKind[] = ["request", "schedule", "inbox"];

test("every outcome has its own advice and its own account of what happened, for every kind of trigger", () => {
  for (const trigger_kind of kinds) {
    const runs = outcomes.map(
      (outcome) =>
        ({
          status: outcome === "ok" ? "succeeded" : "failed",
          outcome,
          trigger_kind,
          attempts: 1,
          detail: null,
          duration_ms: 12.3,
        }) as const,
    );
    expect(new Set(runs.map(whatToDo)).size).toBe(outcomes.length);
    expect(new Set(runs.map(messageOf)).size).toBe(outcomes.length);
    for (const run of runs) {
      expect(whatToDo(run)).toMatch(/^[A-Z].{20,}\.$/);
      expect(messageOf(run)).toMatch(/^[A-Z].{10,}\.$/);
    }
  }
});

test("a run that has not ended says so, and a retry says that it is one", () => {
  const run = { status: "queued", outcome: null, trigger_kind: "inbox", attempts: 1, detail: null, duration_ms: null } as const;
  expect(messageOf(run)).toBe("The run waits to be started.");
  expect(messageOf({ ...run, detail: "Error: no" })).toBe("Attempt 1 failed; the next one follows.");
  expect(whatToDo({ ...run, status: "running" })).toBe("Nothing yet: it is running.");
});
