/**
 * Cron expressions: five numeric UTC fields with lists, ranges and positive steps (spec 3 §4 B, decided §7.3). Everything here is exact and pure: a
 * schedule is the set of its days and the set of its minutes of a day, and the Gregorian calendar repeats after 400 years, which are whole weeks.
 */

/** Why an expression is none: cause and fix, for the person who wrote it. */
export class CronError extends Error {
  override name = "CronError";
}

/** A parsed expression. */
export interface Cron {
  /** As it was written, single spaces between the fields. */
  text: string;
  /** Minutes of the day (0 to 1439) at which it comes, ascending. */
  minutes: readonly number[];
  /** Whether it comes on the day that begins at this UTC midnight. */
  comesOn(day: Date): boolean;
  /** The five fields with Sunday written 0, as every cron understands them: the schedule of a CronJob. */
  portable: string;
}

interface Field {
  values: ReadonlySet<number>;
  isStar: boolean;
}

const fields = [
  { name: "minute", min: 0, max: 59 },
  { name: "hour", min: 0, max: 23 },
  { name: "day of month", min: 1, max: 31 },
  { name: "month", min: 1, max: 12 },
  { name: "day of week", min: 0, max: 7 },
] as const;
type FieldRule = (typeof fields)[number];

const dayMs = 86_400_000;
const minuteMs = 60_000;
const cycleDays = 146_097; // 400 years
const cycleStart = Date.UTC(2000, 0, 1);
const maxLength = 256;
const item = /^(?:(\*)|(\d{1,2})(?:-(\d{1,2}))?)(?:\/(\d{1,4}))?$/;

/** Reads an expression; throws `CronError`. Both day fields restricted (neither is `*`) means either matches. */
export function parseCron(expression: string): Cron {
  if (expression.length > maxLength) throw new CronError(`is longer than ${maxLength} characters`);
  const texts = expression.trim().split(/[ \t]+/);
  if (texts.length !== fields.length) {
    throw new CronError(
      `has ${expression.trim() === "" ? 0 : texts.length} fields: write five (minute, hour, day of month, month, day of week)`,
    );
  }
  const [minute, hour, dayOfMonth, month, dayOfWeek] = texts.map((text, index) => parseField(text, fields[index] as FieldRule)) as [
    Field,
    Field,
    Field,
    Field,
    Field,
  ];
  const minutes = [...hour.values].sort(ascending).flatMap((h) => [...minute.values].sort(ascending).map((m) => h * 60 + m));
  const comesOn = (day: Date): boolean => {
    if (!month.values.has(day.getUTCMonth() + 1)) return false;
    const byDate = dayOfMonth.values.has(day.getUTCDate());
    const byWeekday = dayOfWeek.values.has(day.getUTCDay());
    if (dayOfMonth.isStar || dayOfWeek.isStar) return byDate && byWeekday;
    return byDate || byWeekday;
  };
  const cron = {
    text: texts.join(" "),
    minutes,
    comesOn,
    portable: [...texts.slice(0, 4), portableWeekday(texts[4] as string, dayOfWeek)].join(" "),
  };
  if (comingDays(cron).next().done) throw new CronError("names a date that never comes (such as 31 February): change the day or the month");
  return cron;
}

/** The days of one whole cycle on which the expression comes, as numbers from the cycle's start. */
function* comingDays(cron: Pick<Cron, "comesOn">): Generator<number, void> {
  for (let day = 0; day < cycleDays; day++) if (cron.comesOn(new Date(cycleStart + day * dayMs))) yield day;
}

