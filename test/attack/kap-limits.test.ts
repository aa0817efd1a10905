import { afterAll, beforeAll, expect, test } from "vitest";
import { openHttpClient } from "../harness/http.ts";
import type { TestKap } from "../harness/org.ts";
import { until } from "../harness/wait.ts";
import { type Ground, prepareGround } from "./ground.ts";

/** Every limit of decided §7.2 as it is without any setting: what is just allowed works, what is just past it fails as the contract says. */
const program = `
import { db, store } from "kap";
const mib = 1_048_576;
const refusal = async (action) => { try { await action(); return "allowed"; } catch (error) { return error.code ?? error.name; } };
const does = {
  loop: () => { for (;;); },
  busy: (n) => { const end = Date.now() + n; while (Date.now() < end); return "done"; },
  never: () => new Promise(() => {}),
  sleep: (n) => new Promise((done) => setTimeout(done, n, "slept")),
  memory: (n) => { const kept = []; for (let i = 0; i < n; i++) kept.push(new Array(mib / 8).fill(i + 0.5)); return String(kept.length); },
  answer: (n) => "x".repeat(n),
  stream: (n) => new ReadableStream({ pull(c) { if (n <= 0) return c.close(); const size = Math.min(n, 65_536); n -= size; c.enqueue(new Uint8Array(size)); } }),
  lines: (n) => { for (let i = 1; i <= n; i++) console.log(i); return "logged"; },
  line: (n) => { console.log("x".repeat(n)); return "logged"; },
  rows: (n) => refusal(() => db.query("select generate_series(1, $1::int) as n", [n])),
  result: (n) => refusal(() => db.query("select repeat('x', $1::int) as text", [n])),
  statement: () => refusal(() => db.query("select count(*) from generate_series(1, 100000000) a, generate_series(1, 1000) b")),
  object: (n) => refusal(() => store.put("object", new Uint8Array(n))),
};
export default async (request) => {
  const url = new URL(request.url);
  const name = url.pathname.slice(1);
  if (name === "held") { await (await fetch(url.searchParams.get("to"))).text(); await does.sleep(1_000); return new Response("let go"); }
  if (name === "body") return new Response(String((await request.arrayBuffer()).byteLength));
  if (name === "fetches") { let n = 0; const to = url.searchParams.get("to"); for (; n < 60; n++) { const r = await refusal(async () => (await fetch(to)).text()); if (r !== "allowed") return new Response(n + " " + r); } return new Response(String(n)); }
  if (name === "fetched") return new Response(await refusal(async () => (await fetch(url.searchParams.get("to"))).arrayBuffer()));
  return new Response(await does[name](Number(url.searchParams.get("n"))));
};`;

let ground: Ground;
let kap: TestKap;

beforeAll(async () => {
  ground = await prepareGround();
  kap = await ground.org.createKap(program);
  await kap.call({ path: "/answer?n=1" });
});
afterAll(() => ground?.close());

const mib = 1024 * 1024;
const call = async (path: string, request: { body?: string; timeoutMs?: number } = {}) => {
  const started = performance.now();
  const answer = await kap.call({
    path,
    ...(request.body === undefined ? {} : { method: "POST", body: request.body }),
    timeoutMs: request.timeoutMs ?? 45_000,
  });
  return { ...answer, ms: performance.now() - started };
};
const outcomeOf = async (answer: { headers: Record<string, string> }) =>
  (await ground.ended(kap, answer.headers["x-kap-run-id"] as string)).outcome;

/** Calls again when the run was ended because others had the processor: it was not seen to use up its time then. */
async function untilItHadTheProcessor(path: string) {
  for (;;) {
    const answer = await call(path);
    const { detail } = await ground.ended(kap, answer.headers["x-kap-run-id"] as string);
    if (!detail?.includes("machine was too busy")) return answer;
  }
}

test("30 s of wall time: 504, while a run of 4 s is answered", async () => {
  const forever = call("/never");
  expect((await call("/busy?n=4000")).text).toBe("done");
  const timeout = await forever;
  expect([timeout.status, await outcomeOf(timeout)]).toEqual([504, "timeout"]);
  expect(timeout.ms).toBeGreaterThan(29_000);
});

test("5 s of CPU time: 503", async () => {
  const loop = await untilItHadTheProcessor("/loop");
  expect([loop.status, await outcomeOf(loop)]).toEqual([503, "cpu-exceeded"]);
  expect(loop.ms).toBeGreaterThan(4_900);
});

test("128 MiB of memory: 80 are given, 300 are not, and the next run works", async () => {
  expect((await call("/memory?n=80")).text).toBe("80");
  const past = await call("/memory?n=300");
  expect([past.status, await outcomeOf(past)]).toEqual([503, "memory-exceeded"]);
  await until(async () => (await call("/memory?n=10")).text === "10");
});

test("a request body of 2 MiB, and not a byte more", async () => {
  expect((await call("/body", { body: "x".repeat(2 * mib) })).text).toBe(String(2 * mib));
  const past = await call("/body", { body: "x".repeat(2 * mib + 1) });
  expect([past.status, past.json<{ error: { code: string } }>().error.code]).toEqual([413, "PAYLOAD_TOO_LARGE"]);
});

