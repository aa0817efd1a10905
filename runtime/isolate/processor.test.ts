import { expect, test } from "vitest";
import { entryMs, ProcessorShare, type ScheduleCounts, threadCpuMs } from "./processor.ts";

const ms = 1e6;
const started = (...counts: (ScheduleCounts | null)[]): ProcessorShare => new ProcessorShare(() => counts.shift() ?? null);
const at = (usedMs: number, waitedMs: number, turns: number): ScheduleCounts => ({ usedNs: usedMs * ms, waitedNs: waitedMs * ms, turns });

test("who waits for the processor as long as it has it, has half of it; waking up is no waiting", () => {
  const share = started(at(100, 100, 10), at(110, 101, 30), at(129.75, 121, 30), at(130, 400, 30), at(1_130, 400, 40), at(2_130, 400, 50));
  expect(share.at(1_000)).toBe(1);
  expect(share.at(2_000)).toBe(0.5);
  expect(share.at(2_001)).toBe(0.5);
  expect(share.at(3_000)).toBe(0.05);
  expect(share.at(4_000)).toBeCloseTo(0.525);
  expect(share.at(5_000)).toBeGreaterThan(0.75);
});

test("what cannot be known is a whole processor", () => {
  expect(started(null).at(1_000)).toBe(1);
  expect(started(at(1, 1, 1), null).at(1_000)).toBe(1);
});

test.runIf(process.platform === "linux")("Linux counts both, in the same unit", () => {
  const share = new ProcessorShare().at(performance.now() + 1_000);
  expect(share).toBeGreaterThanOrEqual(0.05);
  expect(share).toBeLessThanOrEqual(1);
});

test("sleeping takes no CPU time", async () => {
  const before = threadCpuMs();
  await new Promise((resolve) => setTimeout(resolve, 500));
  const slept = threadCpuMs() - before;
  expect(slept).toBeLessThan(400);
  for (const end = before + slept + 50; threadCpuMs() < end; );
  expect(threadCpuMs() - before).toBeGreaterThanOrEqual(50);
});

test("an entry has its CPU time and half a second at most; on a busy machine as long as its share takes to give it that", () => {
  expect(entryMs(5_000, 1)).toBe(5_500);
  expect(entryMs(20, 1)).toBe(240);
  expect(entryMs(5_000, 0.5)).toBe(12_500);
  expect(entryMs(60_000, 0.5)).toBe(122_500);
});
