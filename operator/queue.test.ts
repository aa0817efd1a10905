import { afterEach, expect, test } from "vitest";
import { until } from "../test/harness/wait.ts";
import { createQueue, type QueueOptions, type WorkQueue } from "./queue.ts";

const queues: WorkQueue[] = [];
afterEach(() => Promise.all(queues.splice(0).map((queue) => queue.close(1_000))));

function open(options: Partial<QueueOptions> & Pick<QueueOptions, "work">): WorkQueue {
  const queue = createQueue({ workers: 4, backoff: { minMs: 1, maxMs: 8 }, ...options });
  queues.push(queue);
  queue.start();
  return queue;
}

/** Work that ends when the test says so. */
function heldWork() {
  const begun: string[] = [];
  const waiting = new Map<string, () => void>();
  return {
    begun,
    finish: (key: string) => waiting.get(key)?.(),
    work: (key: string): Promise<undefined> => {
      begun.push(key);
      return new Promise((resolve) => waiting.set(key, () => resolve(undefined)));
    },
  };
}

test("a key that is added many times while it waits is worked on once", async () => {
  const held = heldWork();
  const queue = open({ workers: 1, work: held.work });
  queue.add("first");
  for (let i = 0; i < 5; i++) queue.add("second");
  expect(queue.depth()).toBe(1);
  held.finish("first");
  await until(() => held.begun.length === 2);
  held.finish("second");
  await until(() => queue.depth() === 0);
  expect(held.begun).toEqual(["first", "second"]);
});

test("a key is with one worker at a time; added meanwhile, it is worked on once more after", async () => {
  const held = heldWork();
  const queue = open({ work: held.work });
  queue.add("key");
  await until(() => held.begun.length === 1);
  queue.add("key");
  queue.add("key");
  queue.add("other");
  await until(() => held.begun.includes("other"));
  expect(held.begun).toEqual(["key", "other"]);
  held.finish("key");
  await until(() => held.begun.length === 3);
  expect(held.begun[2]).toBe("key");
  held.finish("key");
  held.finish("other");
});

test("no more keys are worked on at once than there are workers", async () => {
  const held = heldWork();
  const queue = open({ workers: 2, work: held.work });
  for (const key of ["a", "b", "c"]) queue.add(key);
  await until(() => held.begun.length === 2);
  expect(queue.depth()).toBe(1);
  held.finish("a");
  await until(() => held.begun.length === 3);
  held.finish("b");
  held.finish("c");
});

test("a key that fails is tried again with growing pauses up to the bound, and holds up no other", async () => {
  const pauses: number[] = [];
  let failedAt = 0;
  let failures = 0;
  const done: string[] = [];
  const queue = open({
    workers: 1,
    backoff: { minMs: 20, maxMs: 80 },
    random: () => 1,
    async work(key) {
      if (key === "well") {
        done.push(key);
        return undefined;
      }
      if (failures > 0) pauses.push(performance.now() - failedAt);
      failures += 1;
      failedAt = performance.now();
      if (failures < 6) throw new Error("not yet");
      return undefined;
    },
  });
  queue.add("ill");
  queue.add("well");
  await until(() => failures === 6);
  expect(done).toEqual(["well"]);
  // Timers may be late on a loaded machine, never early.
  for (const [i, least] of [20, 40, 80, 80, 80].entries()) expect(pauses[i]).toBeGreaterThanOrEqual(least - 2);
});

test("a failing key does not run ahead of its pause because it is added again while it is worked on", async () => {
  const held = heldWork();
  const startedAt: number[] = [];
  let reject: (error: Error) => void = () => undefined;
  const queue = open({
    backoff: { minMs: 60, maxMs: 60 },
    random: () => 1,
    work: (key) => {
      startedAt.push(performance.now());
      return startedAt.length > 1
        ? held.work(key)
        : new Promise((_, fail) => {
            reject = fail;
          });
    },
  });
  queue.add("key");
  await until(() => startedAt.length === 1);
  queue.add("key");
  reject(new Error("no"));
  await until(() => startedAt.length === 2);
  expect((startedAt[1] as number) - (startedAt[0] as number)).toBeGreaterThanOrEqual(58);
  held.finish("key");
});

test("work may ask to be done again later; the earliest wish counts", async () => {
  let times = 0;
  const queue = open({
    async work() {
      times += 1;
      return times < 3 ? 5 : undefined;
    },
  });
  queue.addAfter("key", 600_000);
  queue.addAfter("key", 1);
  await until(() => times === 3);
});

test("nothing begins before the start, and keys from before it are not forgotten", async () => {
  const held = heldWork();
  const queue = createQueue({ workers: 1, work: held.work });
  queues.push(queue);
  queue.add("early");
  expect(held.begun).toEqual([]);
  expect(queue.stuckMs()).toBe(0);
  queue.start();
  expect(held.begun).toEqual(["early"]);
  held.finish("early");
});

test("a worker that does not end is told as stuck", async () => {
  const held = heldWork();
  const queue = open({ work: held.work });
  expect(queue.stuckMs()).toBe(0);
  queue.add("hangs");
  await until(() => queue.stuckMs() > 50);
  held.finish("hangs");
  await until(() => queue.stuckMs() === 0);
});

test("closing takes no more and waits for what is under way", async () => {
  const held = heldWork();
  const queue = createQueue({ workers: 1, work: held.work });
  queue.start();
  queue.add("running");
  queue.add("waiting");
  let closed = false;
  const closing = queue.close(60_000).then(() => {
    closed = true;
  });
  queue.add("late");
  expect(closed).toBe(false);
  held.finish("running");
  await closing;
  expect(held.begun).toEqual(["running"]);
});
