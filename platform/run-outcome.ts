/** How a run ended (decided §7.3). */
export const outcomes = [
  "ok",
  "error",
  "timeout",
  "cpu-exceeded",
  "memory-exceeded",
  "response-too-large",
  "client-gone",
  "refused",
  "missed",
  "crashed",
] as const;
export type Outcome = (typeof outcomes)[number];

/** The same as a runtime knows them: a time that was `missed` never came to one. */
export type RuntimeOutcome = Exclude<Outcome, "missed">;
export const runtimeOutcomes: readonly RuntimeOutcome[] = outcomes.filter((outcome) => outcome !== "missed");

/** Reads whatever text says how a run ended; what is none of the known words is an error of the program. */
export function outcomeOf(text: string): Outcome {
  return outcomes.find((outcome) => outcome === text) ?? "error";
}
