import { Cron as Croner } from "croner";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CronError, latestCronTime, nextCronTime, parseCron, shortestGapSeconds } from "./cron.ts";

/** A field of one item kind or a list of several, always valid. */
function field(min: number, max: number): fc.Arbitrary<string> {
  const value = fc.integer({ min, max });
  const range = fc.tuple(value, value).map(([a, b]) => [Math.min(a, b), Math.max(a, b)] as const);
  const stepped = fc
    .tuple(range, fc.integer({ min: 1, max: 60 }))
    .filter(([[low, high], step]) => step <= high - low)
    .map(([[low, high], step]) => `${low}-${high}/${step}`);
  const one = fc.oneof(
    value.map(String),
    range.map(([low, high]) => `${low}-${high}`),
    stepped,
  );
  const starStep = fc.integer({ min: 2, max: max - min }).map((step) => `*/${step}`);
  return fc.oneof(
    fc.constant("*"),
    starStep,
    fc.array(one, { minLength: 1, maxLength: 4 }).map((items) => items.join(",")),
  );
}

const expression = fc
  .tuple(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6))
  .map((texts) => texts.join(" "))
  .filter((text) => {
    try {
      parseCron(text);
      return true;
    } catch (error) {
      if (error instanceof CronError && /never comes/.test(error.message)) return false;
      throw error;
    }
  });
const moment = fc.date({ min: new Date("2000-01-01T00:00:00Z"), max: new Date("2120-01-01T00:00:00Z"), noInvalidDate: true });

test("next times are those of croner, for any expression and moment", () => {
  fc.assert(
    fc.property(expression, moment, (text, after) => {
      const cron = parseCron(text);
      const theirs = new Croner(text, { mode: "5-part", timezone: "UTC", paused: true }).nextRuns(3, after);
      const ours: Date[] = [];
      for (let time = after; ours.length < theirs.length; ) {
        time = nextCronTime(cron, time);
        ours.push(time);
      }
      expect(ours).toEqual(theirs);
    }),
    { numRuns: 500 },
  );
});

test("the latest time before a moment is the one whose next time is not before it", () => {
  fc.assert(
    fc.property(expression, moment, (text, at) => {
      const cron = parseCron(text);
      const next = nextCronTime(cron, at);
      expect(latestCronTime(cron, next, new Date(0))).toEqual(next);
      const latest = latestCronTime(cron, at, new Date(0));
      if (latest) expect(nextCronTime(cron, latest)).toEqual(next);
    }),
    { numRuns: 300 },
  );
});

test("the shortest gap is reached somewhere and never undercut", () => {
  fc.assert(
    fc.property(expression, moment, (text, from) => {
      const cron = parseCron(text);
      const gap = shortestGapSeconds(cron);
      let time = nextCronTime(cron, from);
      for (let i = 0; i < 50; i++) {
        const next = nextCronTime(cron, time);
        expect((next.getTime() - time.getTime()) / 1000).toBeGreaterThanOrEqual(gap);
        time = next;
      }
    }),
    { numRuns: 300 },
  );
});

test("the portable form says the same times and names no day 7", () => {
  fc.assert(
    fc.property(fc.tuple(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7)), moment, (texts, after) => {
      const text = texts.join(" ");
      let cron: ReturnType<typeof parseCron>;
      try {
        cron = parseCron(text);
      } catch (error) {
        expect(error).toBeInstanceOf(CronError);
        return;
      }
      expect(cron.portable.split(" ")[4]?.replace(/\/\d+/g, "")).not.toContain("7");
      expect(nextCronTime(parseCron(cron.portable), after)).toEqual(nextCronTime(cron, after));
    }),
  );
});

describe("the gap is the smallest over the whole cycle", () => {
  test.each<[string, number]>([
    ["*/15 * * * *", 900],
    ["0,50 * * * *", 600],
    ["59,0 * * * *", 60],
    ["5 4 * * *", 86_400],
    ["59 23 * * *", 86_400],
    ["0 0,23 * * *", 3_600],
    ["0 0 31 12,1 *", 31 * 86_400],
    ["0 0 28,1 2,3 *", 86_400], // 28 February to 1 March, but in leap years 29 lies between
    ["0 0 29 2 *", (4 * 365 + 1) * 86_400],
    ["0 0 13 * 5", 86_400], // either matches: the 13th beside a Friday
    ["0 0 * * 0,7", 7 * 86_400],
  ])("%s: %s", (text, seconds) => {
    expect(shortestGapSeconds(parseCron(text))).toBe(seconds);
  });
});

describe("what is no expression", () => {
  test.each<[string, RegExp]>([
    ["", /0 fields/],
    ["* * * *", /4 fields/],
    ["0 * * * * *", /6 fields/],
    ["@daily", /1 fields/],
    ["0 0 * * MON", /MON/],
    ["0 0 L * *", /"L"/],
    ["0 0 15W * *", /"15W"/],
    ["0 0 * * 5#2", /"5#2"/],
    ["60 * * * *", /from 0 to 59/],
    ["0 24 * * *", /from 0 to 23/],
    ["0 0 0 * *", /from 1 to 31/],
    ["0 0 32 * *", /from 1 to 31/],
    ["0 0 * 13 *", /from 1 to 12/],
    ["0 0 * * 8", /from 0 to 7/],
    ["0 0 * * 6-0", /reversed/],
    ["0 22-2 * * *", /reversed/],
    ["*/60 * * * *", /first value/],
    ["0 */24 * * *", /first value/],
    ["0-10/20 * * * *", /first value/],
    ["*/0 * * * *", /at least 1/],
    ["5/15 * * * *", /range or \*/],
    ["-5 * * * *", /"-5"/],
    ["1,,2 * * * *", /""/],
    ["+5 * * * *", /"\+5"/],
    ["1.5 * * * *", /"1.5"/],
    ["٣ * * * *", /"٣"/],
    ["0 0 31 2 *", /never comes/],
    ["0 0 30,31 2 *", /never comes/],
    ["0 0 31 4,6,9,11 *", /never comes/],
    ["? * * * *", /"\?"/],
    [`${"1,".repeat(200)}1 * * * *`, /longer/],
  ])("%s", (text, message) => {
    expect(() => parseCron(text)).toThrow(message);
  });
});

test("7 is Sunday, also at the end of a range", () => {
  const after = new Date("2026-11-21T12:00:00Z"); // a Saturday
  expect(nextCronTime(parseCron("0 0 * * 7"), after)).toEqual(new Date("2026-11-22T00:00:00Z"));
  expect(nextCronTime(parseCron("0 0 * * 5-7"), after)).toEqual(new Date("2026-11-22T00:00:00Z"));
  expect(parseCron("0 0 * * 7").portable).toBe("0 0 * * 0");
  expect(parseCron("0 0 * * 5-7").portable).toBe("0 0 * * 0,5,6");
});

test("29 February comes in leap years only, and not in 2100", () => {
  const cron = parseCron("30 6 29 2 *");
  expect(nextCronTime(cron, new Date("2096-03-01T00:00:00Z"))).toEqual(new Date("2104-02-29T06:30:00Z"));
});