test("a response body of 10 MiB, whole or streamed; past it 502 before the first byte and a broken connection after", async () => {
  expect((await call(`/answer?n=${10 * mib}`)).bytes.length).toBe(10 * mib);
  expect((await call(`/stream?n=${10 * mib}`)).bytes.length).toBe(10 * mib);
  const past = await call(`/answer?n=${10 * mib + 1}`);
  expect([past.status, past.json<{ error: { code: string } }>().error.code, await outcomeOf(past)]).toEqual([
    502,
    "RESPONSE_TOO_LARGE",
    "response-too-large",
  ]);
  await expect(call(`/stream?n=${10 * mib + 1}`)).rejects.toThrow();
  await until(async () => (await ground.runs(kap, 1))[0]?.outcome === "response-too-large");
});

test("50 runs at once and 200 that wait: the next ones are 503 with Retry-After", { timeout: 90_000 }, async () => {
  const crowd = openHttpClient(`http://127.0.0.1:${ground.test.platform.port}`, { connections: 300 });
  const headers = { authorization: `Bearer ${kap.token}` };
  const host = ground.test.host(`${kap.slug}.kaps`);
  const { outside } = ground;
  const path = `/held?to=${encodeURIComponent(`http://127.0.0.1:${outside.port}/held`)}`;
  let answered = 0;
  const calls = Array.from({ length: 256 }, async () => {
    const answer = await crowd.call({ host, headers, path, timeoutMs: 60_000 });
    answered++;
    return { ...answer, at: performance.now() };
  });
  const all = Promise.all(calls);
  // Nobody who runs or waits ends before the last one has come; then each runs for a second.
  await Promise.race([all, until(() => answered === 6 && outside.held() > 0, { what: "six to be refused" })]);
  const letGoAt = performance.now();
  outside.letGo();
  const answers = await all;
  await crowd.close();
  const served = answers.filter((answer) => answer.status === 200);
  const refused = answers.filter((answer) => answer.status === 503);
  expect([served.length, refused.length]).toEqual([250, 6]);
  for (const answer of refused) expect(Number(answer.headers["retry-after"])).toBeGreaterThan(0);
  // Five rounds of fifty: nobody waited in vain, and fifty ran at a time.
  expect(Math.max(...served.map((answer) => answer.at)) - letGoAt).toBeGreaterThan(5 * 1_000 - 100);
});

test("50 fetches a run, 10 MiB each", async () => {
  const outside = `http://127.0.0.1:${ground.outside.port}`;
  expect((await call(`/fetches?to=${encodeURIComponent(`${outside}/`)}`)).text).toBe("50 FETCH_LIMIT");
  const fetched = async (count: number) => (await call(`/fetched?to=${encodeURIComponent(`${outside}/bytes?count=${count}`)}`)).text;
  expect(await fetched(10 * mib)).toBe("allowed");
  expect(await fetched(10 * mib + 1)).toBe("FETCH_TOO_LARGE");
});

test("1,000 log lines of 8 KiB, then a line that says so", async () => {
  const many = await call("/lines?n=1005");
  const id = many.headers["x-kap-run-id"] as string;
  const lines = await until(async () => {
    const all = await ground.lines(kap, id);
    return all.length > 1_000 && all;
  });
  expect(lines.length).toBe(1_001);
  expect([lines[999]?.text, lines[1000]?.text]).toEqual(["1000", expect.stringContaining("log truncated")]);
  const long = await call("/line?n=9000");
  const [line] = await until(async () => {
    const all = await ground.lines(kap, long.headers["x-kap-run-id"] as string);
    return all.length > 0 && all;
  });
  expect(Buffer.byteLength(line?.text ?? "")).toBeLessThanOrEqual(8_192);
  expect(Buffer.byteLength(line?.text ?? "")).toBeGreaterThan(8_000);
});

test("10,000 rows or 8 MiB a result, 5 s a statement", async () => {
  expect((await call("/rows?n=10000")).text).toBe("allowed");
  expect((await call("/rows?n=10001")).text).toBe("RESULT_TOO_LARGE");
  expect((await call(`/result?n=${8 * mib - 1_000}`)).text).toBe("allowed");
  expect((await call(`/result?n=${8 * mib + 1}`)).text).toBe("RESULT_TOO_LARGE");
  const slow = await call("/statement");
  expect(slow.text).toBe("STATEMENT_TIMEOUT");
  expect(slow.ms).toBeGreaterThan(4_900);
});

test("a store object of 30 MiB, and not a byte more", async () => {
  expect((await call(`/object?n=${30 * mib}`)).text).toBe("allowed");
  expect((await call(`/object?n=${30 * mib + 1}`)).text).not.toBe("allowed");
});

test("200 files and 2 MiB a version", async () => {
  const files = (count: number) =>
    Object.fromEntries([
      ["main.ts", "export default () => new Response('many')"],
      ...Array.from({ length: count - 1 }, (_, n) => [`text/${n}.txt`, "x"]),
    ]) as Record<string, string>;
  expect((await (await ground.org.createKap(files(200))).call()).text).toBe("many");
  await expect(ground.org.createKap(files(201))).rejects.toThrow(/422/);
  await expect(
    ground.org.createKap({ "main.ts": "export default () => new Response('x')", "large.txt": "x".repeat(2 * mib) }),
  ).rejects.toThrow(/413/);
});
