import { afterEach, describe, expect, test } from "vitest";
import { TestHost, type TestHostOptions } from "./testing-host.ts";

const hosts: TestHost[] = [];
afterEach(() => {
  for (const host of hosts.splice(0)) host.close();
});
async function program(code: string, options?: TestHostOptions): Promise<TestHost> {
  const host = await TestHost.program(code, options);
  hosts.push(host);
  return host;
}
const bytes = (text: string) => new TextEncoder().encode(text);

describe("a request's handler", () => {
  test("is the default export itself or its fetch, with itself as this", async () => {
    const plain = await program(`(request) => new Response(request.method + " " + request.url)`);
    expect((await plain.request({ url: "https://a.kaps.example/x?y" })).body.toString()).toBe("GET https://a.kaps.example/x?y");
    const object = await program(`{ greeting: "hi", fetch() { return new Response(this.greeting); } }`);
    expect((await object.request()).body.toString()).toBe("hi");
    const instance = await program(`new (class { word = "cls"; async fetch() { return new Response(this.word); } })()`);
    expect((await instance.request()).body.toString()).toBe("cls");
  });

  test("gets ctx with the run, the kap, the trigger and the user", async () => {
    const host = await program(`(request, ctx) => Response.json([ctx.runId, ctx.kap, ctx.trigger, ctx.user ?? null])`);
    const user = { id: "u", email: "a@b.c", name: "Ann", role: "member" };
    expect(JSON.parse((await host.request({ user })).body.toString())).toEqual([
      "run-1",
      { id: "kap-1", slug: "hello", name: "Hello" },
      "trigger-1",
      user,
    ]);
    expect(JSON.parse((await host.request()).body.toString())[3]).toBeNull();
    const spoiled = await program(
      `(request, ctx) => { Object.prototype.user = { role: "owner" }; return Response.json(ctx.user ?? null); }`,
    );
    expect((await spoiled.request()).body.toString()).toBe("null");
  });

  test("answers in one piece for text, JSON and bytes", async () => {
    const host = await program(
      `(request) => new URL(request.url).pathname === "/b" ? new Response(new Uint8Array([0, 255]), { status: 201, headers: { "x-a": "1" } }) : Response.json({ ok: true })`,
    );
    const json = await host.request();
    expect([json.status, json.headers, json.body.toString(), json.outcome]).toEqual([
      200,
      [["content-type", "application/json"]],
      '{"ok":true}',
      "done",
    ]);
    const raw = await host.request({ url: "https://a.kaps.example/b" });
    expect([raw.status, raw.headers, [...raw.body]]).toEqual([201, [["x-a", "1"]], [0, 255]]);
    expect(host.calls).toEqual([]);
  });

  test("a throw, a rejection and a wrong value fail the run with the reason", async () => {
    const cases: [string, RegExp][] = [
      [`() => { throw new RangeError("sync"); }`, /^RangeError: sync\n {4}at .*kap:program/],
      [`async () => { await null; throw new Error("async", { cause: "why" }); }`, /^Error: async\n[\s\S]*\[cause\]: 'why'/],
      [`() => Promise.reject("text")`, /^Uncaught 'text'/],
      [`() => "no response"`, /returned no Response/],
      [`() => undefined`, /returned no Response/],
      [`() => Response.error()`, /cannot be sent/],
      [`() => { const r = new Response("x"); r.text(); return r; }`, /used already/],
    ];
    for (const [code, detail] of cases) {
      const result = await (await program(code)).request();
      expect([result.outcome, result.status]).toEqual(["error", 0]);
      expect(result.detail).toMatch(detail);
    }
  });

  test("a missing handler is told apart from an error", async () => {
    for (const code of [`{}`, `5`, `undefined`, `{ scheduled() {} }`]) {
      const result = await (await program(code)).request();
      expect([result.outcome, result.detail.includes("main.ts")]).toEqual(["no-handler", true]);
    }
    const without = await TestHost.boot({ "other.ts": "return {};" }); // a bundle holds the files that have a default export
    hosts.push(without);
    expect((await without.request()).outcome).toBe("no-handler");
  });

  test("a module that throws while it loads fails every run that needs it", async () => {
    const host = await TestHost.boot({ "main.ts": `throw new TypeError("at load");` });
    hosts.push(host);
    expect((await host.request()).detail).toMatch(/^TypeError: at load/);
    expect((await host.request()).detail).toMatch(/^TypeError: at load/);
  });

  test("modules are evaluated once and each file has its own handler", async () => {
    const host = await TestHost.boot({
      "a.ts": `let n = 0; return { default: () => new Response("a" + ++n) };`,
      "b.ts": `return { default: { fetch: () => new Response("b") } };`,
    });
    hosts.push(host);
    const texts: string[] = [];
    for (const file of ["a.ts", "b.ts", "a.ts"]) texts.push((await host.request({ file })).body.toString());
    expect(texts).toEqual(["a1", "b", "a2"]);
  });
});

