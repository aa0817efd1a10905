import fc from "fast-check";
import { expect, test } from "vitest";
import { createFairQueue } from "./fair-queue.ts";

test("owners take turns in the order they came; each owner's items keep their order", () => {
  const queue = createFairQueue<string>();
  for (const item of ["a1", "a2", "a3", "b1", "c1", "b2"]) queue.add(item.charAt(0), item);
  expect(Array.from({ length: 7 }, () => queue.take())).toEqual(["a1", "b1", "c1", "a2", "b2", "a3", undefined]);
});

test("whatever is added, taken and removed, nothing is lost or served twice, and nobody waits for two turns of another", () => {
  const steps = fc.array(
    fc.oneof(fc.record({ add: fc.constantFrom("a", "b", "c") }), fc.constant("take" as const), fc.record({ remove: fc.nat(30) })),
    { maxLength: 60 },
  );
  fc.assert(
    fc.property(steps, (list) => {
      const queue = createFairQueue<number>();
      const owners = new Map<number, string>();
      const waiting = new Set<number>();
      let passedOver = new Map<string, string[]>();
      let next = 0;
      for (const step of list) {
        if (step === "take") {
          const item = queue.take();
          expect(item === undefined).toBe(waiting.size === 0);
          if (item === undefined) continue;
          expect(waiting.delete(item)).toBe(true);
          const served = owners.get(item)!;
          const others = new Set([...waiting].map((each) => owners.get(each)!).filter((owner) => owner !== served));
          passedOver = new Map([...others].map((owner) => [owner, [...(passedOver.get(owner) ?? []), served]]));
          for (const seen of passedOver.values()) expect(new Set(seen).size).toBe(seen.length);
        } else if ("add" in step) {
          owners.set(next, step.add);
          waiting.add(next);
          queue.add(step.add, next++);
        } else {
          expect(queue.remove(step.remove)).toBe(waiting.delete(step.remove));
          for (const owner of passedOver.keys()) if (![...waiting].some((each) => owners.get(each) === owner)) passedOver.delete(owner);
        }
        expect(queue.size).toBe(waiting.size);
      }
    }),
  );
});
