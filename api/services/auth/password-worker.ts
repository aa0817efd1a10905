import { type Argon2Parameters, argon2Sync } from "node:crypto";
import { setPriority } from "node:os";
import { parentPort } from "node:worker_threads";

/** What the thread is asked, and what it answers. */
export interface HashQuestion {
  id: number;
  parameters: Argon2Parameters;
}
export type HashAnswer = { id: number; tag: Uint8Array } | { id: number; problem: string };

// A third of the weight of the thread that answers requests; much less, and nobody could sign in on a machine that others keep busy.
const niceness = 5;
// On Linux the call is about this thread alone; elsewhere it would be about the whole process.
if (process.platform === "linux") setPriority(0, niceness);

parentPort?.on("message", ({ id, parameters }: HashQuestion) => {
  parentPort?.postMessage(answer(id, parameters));
});

function answer(id: number, parameters: Argon2Parameters): HashAnswer {
  try {
    return { id, tag: argon2Sync("argon2id", parameters) };
  } catch (error) {
    return { id, problem: error instanceof Error ? error.message : String(error) };
  }
}