/** The smallest real gap between two neighbouring times, in seconds, over the whole cycle of 400 years. */
export function shortestGapSeconds(cron: Cron): number {
  const first = cron.minutes[0] ?? 0;
  const last = cron.minutes.at(-1) ?? 0;
  let gap = Number.POSITIVE_INFINITY;
  for (let i = 1; i < cron.minutes.length; i++) gap = Math.min(gap, (cron.minutes[i] as number) - (cron.minutes[i - 1] as number));
  const overNight = 24 * 60 - last + first;
  if (overNight < gap) {
    let days = cycleDays; // between two days on which it comes, the last of a cycle and the first of the next included
    let firstDay: number | null = null;
    let previous = 0;
    for (const day of comingDays(cron)) {
      if (firstDay === null) firstDay = day;
      else days = Math.min(days, day - previous);
      previous = day;
      if (days === 1) break;
    }
    days = Math.min(days, (firstDay ?? 0) + cycleDays - previous);
    gap = Math.min(gap, days * 24 * 60 - last + first);
  }
  return gap * 60;
}

/** The next time strictly after a moment. */
export function nextCronTime(cron: Cron, after: Date): Date {
  let day = Math.floor(after.getTime() / dayMs) * dayMs;
  // A valid expression comes within one cycle; two cycles bound the loop.
  for (let i = 0; i <= 2 * cycleDays; i++, day += dayMs) {
    if (!cron.comesOn(new Date(day))) continue;
    for (const minute of cron.minutes) if (day + minute * minuteMs > after.getTime()) return new Date(day + minute * minuteMs);
  }
  throw new Error(`the expression ${cron.text} never comes`);
}

/** The newest time at or before a moment, not before `from`; null when there is none. */
export function latestCronTime(cron: Cron, at: Date, from: Date): Date | null {
  for (let day = Math.floor(at.getTime() / dayMs) * dayMs; day + dayMs > from.getTime(); day -= dayMs) {
    if (!cron.comesOn(new Date(day))) continue;
    for (const minute of cron.minutes.toReversed()) {
      const time = day + minute * minuteMs;
      if (time <= at.getTime()) return time >= from.getTime() ? new Date(time) : null;
    }
  }
  return null;
}

function parseField(text: string, rule: FieldRule): Field {
  const values = new Set<number>();
  let isStar = false;
  for (const part of text.split(",")) {
    const match = item.exec(part);
    if (!match)
      throw new CronError(
        `has ${JSON.stringify(part)} in the ${rule.name}: write numbers, *, ranges (1-5), lists (1,3) and steps (*/2, 10-20/5)`,
      );
    const [, star, from, to, step] = match;
    const top = rule.name === "day of week" && star ? 6 : rule.max;
    const low = star ? rule.min : Number(from);
    const high = star ? top : Number(to ?? from);
    if (low < rule.min || high > rule.max)
      throw new CronError(`has ${part} in the ${rule.name}, which goes from ${rule.min} to ${rule.max}`);
    if (low > high)
      throw new CronError(`has the reversed range ${part} in the ${rule.name}: write ${low}-${rule.max} and ${rule.min}-${high} as a list`);
    const by = step === undefined ? 1 : Number(step);
    if (step !== undefined) {
      if (!star && to === undefined)
        throw new CronError(`has the step ${part} in the ${rule.name}: a step needs a range or *, such as ${low}-${rule.max}/${step}`);
      if (by < 1) throw new CronError(`has the step ${part} in the ${rule.name}: a step is at least 1`);
      if (by > high - low)
        throw new CronError(`has the step ${part} in the ${rule.name}, which never gets past its first value: write ${low} alone`);
    }
    isStar ||= star !== undefined && by === 1;
    for (let value = low; value <= high; value += by) values.add(rule.name === "day of week" && value === 7 ? 0 : value);
  }
  return { values, isStar };
}

/** Sunday written 0: a field that names 7 is written as the list of its days, so that crons that end the week at 6 read it alike. */
function portableWeekday(text: string, field: Field): string {
  if (field.isStar) return "*";
  if (!/7/.test(text.replace(/\/\d+/g, ""))) return text;
  return [...field.values].sort(ascending).join(",");
}

function ascending(a: number, b: number): number {
  return a - b;
}
