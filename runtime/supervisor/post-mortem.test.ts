import { expect, test } from "vitest";
import { catastropheSignal } from "../seam/catastrophe.ts";
import { KernelKills, kernelKills } from "./kernel-kills.ts";
import { verdictOfExit } from "./post-mortem.ts";

const ended = (signal: NodeJS.Signals | null, code: number | null = null, wasGarbled = false) => ({ signal, code, wasGarbled });

test.each([
  ["the isolate's own last word", ended(catastropheSignal), false, "memory-exceeded"],
  ["a kill that the kernel counts as one for memory", ended("SIGKILL"), true, "memory-exceeded"],
  ["a kill by somebody else", ended("SIGKILL"), false, "crashed"],
  ["a kill for a broken link, beside one of the kernel", ended("SIGKILL", null, true), true, "crashed"],
  ["a crash", ended("SIGSEGV"), false, "crashed"],
  ["an abort", ended("SIGABRT"), true, "crashed"],
  ["an exit", ended(null, 1), false, "crashed"],
  ["a start that failed", ended(null), false, "crashed"],
])("%s", (_name, end, byKernel, outcome) => {
  const { guilty, others, why } = verdictOfExit(end, byKernel);
  expect([guilty, others]).toEqual([outcome, outcome]);
  expect(why).not.toMatch(/null|undefined/);
});

test("a count that grows is a kill for memory; one that stays, or cannot be read, is none", () => {
  const counts: (number | null)[] = [3, 3, 4, 4, null, 5];
  const kills = new KernelKills(() => counts.shift() ?? null);
  expect([kills.haveGrown(), kills.haveGrown(), kills.haveGrown(), kills.haveGrown(), kills.haveGrown()]).toEqual([
    false,
    true,
    false,
    false,
    false,
  ]);
});

test.runIf(process.platform === "linux")("Linux has such a count", () => {
  expect(kernelKills()).toBeTypeOf("number");
});