describe("request bodies", () => {
  test("text, bytes and parts are read without loss", async () => {
    const host = await program(`async (request) => new Response(await request.bytes())`);
    expect((await host.request({ body: "héllo" })).body.toString()).toBe("héllo");
    expect([...(await host.request({ body: new Uint8Array([1, 0, 255]) })).body]).toEqual([1, 0, 255]);
    expect((await host.request({ body: [bytes("a"), bytes("bc"), bytes("d")] })).body.toString()).toBe("abcd");
  });

  test("a streamed body arrives through its stream and passes straight on to the answer", async () => {
    const read = await program(
      `async (request) => { let n = 0; for await (const part of request.body) n += part.length; return new Response(String(n)); }`,
    );
    expect((await read.request({ body: [bytes("abc"), bytes("de")] })).body.toString()).toBe("5");
    const echo = await program(`(request) => new Response(request.body)`, { slowEvery: 2 });
    expect((await echo.request({ body: [bytes("one "), bytes("two "), bytes("three")] })).body.toString()).toBe("one two three");
  });

  test("cancelling the stream tells the host", async () => {
    const host = await program(`async (request) => { await request.body.cancel(); return new Response("x"); }`);
    await host.request({ body: [bytes("a")] });
    expect(host.calls.map(({ op }) => op)).toContain("body.cancel");
  });

  test("the caller's headers cannot be changed and can be copied", async () => {
    const host = await program(
      `(request) => { const copy = new Headers(request.headers); copy.set("a", "2"); let error; try { request.headers.set("a", "3"); } catch (e) { error = e.name; } return Response.json([copy.get("a"), request.headers.get("A"), error]); }`,
    );
    expect(JSON.parse((await host.request({ headers: { a: "1" } })).body.toString())).toEqual(["2", "1", "TypeError"]);
  });
});

describe("streamed answers", () => {
  test("wait whenever the caller is slower", async () => {
    const host = await program(
      `() => { let n = 0; return new Response(new ReadableStream({ async pull(c) { await null; if (n === 6) c.close(); else c.enqueue(new Uint8Array([48 + n++])); } })); }`,
      { slowEvery: 2 },
    );
    const result = await host.request();
    expect([result.body.toString(), result.outcome]).toEqual(["012345", "done"]);
    expect(host.calls.filter(({ op }) => op === "body.drain")).toHaveLength(3);
  });

  test("that fail in the middle fail the run", async () => {
    const host = await program(
      `() => new Response(new ReadableStream({ start(c) { c.enqueue(new Uint8Array([65])); }, pull(c) { c.error(new RangeError("midway")); } }, { highWaterMark: 0 }))`,
    );
    const result = await host.request();
    expect([result.outcome, result.detail.split("\n")[0]]).toEqual(["error", "RangeError: midway"]);
  });

  test("are cancelled when the caller goes away", async () => {
    const host = await program(
      `(request) => { let n = 0; return new Response(new ReadableStream({ async pull(c) { await new Promise((resolve) => setTimeout(resolve, 1)); if (n++ < 3) c.enqueue(new Uint8Array([65])); else await new Promise(() => {}); }, cancel(reason) { console.log("cancelled", reason.name); } })); }`,
    );
    const result = await host.request({ started: (runKey) => setTimeout(() => host.abort(runKey, "client-gone"), 50) });
    expect(result.logs.map(({ text }) => text)).toEqual(["cancelled AbortError"]);
  });

  test("of anything but bytes fail the run", async () => {
    const host = await program(`() => new Response(new ReadableStream({ start(c) { c.enqueue("text"); c.close(); } }))`);
    expect((await host.request()).detail).toMatch(/Uint8Array/);
  });
});

describe("waitUntil", () => {
  test("keeps the run open until its promises settle", async () => {
    const host = await program(
      `(request, ctx) => { ctx.waitUntil(new Promise((resolve) => setTimeout(() => { console.log("late"); resolve(); }, 20))); return new Response("early"); }`,
    );
    const result = await host.request();
    expect([result.body.toString(), result.outcome, result.logs.map(({ text }) => text)]).toEqual(["early", "done", ["late"]]);
  });

  test("a rejection fails the run, a call after its end throws", async () => {
    const failing = await program(
      `(request, ctx) => { ctx.waitUntil(Promise.reject(new Error("background"))); return new Response("x"); }`,
    );
    expect((await failing.request()).detail).toMatch(/^Error: background/);
    const late = await program(
      `{ fetch(request, ctx) { if (globalThis.kept) { try { globalThis.kept.waitUntil(1); } catch (e) { return new Response(e.name); } } globalThis.kept = ctx; return new Response(""); } }`,
    );
    await late.request();
    expect((await late.request()).body.toString()).toBe("InvalidStateError");
  });
});

