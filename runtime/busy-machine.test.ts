import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { afterEach, expect, test } from "vitest";
import { defaultLimits, TestRuntime, until } from "./fixture/test-runtime.ts";

/**
 * The child shares one core with others who want all of it: what they take is on no run's account. A run takes so long that a machine which stands still for
 * a second or two in the middle of it ends it no more than the others do.
 */
const neighbours = 3;

let runtime: TestRuntime | undefined;
const others: ChildProcess[] = [];
afterEach(async () => {
  for (const other of others.splice(0)) other.kill("SIGKILL");
  await runtime?.close();
  runtime = undefined;
});

const program = `exports.default = {
  fetch(request) {
    let sum = 0;
    const { pathname } = new URL(request.url);
    if (pathname === "/light") return new Response("ok");
    if (pathname === "/loop") for (;;) sum++;
    for (let n = 0; n < 200e6; n++) sum = (sum + n) | 0;
    return new Response("ok " + sum);
  },
  scheduled() { for (let n = 0, sum = 0; n < 200e6; n++) sum = (sum + n) | 0; },
};`;
const triggers = [
  { id: "request", kind: "request" as const, file_path: "main.ts" },
  { id: "schedule", kind: "schedule" as const, file_path: "main.ts" },
];

/** Processes whose parent this is. */
const childrenOf = (pid: number): number[] =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        return readFileSync(`/proc/${name}/stat`, "latin1").split(") ")[1]?.split(" ")[1] === String(pid);
      } catch {
        return false;
      }
    })
    .map(Number);

/** Each neighbour in a session of its own, as the child is: Linux shares a core out between sessions first (`sched_autogroup`). */
function crowd(pids: number[]): void {
  for (const pid of pids) execFileSync("taskset", ["-a", "-p", "-c", "0", String(pid)]);
  for (let n = 0; n < neighbours; n++) {
    others.push(spawn("taskset", ["-c", "0", process.execPath, "-e", "for (;;);"], { stdio: "ignore", detached: true }));
  }
}

/** Calls the loop, again when it was ended because it got less of the processor than when it began: then it was not seen to use up its time. */
async function untilItHadTheProcessor(of: TestRuntime) {
  for (;;) {
    const loop = await of.call("/loop");
    const looped = await of.ended(loop.runId);
    if (!looped.detail?.includes("machine was too busy")) return { loop, looped };
  }
}

test.runIf(process.platform === "linux")(
  "CPU time of a run is its own: a busy machine ends no run for it, and an endless loop all the same",
  { timeout: 120_000 },
  async () => {
    runtime = await TestRuntime.start();
    await runtime.claim(program, { triggers });
    await runtime.call("/");
    const { cpu_ms: needed } = await runtime.ended((await runtime.call("/")).runId);
    expect(needed).toBeGreaterThan(10);
    const limit = Math.round(needed * 3);
    await runtime.claim(program, { triggers, limits: { ...defaultLimits, request_cpu_ms: limit, background_cpu_ms: limit } });
    crowd(childrenOf(runtime.process.pid as number));

    for (let n = 0; n < 10; n++) expect((await runtime.call("/light")).status).toBe(200);

    // By the wall's clock each of these has used more than it may.
    const run = await until(async () => {
      const reply = await (runtime as TestRuntime).call("/");
      expect(reply).toMatchObject({ status: 200, text: expect.stringMatching(/^ok/) });
      const ended = await (runtime as TestRuntime).ended(reply.runId);
      return ended.phases.handler_ms > limit && ended.cpu_ms < limit && ended;
    }, "a run that others kept from the processor");
    expect(run).toMatchObject({ outcome: "ok" });

    const due = JSON.stringify({ scheduled_at: "2026-11-21T12:00:00.000Z" });
    const tick = await runtime.call("/__kaps/scheduled", { method: "POST", body: due, headers: { "x-kapstone-trigger": "schedule" } });
    const scheduled = await runtime.ended(tick.runId);
    expect(scheduled.outcome).toBe("ok");
    expect(scheduled.cpu_ms).toBeGreaterThan(needed / 4);
    expect(scheduled.cpu_ms).toBeLessThan(scheduled.duration_ms);

    const { loop, looped } = await untilItHadTheProcessor(runtime);
    expect([loop.status, looped.outcome]).toEqual([503, "cpu-exceeded"]);
    expect(looped.cpu_ms).toBeGreaterThanOrEqual(limit);
  },
);
