import { connect } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { until } from "../../harness/wait.ts";
import type { Attack } from "../attack.ts";
import type { Ground } from "../ground.ts";

/** Bytes sent as they are; answers what came back until the platform closed the connection, or null when nothing came. */
export function rawCall(
  ground: Ground,
  head: string,
  more: (write: (text: string) => boolean) => Promise<void> = async () => undefined,
): Promise<string> {
  return new Promise((resolve) => {
    let text = "";
    const socket = connect(ground.test.platform.port, "127.0.0.1");
    const finish = (): void => {
      socket.destroy();
      resolve(text);
    };
    socket.setTimeout(10_000, finish);
    socket.on("data", (chunk) => (text += chunk.toString("latin1")));
    socket.on("error", finish).on("close", finish).on("end", finish);
    socket.write(head);
    more((piece) => !socket.destroyed && socket.write(piece)).catch(finish);
  });
}

/** A call whose caller hangs up `ms` after its run began, having read nothing of the answer where `reads` is false. */
async function hangUp(ground: Ground, ms: number, { reads } = { reads: true }): Promise<null> {
  const newest = async () => (await ground.runs(ground.subject, 1))[0]?.id;
  const before = await newest();
  const socket = connect(ground.test.platform.port, "127.0.0.1");
  const closed = new Promise<void>((resolve) => socket.on("error", () => resolve()).on("close", () => resolve()));
  try {
    socket.write(
      `GET / HTTP/1.1\r\nhost: ${ground.test.host(`${ground.subject.slug}.kaps`)}\r\nauthorization: Bearer ${ground.subject.token}\r\n\r\n`,
    );
    if (!reads) socket.pause();
    await until(async () => (await newest()) !== before, { what: "the run of a caller who leaves" });
    await delay(ms);
  } finally {
    socket.destroy();
  }
  await closed;
  return null;
}

