import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../../test/harness/database.ts";
import { createRateLimiter } from "./rate-limit.ts";

let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.close());

test.each([1, 10, 19, 20, 600, 6_000])(
  "of a limit of %i exactly that many pass in a window, the next is refused, and the next window starts afresh",
  async (limit) => {
    let now = 1_800_000_000_000;
    const limiter = createRateLimiter(database.postgres.hot, () => now);
    const bucket = `exact-${limit}`;
    for (let n = 1; n <= limit; n++) {
      const state = await limiter.take(bucket, limit);
      if (!state.allowed || state.remaining !== limit - n) expect(state).toMatchObject({ allowed: true, remaining: limit - n });
    }
    expect(await limiter.take(bucket, limit)).toMatchObject({ allowed: false, remaining: 0, resetSeconds: 60 });
    expect(limiter.spent(bucket)).toMatchObject({ allowed: false });
    now += 60_000;
    expect(limiter.spent(bucket)).toBeNull();
    expect(await limiter.take(bucket, limit)).toMatchObject({ allowed: true });
  },
);

test("replicas together never let more through than the limit, under concurrency", async () => {
  const now = 1_800_000_000_000;
  const replicas = Array.from({ length: 3 }, () => createRateLimiter(database.postgres.hot, () => now));
  const states = await Promise.all(Array.from({ length: 900 }, (_, n) => replicas[n % 3]!.take("shared", 300)));
  const passed = states.filter((state) => state.allowed).length;
  expect(passed).toBeLessThanOrEqual(300);
  expect(passed).toBeGreaterThanOrEqual(300 - 2 * 15); // at most two blocks of a twentieth lie unused in other replicas
});

test("one bucket does not touch another", async () => {
  const limiter = createRateLimiter(database.postgres.hot, () => 1_800_000_000_000); // one minute, however long this takes
  expect((await limiter.take("one", 1)).allowed).toBe(true);
  expect((await limiter.take("one", 1)).allowed).toBe(false);
  expect((await limiter.take("two", 1)).allowed).toBe(true);
});
