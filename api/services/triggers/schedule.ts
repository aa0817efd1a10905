import { Refusal } from "../../http/refusal.ts";
import { CronError, latestCronTime, nextCronTime, parseCron, shortestGapSeconds } from "./cron.ts";

/** When a schedule comes: by a cron expression in UTC, or every so many seconds counted from its creation (decided §7.4). */
export interface Cadence {
  cron: string | null;
  interval_seconds: number | null;
  created_at: Date;
}

/** Due times after `from` (exclusive) up to `at`, seen from an outage: the newest, those before it, and how many more there were than are listed. */
export interface Due {
  newest: Date;
  /** Oldest first, without the newest. */
  earlier: Date[];
  unlisted: number;
}

/**
 * How many missed times of one trigger are recorded one by one after an outage; how many more there were is said in the oldest one's record.
 * 1,000 are ten days at the shortest cadence of 15 minutes.
 */
export const recordedMissed = 1_000;
const countedMissed = 100_000;

/** Refuses an expression that cannot be used: 422 `INVALID_CRON`, 422 `CADENCE_TOO_SHORT`. Answers it with single spaces. */
export function checkCron(expression: string, minSeconds: number): string {
  try {
    const cron = parseCron(expression);
    const gap = shortestGapSeconds(cron);
    if (gap < minSeconds) throw tooShort(`the cron expression comes twice within ${gap} seconds`, minSeconds, "cron");
    return cron.text;
  } catch (error) {
    if (!(error instanceof CronError)) throw error;
    throw new Refusal(422, "INVALID_CRON", `the cron expression ${error.message}`, { details: [{ path: "cron", message: error.message }] });
  }
}

/** Refuses an interval below the shortest cadence: 422 `CADENCE_TOO_SHORT`. */
export function checkInterval(seconds: number, minSeconds: number): void {
  if (seconds < minSeconds) throw tooShort(`the interval is ${seconds} seconds`, minSeconds, "interval_seconds");
}

function tooShort(cause: string, minSeconds: number, path: string): Refusal {
  const message = `${cause}; the shortest cadence is ${minSeconds} seconds: make it longer`;
  return new Refusal(422, "CADENCE_TOO_SHORT", message, { details: [{ path, message }] });
}

/** The times of a schedule, its expression read once. */
interface Times {
  after(moment: Date): Date;
  /** The newest time at or before a moment and not before `from`. */
  latest(moment: Date, from: Date): Date | null;
}

function timesOf(cadence: Cadence): Times {
  if (cadence.cron !== null) {
    const cron = parseCron(cadence.cron);
    return { after: (moment) => nextCronTime(cron, moment), latest: (moment, from) => latestCronTime(cron, moment, from) };
  }
  if (cadence.interval_seconds === null) throw new Error("a schedule has neither a cron expression nor an interval");
  const step = cadence.interval_seconds * 1_000;
  const start = cadence.created_at.getTime();
  return {
    after: (moment) => new Date(start + Math.max(1, Math.floor((moment.getTime() - start) / step) + 1) * step),
    latest(moment, from) {
      const time = start + Math.floor((moment.getTime() - start) / step) * step;
      return time >= from.getTime() && time > start ? new Date(time) : null;
    },
  };
}

/** The next time strictly after a moment. */
export function nextTime(cadence: Cadence, after: Date): Date {
  return timesOf(cadence).after(after);
}

/** The next `count` times after a moment. */
export function nextTimes(cadence: Cadence, after: Date, count: number): Date[] {
  const times = timesOf(cadence);
  const list: Date[] = [];
  for (let time = after; list.length < count; ) {
    time = times.after(time);
    list.push(time);
  }
  return list;
}

/**
 * What is due at `at` of a schedule that has been settled up to before `from`: the newest time and those before it, of which the newest
 * `recordedMissed` are listed. Null when nothing is due.
 */
export function dueTimes(cadence: Cadence, from: Date, at: Date): Due | null {
  const times = timesOf(cadence);
  const newest = times.latest(at, from);
  if (!newest) return null;
  const earlier: Date[] = [];
  let unlisted = 0;
  for (let time = newest; unlisted < countedMissed; ) {
    const before = times.latest(new Date(time.getTime() - 1), from);
    if (!before) break;
    if (earlier.length < recordedMissed) earlier.push(before);
    else unlisted++;
    time = before;
  }
  return { newest, earlier: earlier.reverse(), unlisted };
}
