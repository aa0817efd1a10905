import { expect, test } from "vitest";
import { readRange } from "./range.ts";

test.each([
  ["bytes=0-0", 10, { start: 0, end: 0 }],
  ["bytes=0-", 10, { start: 0, end: 9 }],
  ["bytes=5-99", 10, { start: 5, end: 9 }],
  ["bytes=-3", 10, { start: 7, end: 9 }],
  ["bytes=-99", 10, { start: 0, end: 9 }],
  ["bytes=9-9", 10, { start: 9, end: 9 }],
  ["bytes=10-", 10, "unsatisfiable"],
  ["bytes=-0", 10, "unsatisfiable"],
  ["bytes=0-", 0, "unsatisfiable"],
  ["bytes=5-4", 10, null],
  ["bytes=-", 10, null],
  ["bytes=0-1,3-4", 10, null],
  ["items=0-1", 10, null],
  [undefined, 10, null],
] as const)("%s of %i bytes is %o", (header, size, expected) => {
  expect(readRange(header, size)).toEqual(expected);
});
