import { readdirSync, readFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { defaultLimits, TestRuntime, until } from "./fixture/test-runtime.ts";

/** How children of a runtime come and go: spent, killed from outside, orphaned. */
const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
});

async function started(env: Record<string, string> = {}): Promise<TestRuntime> {
  const runtime = await TestRuntime.start(env);
  open.push(runtime);
  return runtime;
}

/** Direct children of a process, oldest first. */
function childrenOf(pid: number): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && parentOf(Number(name)) === pid)
    .map(Number)
    .sort((a, b) => Number(statOf(a)?.[19]) - Number(statOf(b)?.[19])); // by their start: numbers of processes are used again
}

const parentOf = (pid: number): number | null => {
  const parent = statOf(pid)?.[1];
  return parent === undefined ? null : Number(parent);
};

/** The fields of /proc/<pid>/stat from the state on; null when the process is gone. */
function statOf(pid: number): string[] | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  } catch {
    return null;
  }
}

async function metric(runtime: TestRuntime, name: string): Promise<number> {
  const { text } = await runtime.control("GET", "/metrics");
  return Number(new RegExp(`^kapstone_runtime_${name}\\{[^}]*\\} (\\d+)`, "m").exec(text)?.[1]);
}

const program = `
  const { store } = globalThis[Symbol.for("kap")];
  let served = 0;
  exports.default = { async fetch(request, ctx) {
    const url = new URL(request.url);
    const wait = Number(url.searchParams.get("wait") ?? 0);
    if (wait > 0) await new Promise((done) => setTimeout(done, wait));
    if (url.pathname === "/held") await store.get("gate");
    if (url.pathname === "/kept") return new Response(String(++served));
    if (url.pathname === "/fetch") return new Response(await (await fetch(url.searchParams.get("to"))).text());
    if (url.pathname === "/wedge") { let x = 3n ** 100000n; for (;;) x = x * x; }
    if (url.pathname === "/fail-and-wedge") { for (let i = 0; i < 10_001; i++) setInterval(() => {}, 1); let x = 3n ** 100000n; for (;;) x = x * x; }
    if (url.pathname === "/late") ctx.waitUntil(new Promise((done) => setTimeout(done, 300)));
    return new Response("ok");
  } };`;

test("a spent child gives way to the warm spare while calls go on: none fails, and long runs end where they began", {
  timeout: 90_000,
}, async () => {
  const runtime = await started({ KAPSTONE_RUNTIME_RECYCLE_RUNS: "150" });
  await runtime.claim(program);
  const first = childrenOf(runtime.process.pid as number)[0];
  const slow = runtime.call("/slow?wait=4000");
  let calls = 0;
  const caller = async (): Promise<string[]> => {
    const failures: string[] = [];
    while ((await metric(runtime, "children_recycled")) < 3) {
      const replies = await Promise.all(
        Array.from({ length: 10 }, (_, n) => runtime.call(n % 5 === 0 ? "/late" : "/x?wait=1").catch((error: Error) => error)),
      );
      calls += replies.length;
      for (const reply of replies) if (reply instanceof Error || reply.text !== "ok") failures.push(String(reply));
    }
    return failures;
  };
  const failures = (await Promise.all([caller(), caller(), caller()])).flat();
  expect(failures).toEqual([]);
  const last = await slow;
  expect([last.status, last.text]).toEqual([200, "ok"]);
  expect((await runtime.ended(last.runId)).outcome).toBe("ok");
  expect(calls).toBeGreaterThan(400);
  expect(await metric(runtime, "children_replaced")).toBe(0);
  runtime.closeConnections();
  await until(() => !childrenOf(runtime.process.pid as number).includes(first as number), "the first child to be gone");
  await until(async () => runtime.api.runs.size === calls + 1, "every run's end");
  expect([...runtime.api.runs.values()].filter((run) => run.outcome !== "ok")).toEqual([]);
});

