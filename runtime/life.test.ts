import { Agent, request as httpRequest } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { bundleOf, defaultLimits, TestRuntime, until } from "./fixture/test-runtime.ts";

const open: TestRuntime[] = [];
afterEach(async () => {
  for (const runtime of open.splice(0)) await runtime.close();
});

async function started(): Promise<TestRuntime> {
  const runtime = await TestRuntime.start();
  open.push(runtime);
  return runtime;
}

/** Waits as long as the call says, or, where it says "held", until the test lets it go. */
const slowThenText = (text: string): string => `
  const { store } = globalThis[Symbol.for("kap")];
  let served = 0;
  exports.default = { async fetch(request) {
    const { searchParams } = new URL(request.url);
    const wait = Number(searchParams.get("wait") ?? 0);
    if (wait > 0) await new Promise((done) => setTimeout(done, wait));
    if (searchParams.has("held")) await store.get("gate");
    return new Response(${JSON.stringify(text)} + " " + ++served);
  } };`;

test("a newer revision is fetched once and serves from its request on, while the older program ends its runs", async () => {
  const runtime = await started();
  await runtime.claim(slowThenText("old"));
  expect((await runtime.call("/")).text).toBe("old 1");
  const old = runtime.call("/?held");
  await until(() => runtime.api.heldRuns === 1, "the old run in flight");
  const next = runtime.assignment(slowThenText("new"));
  runtime.api.assignment = () => runtime.sign(next);
  const replies = await Promise.all(Array.from({ length: 5 }, () => runtime.call("/")));
  expect(replies.map((reply) => reply.text).sort()).toEqual(["new 1", "new 2", "new 3", "new 4", "new 5"]);
  runtime.api.letGo();
  expect((await old).text).toBe("old 2");
  expect(runtime.api.assignmentCalls).toBe(1);
  expect((await runtime.state()).revision).toBe(2);
});

test("a revision that changes only a secret holds from the next request on; one that changes only triggers keeps the program's state", async () => {
  const runtime = await started();
  const source = `const kept = globalThis[Symbol.for("kap")].secrets; let served = 0; exports.default = { fetch: () => new Response(kept.get("A") + " " + ++served) };`;
  await runtime.claim(source, { secrets: { A: "one" } });
  expect((await runtime.call("/")).text).toBe("one 1");
  const first = runtime.assignment(source, { secrets: { A: "two" } });
  runtime.api.assignment = () => runtime.sign(first);
  expect((await runtime.call("/")).text).toBe("two 1");
  const second = runtime.assignment(source, { secrets: { A: "two" } });
  runtime.api.assignment = () => runtime.sign(second);
  expect((await runtime.call("/")).text).toBe("two 2");
});

test("an object that is being read comes whole although a newer revision is taken up meanwhile", async () => {
  const runtime = await started();
  const reader = `
    const { store } = globalThis[Symbol.for("kap")];
    exports.default = { async fetch(request) {
      if (new URL(request.url).pathname === "/") return new Response("served");
      let bytes = 0;
      for await (const piece of (await store.get("large")).body) {
        if (bytes === 0) { console.log("reading"); while (!(await store.get("go"))) await new Promise((done) => setTimeout(done, 20)); }
        bytes += piece.length;
      }
      return new Response(String(bytes));
    } };`;
  runtime.api.files.set("large", { type: "text/plain", bytes: Buffer.alloc(3_000_000, 97) });
  await runtime.claim(reader);
  const reading = runtime.call("/read");
  await until(() => runtime.api.lines.some((line) => line.text === "reading"), "the run to read");
  const next = runtime.assignment(reader, { secrets: { NEW: "value" } });
  runtime.api.assignment = () => runtime.sign(next);
  expect((await runtime.call("/")).text).toBe("served");
  runtime.api.files.set("go", { type: "text/plain", bytes: Buffer.from("go") });
  expect((await reading).text).toBe("3000000");
});