describe("errors nobody catches", () => {
  test("an unhandled rejection fails the run that was at work", async () => {
    const host = await program(
      `async () => { Promise.reject(new RangeError("nobody")); await new Promise((resolve) => setTimeout(resolve, 50)); return new Response("x"); }`,
    );
    const result = await host.request();
    expect([result.outcome, result.detail]).toEqual(["error", expect.stringMatching(/^RangeError: nobody/)]);
  });

  test("an unhandledrejection listener can prevent that", async () => {
    const host = await program(
      `async () => { let seen; addEventListener("unhandledrejection", (event) => { seen = event.reason.message; event.preventDefault(); }); Promise.reject(new RangeError("nobody")); await new Promise((resolve) => setTimeout(resolve, 20)); return new Response(seen); }`,
    );
    const result = await host.request();
    expect([result.outcome, result.body.toString()]).toEqual(["done", "RangeError: nobody"]);
  });

  test("a throw in a timer, a microtask, a listener or reportError fails the run", async () => {
    const wait = `await new Promise((resolve) => setTimeout(resolve, 200)); return new Response();`;
    for (const code of [
      `setTimeout(() => { throw new Error("here"); }, 1);`,
      `queueMicrotask(() => { throw new Error("here"); });`,
      `const t = new EventTarget(); t.addEventListener("x", () => { throw new Error("here"); }); t.dispatchEvent(new Event("x"));`,
      `reportError(new Error("here"));`,
    ]) {
      expect((await (await program(`async () => { ${code} ${wait} }`)).request()).detail).toMatch(/^Error: here/);
    }
  });
});

describe("schedules and mail", () => {
  test("scheduled gets the trigger and the due time", async () => {
    const host = await program(
      `{ async scheduled(event, ctx) { console.log(event.triggerId, event.scheduledAt.toISOString(), ctx.runId); } }`,
    );
    const result = await host.scheduled(Date.UTC(2026, 0, 2));
    expect([result.outcome, result.logs[0]?.text]).toEqual(["done", "trigger-1 2026-01-02T00:00:00.000Z run-1"]);
  });

  test("email gets the message with its attachments' bytes", async () => {
    const host = await program(
      `{ email(message) { console.log(message.from.address, message.attachments.map((a) => [a.filename, a.contentType, a.content instanceof Uint8Array, [...a.content]])); } }`,
    );
    const attachments = [
      { filename: "a", contentType: "x/y", content: new Uint8Array([1, 2]) },
      { filename: "b", contentType: "x/z", content: new Uint8Array([3]) },
    ];
    const result = await host.email({ from: { address: "a@b.c", name: "A" } }, attachments);
    expect(result.logs[0]?.text).toBe("a@b.c [ [ 'a', 'x/y', true, [ 1, 2 ] ], [ 'b', 'x/z', true, [ 3 ] ] ]");
  });

  test("their failures are told", async () => {
    const host = await program(`{ async scheduled() { throw new Error("no"); } }`);
    expect((await host.scheduled(0)).outcome).toBe("error");
    expect((await host.email({}, [])).outcome).toBe("no-handler");
  });
});

describe("ends of a run", () => {
  test("abort reaches request.signal, also when it is looked at afterwards", async () => {
    const host = await program(
      `async (request) => { if (request.url.endsWith("late")) await new Promise((resolve) => setTimeout(resolve, 20)); else await new Promise((resolve) => request.signal.addEventListener("abort", resolve)); return new Response(request.signal.aborted + " " + request.signal.reason.name); }`,
    );
    const abort = (reason: string) => (runKey: number) => host.abort(runKey, reason);
    expect((await host.request({ started: abort("client-gone") })).body.toString()).toBe("true AbortError");
    expect((await host.request({ url: "https://a.kaps.example/late", started: abort("timeout") })).body.toString()).toBe(
      "true TimeoutError",
    );
  });

  test("a killed run's timers and calls wake nobody, and the next run works", async () => {
    const host = await program(
      `async (request) => { globalThis.count ??= 0; if (request.url.endsWith("kill")) { setInterval(() => globalThis.count++, 1); await new Promise(() => {}); } return new Response(String(globalThis.count)); }`,
    );
    let answer: boolean | undefined;
    await host.request({ url: "https://a.kaps.example/kill", started: (runKey) => (answer = host.kill(runKey)) });
    expect(answer).toBe(false);
    await new Promise((resolve) => setTimeout(resolve, 30));
    const after = (await host.request()).body.toString();
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect((await host.request()).body.toString()).toBe(after);
  });

  test("a run killed while a module loads asks for a new isolate", async () => {
    const host = await TestHost.boot({
      "main.ts": `await new Promise((resolve) => setTimeout(resolve, 1e6)); return { default: () => new Response() };`,
    });
    hosts.push(host);
    let answer: boolean | undefined;
    await host.request({ started: (runKey) => (answer = host.kill(runKey)) });
    expect(answer).toBe(true);
  });

  test("concurrent runs keep their logs and calls apart", async () => {
    const host = await program(
      `async (request) => { const name = new URL(request.url).pathname; await new Promise((resolve) => setTimeout(resolve, 5)); console.log(name); await crypto.subtle.digest("SHA-256", new Uint8Array(1)); console.log(name); return new Response(name); }`,
    );
    const results = await Promise.all(["/a", "/b", "/c"].map((path) => host.request({ url: `https://a.kaps.example${path}` })));
    expect(results.map(({ logs }) => logs.map(({ text }) => text))).toEqual([
      ["/a", "/a"],
      ["/b", "/b"],
      ["/c", "/c"],
    ]);
  });
});
