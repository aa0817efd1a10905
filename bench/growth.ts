import { PeerApi } from "../runtime/fixture/peer-api.ts";
import { defaultLimits } from "../runtime/fixture/test-runtime.ts";
import type { Measure, Row } from "./measure.ts";
import { type MeasuredRuntime, startRuntime } from "./measured-runtime.ts";
import { processTree, proportionalMb } from "./process-memory.ts";

const runs = Number(process.env.KAPSTONE_BENCH_GROWTH_RUNS ?? 100_000);
const inFlight = 20;
/**
 * One run in a hundred loops for ever and is stopped by its isolate, past its CPU time by what V8 needs to hear of it; one in a thousand takes the
 * process with it. Wedges go alone, so no run that ends with its neighbour's process is counted: every failure is one too many.
 */
const killEvery = 100;
const wedgeEvery = 1_000;
/** Runs after which memory is looked at first: caches are full then and V8 has settled. */
const warmUp = 2_000;

const program = `const seen = new Map();
exports.default = { async fetch(request) {
  const { pathname, searchParams } = new URL(request.url);
  if (pathname === "/loop") for (;;);
  if (pathname === "/wedge") { let x = 3n ** 100000n; for (;;) x = x * x; }
  const n = searchParams.get("n");
  if (seen.size < 1000) seen.set(n, { n });
  await new Promise((done) => setTimeout(done, 1));
  console.log("run", n);
  return Response.json({ n, text: "x".repeat(500), headers: Object.fromEntries(request.headers) });
} };`;

/** How the memory of a runtime (supervisor, serving child and spare, shared pages counted in proportion) grows over very many runs. */
export const growth: Measure = {
  name: "growth",
  async run(): Promise<Row[]> {
    const api = await PeerApi.start();
    const runtime = await startRuntime(api);
    try {
      await runtime.claim(program, { limits: { ...defaultLimits, request_cpu_ms: 200 } });
      let failures = await serve(runtime, api, 0, warmUp);
      const before = await restingMb(runtime);
      failures += await serve(runtime, api, warmUp, warmUp + runs);
      const after = await restingMb(runtime);
      const wedges = Math.ceil((warmUp + runs) / wedgeEvery);
      const lost = await runtime.gauge("children_replaced");
      const recycled = await runtime.gauge("children_recycled");
      const percent = (100 * (after - before)) / before;
      return [
        {
          measure: `memory over ${runs} runs, 1 % killed (PSS)`,
          value: `${before.toFixed(0)} → ${after.toFixed(0)} MB`,
          peer: "none",
          result: `${percent.toFixed(1)} %`,
          goal: "< 10 %",
          isMet: percent < 10,
        },
        {
          measure: "calls that failed beside the killed ones",
          value: `${failures}; ${recycled} children recycled, ${lost - wedges} killed beside the ${wedges} that were wedged`,
          peer: "none",
          result: String(failures),
          goal: "0, no child killed but for a wedge",
          isMet: failures === 0 && lost <= wedges,
        },
      ];
    } finally {
      await runtime.close();
      await api.close();
    }
  },
};

/** Sends the runs of some numbers, so many at once. What is in flight beside a wedge would end with its process, as it must: so nothing is. */
async function serve(runtime: MeasuredRuntime, api: PeerApi, from: number, to: number): Promise<number> {
  let failures = 0;
  for (let at = from; at < to; at += inFlight) {
    if (at % wedgeEvery === 0) {
      await runtime.get("/wedge").catch(() => undefined);
      while ((await runtime.get("/?n=again").catch(() => null))?.status !== 200);
    }
    await Promise.all(
      Array.from({ length: inFlight }, async (_, n) => {
        const number = at + n;
        const isKilled = number % killEvery === 1;
        const answer = await runtime.get(isKilled ? "/loop" : `/?n=${number}`).catch(() => null);
        if (answer?.status !== (isKilled ? 503 : 200)) failures++;
      }),
    );
    api.runs.clear();
    api.deliveries.clear();
    api.lines.length = 0;
  }
  return failures;
}

/** Memory once nothing is retired or starting any more: the least of some looks, since garbage comes and goes. */
async function restingMb(runtime: MeasuredRuntime): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  const deadline = Date.now() + 120_000;
  for (let looks = 0; looks < 10; ) {
    await new Promise((resolve) => setTimeout(resolve, 300));
    const tree = processTree(runtime.pid);
    if (tree.length !== 3 && Date.now() < deadline) continue;
    looks++;
    least = Math.min(least, proportionalMb(tree) ?? 0);
  }
  return least;
}