test("a revision that cannot be had is a refusal that says why, and the next request tries again", async () => {
  const runtime = await started();
  await runtime.claim(slowThenText("old"));
  const next = runtime.assignment(slowThenText("new"));
  const refused = await runtime.call("/");
  expect(refused.status).toBe(503);
  expect(JSON.parse(refused.text).detail).toMatch(/revision 2/);
  runtime.api.assignment = () => runtime.sign(next);
  expect((await runtime.call("/")).text).toBe("new 1");
});

test("so many runs at once, so many more in the queue, the rest is told to come again", async () => {
  const runtime = await started();
  await runtime.claim(slowThenText("x"), { limits: { ...defaultLimits, concurrency: 3, queue: 4 } });
  const calls = Array.from({ length: 10 }, () => runtime.call("/?held"));
  let answers = 0;
  for (const call of calls) call.finally(() => answers++).catch(() => undefined);
  // None of those that run or wait ends before the last of the ten has come.
  await until(() => answers === 3 && runtime.api.heldRuns === 3, "three to be refused while three run");
  await delay(250);
  runtime.api.letGo({ forGood: true });
  const replies = await Promise.all(calls);
  const refused = replies.filter((reply) => reply.status === 503);
  expect(refused.length).toBe(3);
  expect(refused[0]?.headers["retry-after"]).toBe("1");
  expect(refused[0]?.headers["x-kapstone-outcome"]).toBe("refused");
  expect(replies.filter((reply) => reply.status === 200).length).toBe(7);
  const ends = await Promise.all(replies.map((reply) => runtime.ended(reply.runId)));
  expect(ends.filter((end) => end.outcome === "refused").length).toBe(3);
  expect(Math.max(...ends.filter((end) => end.outcome === "ok").map((end) => end.phases.queue_ms))).toBeGreaterThan(200);
});

test("reports survive an outage of the api: each end arrives once it is back", async () => {
  const runtime = await started();
  await runtime.claim(slowThenText("x"));
  runtime.api.isAway = true;
  const replies = await Promise.all(Array.from({ length: 20 }, () => runtime.call("/")));
  await until(async () => /reports_waiting\{[^}]*\} 20/.test((await runtime.control("GET", "/metrics")).text), "twenty waiting reports");
  runtime.api.isAway = false;
  for (const reply of replies) expect((await runtime.ended(reply.runId)).outcome).toBe("ok");
});

test("a release lets the run in flight end, takes no new connection, reports and exits", async () => {
  const runtime = await started();
  await runtime.claim(slowThenText("x"));
  const last = runtime.call("/?held");
  await until(() => runtime.api.heldRuns === 1, "the run in flight");
  expect((await runtime.control("POST", "/release", JSON.stringify({ drain_ms: 10_000 }))).status).toBe(202);
  runtime.api.letGo();
  const reply = await last;
  expect(reply.text).toBe("x 1");
  expect(await runtime.exited).toBe(0);
  expect(runtime.api.runs.get(reply.runId)?.outcome).toBe("ok");
  await expect(runtime.call("/")).rejects.toThrow();
});

test("a release ends what does not drain in time, and says so", async () => {
  const runtime = await started();
  await runtime.claim(slowThenText("x"));
  const runId = "33333333-3333-4333-8333-333333333333";
  const stuck = runtime.call("/?wait=20000", { headers: { "x-kapstone-run": runId } }).catch(() => "broken");
  await until(async () => (await runtime.state()).in_flight === 1, "the run in flight");
  await runtime.control("POST", "/release", JSON.stringify({ drain_ms: 200 }));
  expect(await runtime.exited).toBe(0);
  expect(await stuck).toBe("broken");
  expect(runtime.api.runs.get(runId)).toMatchObject({ outcome: "crashed", detail: expect.stringMatching(/released/) });
});

