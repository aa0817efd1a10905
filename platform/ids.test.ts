import { expect, test } from "vitest";
import { isId, newId } from "./ids.ts";

test("ids are UUIDv7, unique, and sort in the order they were made, even when the clock stands still or goes back", () => {
  const made: string[] = [];
  for (let i = 0; i < 20_000; i++) made.push(newId(1_700_000_000_000 - (i % 3)));
  expect(new Set(made).size).toBe(made.length);
  expect([...made].sort()).toEqual(made);
  for (const id of made.slice(0, 100)) {
    expect(isId(id)).toBe(true);
    expect(id[14]).toBe("7");
    expect("89ab").toContain(id[19]);
  }
});

test("the first 48 bits are the time in milliseconds", () => {
  const now = Date.now() + 60_000;
  expect(Number.parseInt(newId(now).replaceAll("-", "").slice(0, 12), 16)).toBe(now);
});

test("what is not a UUID is refused", () => {
  for (const text of ["", "x", "0".repeat(36), "00000000-0000-7000-8000-00000000000g", "00000000-0000-7000-8000-000000000000 "]) {
    expect(isId(text)).toBe(false);
  }
});
