import { createServer, request as httpRequest } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, expect, test } from "vitest";
import { defaultLimits, TestRuntime, until } from "./fixture/test-runtime.ts";

const runtime = await TestRuntime.start();
afterAll(() => runtime.close());

await runtime.claim(
  `
  import_count = (globalThis.import_count ?? 0) + 1;
  const routes = {
    "/see": async (request, ctx) => Response.json({ url: request.url, method: request.method, headers: Object.fromEntries(request.headers), body: await request.text(), user: ctx.user ?? null, runId: ctx.runId, kap: ctx.kap }),
    "/throw": () => { throw new Error("the value is s3cr3t-value"); },
    "/nothing": () => undefined,
    "/later": (request, ctx) => { ctx.waitUntil(new Promise((done) => setTimeout(() => { console.log("later"); done(); }, 30))); return new Response("now"); },
    "/echo": (request) => new Response(request.body, { headers: { "content-type": "application/octet-stream" } }),
    "/size": async (request) => { let bytes = 0; for await (const piece of request.body) bytes += piece.length; return new Response(String(bytes)); },
    "/big": () => new Response("x".repeat(3000)),
    "/bigstream": () => new Response(new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(1000)); } })),
    "/headers": () => new Response("ok", { headers: { "x-kapstone-outcome": "crashed", "transfer-encoding": "chunked", "content-length": "5000", "x-own": "1" } }),
    "/status": () => new Response(null, { status: 204 }),
    "/logs": () => { for (let i = 0; i < 12; i++) console.log("line " + i + " s3cr3t-value"); console.error("x".repeat(9000)); return new Response("ok"); },
  };
  exports.default = { fetch: (request, ctx) => routes[new URL(request.url).pathname](request, ctx) };
`.replace("import_count = (globalThis.import_count ?? 0) + 1;", ""),
  {
    secrets: { TOKEN: "s3cr3t-value" },
    limits: { ...defaultLimits, request_body_bytes: 1_000_000, response_body_bytes: 2_000_000, log_lines: 10, log_line_bytes: 200 },
  },
);

test("the program sees the request as its caller made it, and nothing of the platform's", async () => {
  const user = Buffer.from(JSON.stringify({ id: "u1", email: "a@b.c", name: "Ä", role: "member" })).toString("base64url");
  const reply = await runtime.call("/see?a=1&b=%20", {
    method: "POST",
    body: "grüße",
    headers: { "x-kapstone-user": user, "x-mine": "1" },
  });
  expect(reply.status).toBe(200);
  const seen = JSON.parse(reply.text);
  expect(seen).toMatchObject({
    url: "http://hits.kaps.localhost:8080/see?a=1&b=%20",
    method: "POST",
    body: "grüße",
    user: { id: "u1", name: "Ä" },
    runId: reply.runId,
    kap: { id: runtime.kapId, slug: "hits", name: "Hits" },
  });
  expect(seen.headers).toMatchObject({ "x-mine": "1", "x-kap-caller": "anonymous", host: "hits.kaps.localhost:8080" });
  expect(Object.keys(seen.headers).filter((name) => name.startsWith("x-kapstone-"))).toEqual([]);
  expect(await runtime.ended(reply.runId)).toMatchObject({
    outcome: "ok",
    http_status: 200,
    detail: null,
    phases: { claim_ms: 0, queue_ms: expect.any(Number), load_ms: 0, handler_ms: expect.any(Number), host_ms: expect.any(Number) },
  });
});

test("the wait for a runtime, which only the gateway knows, is among the run's phases", async () => {
  const reply = await runtime.call("/see", { headers: { "x-kapstone-claim": "12.5" } });
  expect((await runtime.ended(reply.runId)).phases).toMatchObject({ claim_ms: 12.5 });
});

test("a throw is 500, no Response is 500, and the detail names the place without the secret", async () => {
  const thrown = await runtime.call("/throw");
  expect(thrown.status).toBe(500);
  expect(thrown.headers["x-kapstone-outcome"]).toBe("error");
  const end = await runtime.ended(thrown.runId);
  expect(end).toMatchObject({ outcome: "error", http_status: 500 });
  expect(end.detail).toContain("the value is [secret TOKEN]");
  expect(end.detail).not.toContain("s3cr3t-value");
  expect(end.detail).not.toMatch(/\/runtime\/|node_modules|kapstone:guest/);
  expect((await runtime.call("/nothing")).status).toBe(500);
});