test("a run of the retired child keeps its host calls while runs of the next one with the same number come and go", async () => {
  const fetched: ServerResponse[] = [];
  const upstream = createServer((_request, response) => void fetched.push(response));
  await new Promise<void>((resolve) => upstream.listen(0, "127.0.0.1", resolve));
  open.push({ close: () => new Promise((resolve) => upstream.close(() => resolve())) });
  const to = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}/`;
  const runtime = await started({ KAPSTONE_RUNTIME_RECYCLE_RUNS: "1", KAPSTONE_RUNTIME_EGRESS_ALLOW: new URL(to).host });
  await runtime.claim(program);
  await until(() => childrenOf(runtime.process.pid as number).length === 2, "the spare");
  const long = runtime.call(`/fetch?to=${encodeURIComponent(to)}`);
  await until(() => fetched.length === 1, "the long run");
  await until(async () => {
    await runtime.call("/");
    return (await metric(runtime, "children_recycled")) === 1;
  }, "the next child");
  // The first run of the next child has the number that the long run has in its own.
  expect((await runtime.call(`/fetch?to=${encodeURIComponent("data:,x")}`)).text).toBe("x");
  fetched[0]?.end("late");
  expect((await long).text).toBe("late");
});

test("growth past the budget counts from the thousandth run on", { timeout: 60_000 }, async () => {
  const runtime = await started({ KAPSTONE_RUNTIME_RECYCLE_GROWTH_MB: "40" });
  await runtime.claim(
    `const kept = []; exports.default = { fetch(request) { if (request.url.endsWith("/grow")) kept.push(new Uint8Array(60_000_000).fill(1)); return new Response("ok"); } };`,
  );
  await until(() => childrenOf(runtime.process.pid as number).length === 2, "the spare");
  expect((await runtime.call("/grow")).text).toBe("ok");
  for (let calls = 0; (await metric(runtime, "children_recycled")) === 0; calls += 50) {
    const replies = await Promise.all(Array.from({ length: 50 }, () => runtime.call("/")));
    expect(replies.every((reply) => reply.text === "ok")).toBe(true);
    expect(calls).toBeLessThan(5_000);
  }
  await until(() => runtime.api.runs.size > 900, "the ends of the thousand runs");
});

test("a child that somebody else kills makes its runs crashed, not out of memory, and that is known at once", async () => {
  const runtime = await started();
  await runtime.claim(program);
  const runId = crypto.randomUUID();
  const broken = runtime.call("/?wait=20000", { headers: { "x-kapstone-run": runId } }).catch(() => "broken");
  await until(async () => (await runtime.state()).in_flight === 1, "the run in flight");
  expect((await runtime.control("GET", `/outcome/${runId}`)).status).toBe(202);
  process.kill(childrenOf(runtime.process.pid as number)[0] as number, "SIGKILL");
  expect(await broken).toBe("broken");
  const told = await until(async () => {
    const answer = await runtime.control("GET", `/outcome/${runId}`);
    expect([200, 202]).toContain(answer.status);
    return answer.status === 200 && JSON.parse(answer.text);
  }, "the outcome");
  expect(told).toMatchObject({ outcome: "crashed", detail: expect.stringMatching(/SIGKILL/) });
  expect((await runtime.ended(runId)).outcome).toBe("crashed");
  // A run that no child has taken is not waited for.
  expect((await runtime.control("GET", `/outcome/${crypto.randomUUID()}`)).status).toBe(404);
  await until(
    () =>
      runtime.call("/").then(
        (reply) => reply.text === "ok",
        () => false,
      ),
    "the next child",
  );
});

test("a run that failed and then wedges its isolate is recorded as its caller was answered", async () => {
  const runtime = await started();
  await runtime.claim(program, { limits: { ...defaultLimits, request_cpu_ms: 1_000 } });
  const reply = await runtime.call("/fail-and-wedge");
  expect(reply.status).toBe(500);
  expect(await runtime.ended(reply.runId)).toMatchObject({ outcome: "error", http_status: 500, detail: expect.stringMatching(/timers/) });
  await until(
    () =>
      runtime.call("/").then(
        (answer) => answer.text === "ok",
        () => false,
      ),
    "the kap to serve again",
  );
  expect(await runtime.ended(reply.runId)).toMatchObject({ outcome: "error", http_status: 500 });
});

test("an endless loop that V8 takes long to interrupt is waited for: its neighbours in flight are answered, and no child is replaced", async () => {
  const runtime = await started();
  // A function too large to be compiled: a loop in it goes on for half a second of CPU time before it looks whether it should stop.
  const branches = Array.from({ length: 5_000 }, (_, n) => `if (path === "/${n}") sum += ${n};`).join("\n");
  await runtime.claim(
    `const { store } = globalThis[Symbol.for("kap")];
    const route = (path) => { let sum = 0; ${branches} if (path === "/loop") for (let n = 0; ; n++) sum = (sum + n) | 0; return sum; };
    exports.default = { async fetch(request) {
      const { pathname } = new URL(request.url);
      if (pathname === "/held") await store.get("gate");
      else route(pathname);
      return new Response("ok");
    } };`,
    { limits: { ...defaultLimits, request_cpu_ms: 100 } },
  );
  const neighbour = runtime.call("/held").then(({ text }) => text, String);
  await until(() => runtime.api.heldRuns === 1, "the neighbour in flight");
  const calledAt = performance.now();
  const loop = await runtime.call("/loop").catch(String);
  if (typeof loop === "string") {
    // So busy a machine that it took V8 longer than the four seconds after which silence is a wedge, whatever was used: only that can be seen then.
    expect([loop, performance.now() - calledAt > 4_000]).toEqual([expect.stringMatching(/hang up|ECONNRESET/), true]);
    return;
  }
  expect(loop).toMatchObject({ status: 503 });
  runtime.api.letGo();
  expect(await neighbour).toBe("ok");
  expect(await metric(runtime, "children_replaced")).toBe(0);
});

test("no child outlives its supervisor, not even a wedged one", async () => {
  const runtime = await started();
  await runtime.claim(program, { limits: { ...defaultLimits, request_cpu_ms: 60_000, request_wall_ms: 60_000 } });
  await runtime.ended((await runtime.call("/")).runId);
  const children = await until(() => {
    const found = childrenOf(runtime.process.pid as number);
    return found.length === 2 && found;
  }, "the spare");
  void runtime.call("/wedge").catch(() => undefined);
  await until(async () => (await runtime.state()).in_flight === 1, "the wedge");
  runtime.process.kill("SIGKILL");
  await until(() => children.every((pid) => parentOf(pid) === null), "both children to be gone");
});

test("a second release is the first: what runs is not cut short", async () => {
  const runtime = await started();
  await runtime.claim(program);
  const last = runtime.call("/held");
  await until(() => runtime.api.heldRuns === 1, "the run in flight");
  const drain = JSON.stringify({ drain_ms: 10_000 });
  expect((await runtime.control("POST", "/release", drain)).status).toBe(202);
  expect((await runtime.control("POST", "/release", drain)).status).toBe(202);
  runtime.process.kill("SIGTERM");
  await delay(500); // in which it would be cut short
  runtime.api.letGo();
  const reply = await last;
  expect(reply.text).toBe("ok");
  expect(await runtime.exited).toBe(0);
  expect(runtime.api.runs.get(reply.runId)?.outcome).toBe("ok");
});

test("a runtime the api has given up ends by itself", async () => {
  const runtime = await started();
  await runtime.claim(program);
  runtime.revision++;
  runtime.api.isDisowning = true;
  expect((await runtime.call("/")).status).toBe(503);
  expect(await runtime.exited).toBe(0);
});