/** Runs that go on, and callers who do. */
export const lifetimeAttacks: Attack[] = [
  { name: "never answers", program: "() => new Promise(() => {})", outcome: "timeout" },
  { name: "never answers but is busy with timers", program: "() => new Promise(() => setInterval(() => {}, 50))", outcome: "timeout" },
  { name: "returns nothing", program: "() => {}", outcome: "error" },
  {
    name: "waitUntil for ever",
    program: "(request, ctx) => { ctx.waitUntil(new Promise(() => {})); return new Response('answered'); }",
    outcome: "timeout",
    status: 200,
  },
  {
    name: "detached work after the answer",
    program:
      "() => { setTimeout(() => { console.log('still here'); fetch('http://127.0.0.1:1/'); for (;;); }, 300); (async () => { for (;;) { await new Promise((d) => setTimeout(d, 100)); console.log('still here'); } })(); return new Response('answered'); }",
    outcome: "ok",
    async expect({ lines }) {
      await delay(600);
      expect((await lines()).filter((line) => line.text.includes("still here"))).toEqual([]);
    },
  },
  {
    name: "a run's request and ctx used by a later run",
    top: "let kept;",
    program:
      "async (request, ctx) => { if (new KeptURL(request.url).pathname === '/keep') { kept = { request, ctx }; return new Response('kept'); } try { kept?.ctx.waitUntil(new Promise(() => {})); return new Response('a later run was extended'); } catch (error) { return new Response(error.name); } }",
    outcome: "ok",
    async send(ground) {
      await ground.subject.call({ path: "/keep" });
      return ground.subject.call({ path: "/use" });
    },
    expect: ({ answer }) => expect(answer?.text).toBe("InvalidStateError"),
  },
  {
    name: "unhandled rejection",
    program:
      "() => { Promise.reject(new Error('nobody waits')); return new Promise((done) => setTimeout(() => done(new Response('x')), 300)); }",
    outcome: "error",
  },
  {
    name: "10,000 unhandled rejections",
    program: "() => { for (let i = 0; i < 10_000; i++) Promise.reject(new Error('x' + i)); return new Promise(() => {}); }",
    outcome: ["error", "cpu-exceeded"],
  },
  {
    name: "unhandledrejection listener that rejects",
    program:
      "() => { addEventListener('unhandledrejection', (e) => { e.preventDefault(); Promise.reject(new Error('again')); }); Promise.reject(new Error('first')); return new Promise(() => {}); }",
    outcome: ["error", "cpu-exceeded", "timeout"],
  },
  {
    name: "error in a timer",
    program: "() => { setTimeout(() => { throw new Error('in a timer'); }, 1); return new Promise(() => {}); }",
    outcome: "error",
  },
  {
    name: "stream that never ends",
    program: "() => new Response(new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(65_536)); } }))",
    outcome: ["response-too-large", "cpu-exceeded"],
    status: null,
  },
  {
    name: "stream that never gives anything",
    program: "() => new Response(new ReadableStream({ pull() { return new Promise(() => {}); } }))",
    outcome: "timeout",
    status: null,
  },
  {
    name: "stream that throws in pull",
    program:
      "() => { let n = 0; return new Response(new ReadableStream({ pull(c) { if (n++ > 3) throw new Error('in pull'); c.enqueue(new Uint8Array(1000)); } })); }",
    outcome: "error",
    status: null,
  },
  {
    name: "stream that loops in pull",
    program:
      "() => { let n = 0; return new Response(new ReadableStream({ pull(c) { if (n++ > 3) for (;;); c.enqueue(new Uint8Array(1000)); } })); }",
    outcome: "cpu-exceeded",
    status: null,
  },
  {
    name: "stream of things that are no bytes",
    program:
      "() => { let n = 0; return new Response(new ReadableStream({ pull(c) { c.enqueue(n++ ? { length: 5 } : new Uint8Array(1)); } })); }",
    outcome: "error",
    status: null,
  },
  {
    name: "answer of 11 MB at once",
    program: "() => new Response('x'.repeat(11_000_000))",
    outcome: "response-too-large",
    expect: ({ answer }) => expect(answer?.json<{ error: { code: string } }>().error.code).toBe("RESPONSE_TOO_LARGE"),
  },
  {
    name: "request body given back while it comes",
    program: "(request) => new Response(request.body)",
    request: { method: "POST", body: "x".repeat(2_000_000) },
    outcome: "ok",
    expect: ({ answer }) => expect(answer?.text.length).toBe(2_000_000),
  },
  {
    name: "answers before it has read the body",
    program: "() => new Response('early')",
    request: { method: "POST", body: "x".repeat(2_000_000) },
    outcome: "ok",
  },
  {
    name: "reads its body twice and clones it a thousand times",
    program:
      "async (request) => { const all = []; let r = request; for (let i = 0; i < 1000; i++) all.push(r.clone().text()); await Promise.all(all); await request.text(); await request.text(); }",
    request: { method: "POST", body: "x".repeat(100_000) },
    outcome: ["error", "memory-exceeded", "cpu-exceeded"],
  },
  {
    name: "a body that says 1 GB and sends little",
    program: "async (request) => new Response(String((await request.arrayBuffer()).byteLength))",
    async send(ground) {
      const text = await rawCall(
        ground,
        `POST / HTTP/1.1\r\nhost: ${ground.test.host(`${ground.subject.slug}.kaps`)}\r\nauthorization: Bearer ${ground.subject.token}\r\ncontent-length: 1000000000\r\n\r\nxxxx`,
      );
      return answerOf(text);
    },
    outcome: "refused",
    status: 413,
  },
  {
    name: "a chunked body without end",
    program: "async (request) => new Response(String((await request.arrayBuffer()).byteLength))",
    async send(ground) {
      const chunk = `10000\r\n${"x".repeat(65_536)}\r\n`;
      const text = await rawCall(
        ground,
        `POST / HTTP/1.1\r\nhost: ${ground.test.host(`${ground.subject.slug}.kaps`)}\r\nauthorization: Bearer ${ground.subject.token}\r\ntransfer-encoding: chunked\r\n\r\n`,
        async (write) => {
          for (let sent = 0; sent < 200; sent++) {
            if (write(chunk) === false) await delay(2);
          }
        },
      );
      return answerOf(text);
    },
    outcome: "refused",
    status: [413, null],
  },
  {
    name: "a header block of 1 MB",
    program: "() => new Response('reached')",
    async send(ground) {
      const text = await rawCall(
        ground,
        `GET / HTTP/1.1\r\nhost: ${ground.test.host(`${ground.subject.slug}.kaps`)}\r\nauthorization: Bearer ${ground.subject.token}\r\n${`x-pad: ${"x".repeat(8000)}\r\n`.repeat(128)}\r\n`,
      );
      return answerOf(text);
    },
    outcome: "refused",
    status: 431,
  },
  {
    name: "smuggling: two lengths, and a length beside chunks",
    program: "() => new Response('reached')",
    async send(ground) {
      const head = `POST / HTTP/1.1\r\nhost: ${ground.test.host(`${ground.subject.slug}.kaps`)}\r\nauthorization: Bearer ${ground.subject.token}\r\n`;
      const texts = await Promise.all([
        rawCall(ground, `${head}content-length: 5\r\ncontent-length: 6\r\n\r\nhello!`),
        rawCall(ground, `${head}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n`),
        rawCall(ground, `${head}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n`),
      ]);
      for (const text of texts) expect(text.slice(9, 12)).toBe("400");
      return answerOf(texts[0] ?? "");
    },
    outcome: "refused",
    status: 400,
  },
  {
    name: "a reader who never reads",
    program: "() => new Response('x'.repeat(9_000_000))",
    send: (ground) => hangUp(ground, ground.limits.wallMs + 1_000, { reads: false }),
    outcome: ["client-gone", "ok", "timeout"],
    status: null,
  },
  {
    name: "a caller who leaves at once",
    program: "(request) => new Promise((resolve) => request.signal.addEventListener('abort', () => resolve(new Response('gone'))))",
    send: (ground) => hangUp(ground, 200),
    outcome: ["client-gone", "timeout"],
    status: null,
  },
  {
    name: "a caller who leaves a program that loops",
    program: "() => { for (;;); }",
    send: (ground) => hangUp(ground, 100),
    outcome: ["cpu-exceeded", "client-gone"],
    status: null,
  },
];

/** What a raw exchange answered, as far as tests of refusals need it. */
function answerOf(text: string): Awaited<ReturnType<NonNullable<Attack["send"]>>> {
  const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(text)?.[1] ?? 0);
  if (status === 0) return null;
  const runId = /\r\nx-kap-run-id: (\S+)/i.exec(text)?.[1];
  return {
    status,
    headers: runId === undefined ? {} : { "x-kap-run-id": runId },
    setCookies: [],
    bytes: Buffer.from(text, "latin1"),
    text,
    json: () => JSON.parse(text.slice(text.indexOf("{"))),
  };
}