test("work given to waitUntil goes on after the answer, and the run ends with it", async () => {
  const reply = await runtime.call("/later");
  expect(reply.text).toBe("now");
  const end = await runtime.ended(reply.runId);
  expect(end.outcome).toBe("ok");
  expect(end.duration_ms).toBeGreaterThan(25);
  await until(() => runtime.linesOf(reply.runId).length === 1, "the line of the late work");
});

test("bodies stream both ways", async () => {
  const body = Buffer.alloc(900_000, 7);
  const reply = await runtime.call("/size", { method: "POST", body, headers: { "transfer-encoding": "chunked" } });
  expect(reply.text).toBe("900000");
  const echoed = await runtime.call("/echo", { method: "POST", body: "abc".repeat(1000) });
  expect(echoed.text).toBe("abc".repeat(1000));
  const large = await runtime.call("/echo", { method: "POST", body });
  expect(large.text.length).toBe(900_000);
});

test("a request body past the limit is 413, announced or not", async () => {
  const body = Buffer.alloc(1_000_001);
  const announced = await runtime.call("/size", { method: "POST", body });
  expect(announced.status).toBe(413);
  expect(await runtime.ended(announced.runId)).toMatchObject({ outcome: "refused", http_status: 413 });
  const streamed = await runtime.call("/size", { method: "POST", body, headers: { "transfer-encoding": "chunked" } });
  expect(streamed.status).toBe(413);
});

test("a response past the limit breaks the connection once bytes have gone out", async () => {
  const runId = "11111111-1111-4111-8111-111111111111";
  await expect(runtime.call("/bigstream", { headers: { "x-kapstone-run": runId } })).rejects.toThrow();
  expect(await runtime.ended(runId)).toMatchObject({ outcome: "response-too-large", http_status: 200 });
});

test("a program's headers never speak for the platform or the connection", async () => {
  // The second time its head is known.
  for (const reply of [await runtime.call("/headers"), await runtime.call("/headers")]) {
    expect(reply.status).toBe(200);
    expect(reply.text).toBe("ok");
    expect(reply.headers["x-kapstone-outcome"]).toBeUndefined();
    expect(reply.headers["content-length"]).toBe("2");
    expect(reply.headers["x-own"]).toBe("1");
  }
  expect((await runtime.call("/status")).status).toBe(204);
});

test("logs are redacted, cut to their limits, and say when lines were dropped", async () => {
  const { runId } = await runtime.call("/logs");
  await runtime.ended(runId);
  const lines = await until(() => (runtime.linesOf(runId).length >= 11 ? runtime.linesOf(runId) : null), "the lines");
  expect(lines.map((line) => line.n)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
  expect(lines[0]).toMatchObject({ level: "info", text: "line 0 [secret TOKEN]" });
  expect(lines[10]?.text).toMatch(/truncated/);
});

test("a slow reader holds a streamed answer back instead of filling memory", async () => {
  let produced = 0;
  const upstream = createServer((request, response) => {
    produced = Number(new URL(request.url ?? "/", "http://x").searchParams.get("n"));
    response.end();
  });
  await new Promise<void>((resolve) => upstream.listen(0, "127.0.0.1", resolve));
  upstream.close();
  const received = await new Promise<number>((resolve, reject) => {
    const request = httpRequest(
      { socketPath: runtime.dataPath, path: "/bigstream", headers: { "x-kapstone-kap": runtime.kapId, "x-kapstone-revision": "1" } },
      (response) => {
        // Nothing is read for a while; the program's stream must stop by itself, so the run is still alive.
        setTimeout(() => {
          let bytes = 0;
          response.on("data", (piece: Buffer) => (bytes += piece.length));
          response.on("close", () => resolve(bytes));
          response.on("error", () => undefined);
        }, 300);
      },
    );
    request.on("error", reject);
    request.end();
  });
  expect(received).toBeGreaterThan(100_000);
  expect(produced).toBe(0);
  expect((upstream.address() as AddressInfo | null) ?? null).toBeNull();
});
