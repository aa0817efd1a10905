import type { RuntimeChild } from "./child-process.ts";
import { residentBytes } from "./process-facts.ts";

/** How much one child serves before a fresh one takes over. */
export interface ChildBudget {
  runs: number;
  /** Above what the process had before it loaded a program. */
  growthMb: number;
}

/** A program that needs the memory takes it again at once: a child serves at least this many runs before its growth counts. */
const leastRuns = 1_000;
/** Reading a process's memory costs a system call or three; growth is no matter of milliseconds. */
const lookEveryRuns = 100;

/** Whether a child should be replaced by a fresh one, asked whenever `newRuns` of its runs have ended. */
export function isSpent(child: RuntimeChild, newRuns: number, budget: ChildBudget, rss: (pid: number) => number = residentBytes): boolean {
  const { servedRuns } = child;
  if (servedRuns >= budget.runs) return true;
  if (servedRuns < Math.min(leastRuns, budget.runs)) return false;
  if (Math.floor(servedRuns / lookEveryRuns) === Math.floor((servedRuns - newRuns) / lookEveryRuns)) return false;
  return rss(child.pid) > child.readyRssBytes + budget.growthMb * 1_048_576;
}
