import { afterAll, expect, test } from "vitest";
import { defaultLimits, TestRuntime, until } from "./fixture/test-runtime.ts";

/** Wall time far above CPU time: on a loaded machine a loop has to wait for what it may use. */
const limits = { ...defaultLimits, request_cpu_ms: 300, request_wall_ms: 20_000 };
const runtime = await TestRuntime.start();
afterAll(() => runtime.close());

const program = `
  const { store } = globalThis[Symbol.for("kap")];
  const hostile = {
    loop: () => { for (;;); },
    microtasks: async () => { for (;;) await null; },
    regexp: () => /^(a+)+$/.test("a".repeat(60) + "b"),
    json: () => JSON.parse("[" + "1,".repeat(9_000_000) + "1]").length && JSON.parse("[" + "[],".repeat(5_000_000) + "1]").length,
    bigint: () => { let x = 3n ** 100000n; for (;;) x = x * x; },
    arrays: () => { const kept = []; for (;;) kept.push(new Array(100000).fill(1.5)); },
    strings: () => { let kept = []; for (let i = 0; ; i++) kept.push(("x" + i).repeat(10000) + i); },
    typed: () => { const kept = []; for (;;) kept.push(new Uint8Array(8_000_000).fill(1)); },
    map: () => { const kept = new Map(); for (let i = 0; ; i++) kept.set(i, { i }); },
    recursion: () => { const f = () => f() + 1; return f(); },
    rejection: () => { Promise.reject(new Error("nobody waits for me")); return new Promise((done) => setTimeout(done, 200)); },
    never: () => new Promise(() => {}),
    interval: async () => { for (let i = 0; i < 200000; i++) setInterval(() => {}, 1); return new Promise(() => {}); },
  };
  exports.default = {
    async fetch(request) {
      const name = new URL(request.url).pathname.slice(1);
      if (name === "ok") return new Response("ok");
      if (name === "held") { await store.get("gate"); return new Response("held"); }
      return new Response(String(await hostile[name]()));
    },
  };
`;
await runtime.claim(program, { limits });

/** What a caller and the api learn of a hostile call: by answer, or by a broken connection and the report. */
async function outcomeOf(path: string, runId = crypto.randomUUID()): Promise<{ status: number | null; outcome: string; ms: number }> {
  for (;;) {
    const started = performance.now();
    const status = await runtime.call(path, { headers: { "x-kapstone-run": runId } }).then(
      (reply) => reply.status,
      () => null,
    );
    const ms = performance.now() - started;
    const { outcome, detail } = await runtime.ended(runId);
    // Others had the processor: nothing was learnt about the program.
    if (outcome === "timeout" && detail?.includes("machine was too busy")) runId = crypto.randomUUID();
    else return { status, outcome, ms };
  }
}

async function servesAgain(): Promise<void> {
  await until(
    () =>
      runtime
        .call("/ok")
        .then((reply) => reply.text === "ok")
        .catch(() => false),
    "the kap to serve again",
  );
}

test.each([
  ["loop", "cpu-exceeded", 503],
  ["microtasks", "cpu-exceeded", 503],
  ["regexp", "cpu-exceeded", 503],
  ["recursion", "error", 500],
  ["rejection", "error", 500],
])("%s ends as %s while its neighbour in flight is answered", async (name, outcome, status) => {
  const neighbour = runtime.call("/held");
  await until(() => runtime.api.heldRuns === 1, "the neighbour in flight");
  expect(await outcomeOf(`/${name}`)).toMatchObject({ status, outcome });
  runtime.api.letGo();
  expect((await neighbour).text).toBe("held");
  expect((await runtime.call("/ok")).text).toBe("ok");
});

test.each(["arrays", "strings", "typed", "map"])(
  "%s ends as memory-exceeded, and so do the runs in flight; the next one works",
  async (name) => {
    const neighbourId = crypto.randomUUID();
    const neighbour = outcomeOf("/held", neighbourId);
    await until(() => runtime.api.heldRuns === 1, "the neighbour in flight");
    const { outcome, status } = await outcomeOf(`/${name}`);
    runtime.api.letGo();
    expect(["memory-exceeded", "cpu-exceeded", "error"]).toContain(outcome);
    if (outcome === "memory-exceeded") {
      expect([503, null]).toContain(status);
      expect((await neighbour).outcome).toBe("memory-exceeded");
    } else expect((await neighbour).outcome).toBe("ok");
    await servesAgain();
  },
);

test.each(["json", "bigint"])("%s wedges the isolate: the process is killed, the outcome is typed, the spare serves", async (name) => {
  const neighbourId = crypto.randomUUID();
  const neighbour = outcomeOf("/held", neighbourId);
  await until(() => runtime.api.heldRuns === 1, "the neighbour in flight");
  const { outcome, ms } = await outcomeOf(`/${name}`);
  runtime.api.letGo();
  expect(["cpu-exceeded", "memory-exceeded"]).toContain(outcome);
  expect(ms).toBeLessThan(15_000);
  expect(["crashed", "memory-exceeded", "ok"]).toContain((await neighbour).outcome);
  await servesAgain();
});

test("a flood of timers ends its run", async () => {
  expect((await outcomeOf("/interval")).outcome).toMatch(/error|cpu-exceeded/);
  await servesAgain();
});

test("a run that never answers ends as timeout", async () => {
  await runtime.claim(program, { limits: { ...limits, request_wall_ms: 1_000 } });
  expect(await outcomeOf("/never")).toMatchObject({ status: 504, outcome: "timeout" });
  expect((await runtime.call("/ok")).text).toBe("ok");
});
