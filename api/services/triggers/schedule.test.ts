import fc from "fast-check";
import { expect, test } from "vitest";
import { dueTimes, nextTime, nextTimes } from "./schedule.ts";

const created = new Date("2026-01-01T00:00:30.123Z");
const cadence = fc.oneof(
  fc.integer({ min: 900, max: 200_000 }).map((interval_seconds) => ({ cron: null, interval_seconds, created_at: created })),
  fc
    .constantFrom("*/15 * * * *", "7 3 * * *", "0 0 13 * 5", "30 6 29 2 *", "0 */6 1,15 * *")
    .map((cron) => ({ cron, interval_seconds: null, created_at: created })),
);

test("what is due is every time from the next one on, the newest apart, none twice", () => {
  fc.assert(
    fc.property(cadence, fc.integer({ min: 0, max: 400 }), fc.integer({ min: 0, max: 60 }), (schedule, skip, span) => {
      const from = nextTime(schedule, new Date(created.getTime() + skip * 3_600_000));
      const at = new Date(from.getTime() + span * 3_600_000);
      const due = dueTimes(schedule, from, at);
      const expected: Date[] = [];
      for (let time = from; time <= at; time = nextTime(schedule, time)) expected.push(time);
      expect(due && [...due.earlier, due.newest]).toEqual(expected);
    }),
    { numRuns: 300 },
  );
});

test("nothing is due before the next time", () => {
  fc.assert(
    fc.property(cadence, fc.integer({ min: 1, max: 1_000_000 }), (schedule, ms) => {
      const next = nextTime(schedule, created);
      expect(dueTimes(schedule, next, new Date(next.getTime() - ms))).toBeNull();
    }),
  );
});

test("an interval is counted from the creation, whenever it is asked", () => {
  const schedule = { cron: null, interval_seconds: 900, created_at: created };
  expect(nextTime(schedule, created)).toEqual(new Date(created.getTime() + 900_000));
  expect(nextTime(schedule, new Date(created.getTime() - 1))).toEqual(new Date(created.getTime() + 900_000));
  expect(nextTime(schedule, new Date(created.getTime() + 900_000))).toEqual(new Date(created.getTime() + 1_800_000));
  expect(nextTimes(schedule, new Date(created.getTime() + 1_000_000), 2)).toEqual([
    new Date(created.getTime() + 1_800_000),
    new Date(created.getTime() + 2_700_000),
  ]);
});
