import { readdirSync } from "node:fs";
import { PeerApi } from "../runtime/fixture/peer-api.ts";
import { defaultLimits } from "../runtime/fixture/test-runtime.ts";
import type { Measure, Row } from "./measure.ts";
import { type MeasuredRuntime, startRuntime } from "./measured-runtime.ts";
import { processTree, proportionalMb } from "./process-memory.ts";

const kills = Number(process.env.KAPSTONE_BENCH_KILLS ?? 10_000);
const inFlight = 4;
/** Every so many runs are killed with their process, the others by the isolate's own timeout. */
const wedgeEvery = 10;
const allowedMb = 48;
const allowedFiles = 8;

const program = `exports.default = { fetch(request) {
  const { pathname } = new URL(request.url);
  if (pathname === "/loop") for (;;);
  if (pathname === "/wedge") { let x = 3n ** 100000n; for (;;) x = x * x; }
  return new Response("ok");
} };`;

/** What many kills leave behind in a runtime: processes, open files, the supervisor's memory, and calls that should have been answered. */
export const killsLeftBehind: Measure = {
  name: "kills",
  async run(): Promise<Row[]> {
    const api = await PeerApi.start();
    const runtime = await startRuntime(api);
    try {
      await runtime.claim(program, { limits: { ...defaultLimits, request_cpu_ms: 20, memory_mb: 32 } });
      await untilServing(runtime);
      // The first kills build what is kept; the measure starts after them.
      for (let n = 0; n < 20; n++) await Promise.allSettled([runtime.get("/wedge"), runtime.get("/loop")]);
      const before = await held(runtime);
      const pausesMs: number[] = [];
      for (let done = 0; done < kills; done += inFlight) {
        const path = (done / inFlight) % wedgeEvery === 0 ? "/wedge" : "/loop";
        await Promise.allSettled(Array.from({ length: inFlight }, () => runtime.get(path)));
        const started = performance.now();
        await untilServing(runtime);
        pausesMs.push(performance.now() - started);
        // What the peer remembers of runs is not what is measured.
        api.runs.clear();
        api.deliveries.clear();
      }
      const after = await held(runtime);
      const sorted = pausesMs.sort((a, b) => a - b);
      const longestMs = sorted.at(-1) ?? 0;
      const change = (from: number, to: number): string => `${from.toFixed(0)} → ${to.toFixed(0)}`;
      return [
        {
          measure: `processes before → after ${kills} kills`,
          value: change(before.processes, after.processes),
          peer: "none",
          result: change(before.processes, after.processes),
          goal: "the same",
          isMet: before.processes === after.processes,
        },
        {
          measure: "supervisor's open files",
          value: change(before.files, after.files),
          peer: "none",
          result: `${after.files - before.files} more`,
          goal: `≤ ${allowedFiles} more`,
          isMet: after.files <= before.files + allowedFiles,
        },
        {
          measure: "supervisor's memory (PSS, MB)",
          value: change(before.memoryMb, after.memoryMb),
          peer: "none",
          result: `${(after.memoryMb - before.memoryMb).toFixed(0)} MB more`,
          goal: `< ${allowedMb} MB more`,
          isMet: after.memoryMb < before.memoryMb + allowedMb,
        },
        {
          measure: "serves again after a kill",
          value: `${(sorted[Math.floor(sorted.length / 2)] ?? 0).toFixed(0)} ms (median), ${longestMs.toFixed(0)} ms (longest)`,
          peer: "none",
          result: `${longestMs.toFixed(0)} ms`,
          goal: "≤ 300 ms",
          isMet: longestMs <= 300,
        },
      ];
    } finally {
      await runtime.close();
      await api.close();
    }
  },
};

async function untilServing(runtime: MeasuredRuntime): Promise<void> {
  while ((await runtime.get("/ok").catch(() => null))?.text !== "ok");
}

/** What the runtime holds at rest: three processes, whatever came before. */
async function held(runtime: MeasuredRuntime): Promise<{ processes: number; files: number; memoryMb: number }> {
  const deadline = Date.now() + 30_000;
  let tree = processTree(runtime.pid);
  while (tree.length !== 3 && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    tree = processTree(runtime.pid);
  }
  return { processes: tree.length, files: readdirSync(`/proc/${runtime.pid}/fd`).length, memoryMb: proportionalMb([runtime.pid]) ?? 0 };
}
