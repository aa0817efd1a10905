import { setTimeout as delay } from "node:timers/promises";
import { control } from "./runtime-client.ts";

const askMs = 1_000;
const patienceMs = 1_000;
const firstPauseMs = 5;
const longestPauseMs = 100;

/** What the gateway can learn of a run whose connection broke. */
export type LostAnswer =
  /** The supervisor has seen how it ended; its report ends the run's record. */
  | { kind: "known"; outcome: string; detail: string }
  /** The supervisor lives and cannot say: its report will, or no process has taken the run. */
  | { kind: "untold" }
  /** The supervisor is gone too: nobody will report this run. */
  | { kind: "gone" };

/**
 * Asks a runtime's supervisor how a run ended whose connection broke: it killed the process inside, or saw it die, and knows which limit it was.
 * `patient` waits for the word up to a second while a process has the run and may be ending; otherwise it is asked once.
 */
export async function askForOutcome(address: string, runId: string, patient: boolean): Promise<LostAnswer> {
  const until = Date.now() + patienceMs;
  for (let pause = firstPauseMs; ; pause = Math.min(longestPauseMs, pause * 2)) {
    const told = await control(address, "GET", `/outcome/${runId}`, undefined, askMs).catch(() => null);
    if (!told) return { kind: "gone" };
    if (told.status === 200) {
      const { outcome, detail } = told.body as { outcome: string; detail: string | null };
      return { kind: "known", outcome, detail: detail ?? "" };
    }
    if (told.status === 404 || !patient || Date.now() > until) return { kind: "untold" };
    await delay(pause);
  }
}

/** The status that stands for an outcome where the caller has no answer of the runtime (decided §7.4). */
export function statusOfLost(outcome: string): number {
  if (outcome === "cpu-exceeded" || outcome === "memory-exceeded") return 503;
  return outcome === "timeout" ? 504 : 502;
}