test("connections that wait while a wedged child is killed are served by the spare", async () => {
  const runtime = await started();
  await runtime.claim(
    `exports.default = { fetch: (request) => { if (new URL(request.url).pathname === "/wedge") { let x = 3n ** 100000n; for (;;) x = x * x; } return new Response("ok"); } };`,
    { limits: { ...defaultLimits, request_cpu_ms: 300 } },
  );
  await runtime.ended((await runtime.call("/")).runId);
  const runId = crypto.randomUUID();
  const wedge = runtime.call("/wedge", { headers: { "x-kapstone-run": runId } }).catch(() => null);
  await until(async () => (await runtime.state()).in_flight === 1, "the wedge");
  // New connections: the wedged child cannot accept them, so they wait in the kernel's backlog.
  const agent = new Agent({ keepAlive: false });
  const waiting = Array.from(
    { length: 10 },
    () =>
      new Promise<number>((resolve, reject) => {
        const request = httpRequest(
          { socketPath: runtime.dataPath, path: "/", agent, headers: { "x-kapstone-kap": runtime.kapId, "x-kapstone-revision": "1" } },
          (response) => {
            response.resume();
            resolve(response.statusCode ?? 0);
          },
        );
        request.on("error", reject);
        request.end();
      }),
  );
  expect(await Promise.all(waiting)).toEqual(Array.from({ length: 10 }, () => 200));
  await wedge;
  const { outcome, detail } = await runtime.ended(runId);
  expect(`${outcome}: ${detail}`).toMatch(/^(?:cpu-exceeded|memory-exceeded): |^timeout: .*machine was too busy/);
  expect(JSON.parse((await runtime.control("GET", `/outcome/${runId}`)).text)).toEqual({ outcome, detail });
});

test("a schedule and a mail run their handlers and answer how they ended", async () => {
  const runtime = await started();
  const source = `exports.default = {
    async scheduled(event) { console.log("at " + event.scheduledAt.toISOString()); if (event.triggerId === "bad") throw new Error("no"); },
    async email(message) { console.log(message.from.address + " " + message.attachments.map((a) => a.filename + ":" + new TextDecoder().decode(a.content)).join()); },
  };`;
  const triggers = ["schedule", "inbox", "bad"].map((id) => ({
    id,
    kind: id === "inbox" ? ("inbox" as const) : ("schedule" as const),
    file_path: "main.ts",
  }));
  await runtime.claim(source, { bundle: bundleOf({ "main.ts": source }), triggers });
  const call = (id: string, path: string, body: string | Buffer) =>
    runtime.call(path, { method: "POST", body, headers: { "x-kapstone-trigger": id } });
  const due = JSON.stringify({ scheduled_at: "2026-11-21T12:00:00.000Z" });
  const scheduled = await call("schedule", "/__kaps/scheduled", due);
  expect(JSON.parse(scheduled.text)).toEqual({ outcome: "ok", detail: null });
  await until(() => runtime.linesOf(scheduled.runId).some((line) => line.text === "at 2026-11-21T12:00:00.000Z"), "the line");
  const failed = await call("bad", "/__kaps/scheduled", due);
  expect(failed.status).toBe(200);
  expect(JSON.parse(failed.text)).toMatchObject({ outcome: "error", detail: expect.stringMatching(/no/) });
  const head = Buffer.from(
    JSON.stringify({
      from: { address: "a@b.c", name: "" },
      to: [],
      subject: "s",
      text: "t",
      html: null,
      headers: [],
      auth: {},
      attachments: [
        { filename: "one", contentType: "text/plain", size: 3 },
        { filename: "two", contentType: "text/plain", size: 2 },
      ],
    }),
  );
  const length = Buffer.alloc(4);
  length.writeUInt32BE(head.length);
  const mailed = await call("inbox", "/__kaps/email", Buffer.concat([length, head, Buffer.from("abcde")]));
  expect(JSON.parse(mailed.text)).toEqual({ outcome: "ok", detail: null });
  await until(() => runtime.linesOf(mailed.runId).some((line) => line.text === "a@b.c one:abc,two:de"), "the mail's line");
});
