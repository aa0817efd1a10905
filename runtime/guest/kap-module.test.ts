import { describe, expect, test } from "vitest";
import { conformance } from "./testing-cases.ts";
import { TestHost } from "./testing-host.ts";

const echo = {
  query: (sql: string, params: unknown[]) => {
    if (sql === "boom") throw Object.assign(new Error("relation does not exist"), { code: "42P01", name: "DatabaseError" });
    return { rows: [{ sql, params }], row_count: 1 };
  },
  secrets: { NAME: "s3cret" },
};

describe("db", () => {
  conformance(
    {
      query: [
        `return db.query("select $1", [1, "a", null, undefined, true, 5n, new Date(0), { a: 1 }, [1, 2], new Uint8Array([1, 2]), NaN]);`,
        {
          rows: [
            {
              sql: "select $1",
              params: [1, "a", null, null, true, "5", "1970-01-01T00:00:00.000Z", { a: 1 }, [1, 2], { $bytes: "AQI=" }, "NaN"],
            },
          ],
          row_count: 1,
        },
      ],
      "query without parameters": [`return (await db.query("select 1")).rows[0].params;`, []],
      batch: [`return (await db.batch([{ sql: "a" }, { sql: "b", params: [1] }])).map((r) => r.rows[0].sql);`, ["a", "b"]],
      "a refusal carries name, message and code": [
        `try { await db.query("boom"); } catch (e) { return [e instanceof Error, e.name, e.message, e.code]; }`,
        [true, "DatabaseError", "relation does not exist", "42P01"],
      ],
      "wrong arguments are TypeErrors": [
        `return [await caught(() => db.query(5)), await caught(() => db.query("x", 5)), await caught(() => db.batch("x")), await caught(() => db.batch([null]))];`,
        ["TypeError", "TypeError", "TypeError", "TypeError"],
      ],
      "a parameter that has no form in SQL is named by its position": [
        `const out = []; for (const params of [[1, Symbol("s")], [() => {}], ["a", "b", [1, [Symbol("t")]]]]) try { await db.query("x", params); out.push("ran"); } catch (e) { out.push(e.name + ": " + e.message); }
         out.push(await caught(() => db.batch([{ sql: "x", params: [Symbol("u")] }]))); return out;`,
        [
          expect.stringMatching(/^TypeError: The parameter \$2 is or holds a symbol/),
          expect.stringMatching(/^TypeError: The parameter \$1 is or holds a function/),
          expect.stringMatching(/^TypeError: The parameter \$3 is or holds a symbol/),
          "TypeError",
        ],
      ],
      "a json parameter is asked for its own toJSON, and the rest of the call is not": [
        `String.prototype.toJSON = Object.prototype.toJSON = Array.prototype.toJSON = function () { return "forged"; }; try { return (await db.query("x", [1, "a", { toJSON: () => ({ b: 2 }) }])).rows[0].params; } finally { delete String.prototype.toJSON; delete Object.prototype.toJSON; delete Array.prototype.toJSON; }`,
        [1, "a", { b: 2 }],
      ],
    },
    echo,
  );

  test("a refusal's stack names the program's line", async () => {
    const host = await TestHost.program(`async () => { await db.query("boom"); }`, echo);
    const { detail } = await host.request();
    host.close();
    expect(detail).toMatch(/^DatabaseError: relation does not exist\n[\s\S]*kap:program/);
  });
});

describe("store", () => {
  conformance(
    {
      "put and get of text": [
        `await store.put("a/b", "héllo"); const r = await store.get("a/b"); return [r instanceof Response, r.headers.get("content-type"), await r.text()];`,
        [true, "text/plain;charset=UTF-8", "héllo"],
      ],
      "bytes, a type, a Blob": [
        `await store.put("x", new Uint8Array([1, 2]), { contentType: "image/x" }); await store.put("y", new Blob(["b"], { type: "a/b" })); const x = await store.get("x"); return [x.headers.get("content-type"), [...await x.bytes()], (await store.get("y")).headers.get("content-type")];`,
        ["image/x", [1, 2], "a/b"],
      ],
      "a stream and a Response": [
        `await store.put("s", new Blob(["stream", "ed"]).stream()); await store.put("r", Response.json({ a: 1 })); return [await (await store.get("s")).text(), await (await store.get("r")).json(), (await store.get("r")).headers.get("content-type")];`,
        ["streamed", { a: 1 }, "application/json"],
      ],
      "a fetched answer goes straight in": [
        `await store.put("f", await fetch("https://e.com/")); return (await store.get("f")).text();`,
        "from afar",
      ],
      "an absent key is null": [`return store.get("nope");`, null],
      "delete, also of what is not there": [
        `await store.put("d", "x"); await store.delete("d"); await store.delete("d"); return store.get("d");`,
        null,
      ],
      "list follows every page": [
        `for (const k of ["l/1", "l/2", "l/3", "l/4", "l/5", "m"]) await store.put(k, "x"); return (await store.list({ prefix: "l/" })).objects.map((o) => o.key);`,
        ["l/1", "l/2", "l/3", "l/4", "l/5"],
      ],
      "a failing stream fails the put": [
        `return caught(() => store.put("e", new ReadableStream({ pull() { throw new RangeError("no"); } })));`,
        "RangeError",
      ],
      "a contentType must fit into a header": [
        `const out = []; for (const contentType of ["text/plain\\r\\nx-evil: 1", "text/plain\\0", "téxt/ü", "tex\\u0442"]) try { await store.put("ct", "x", { contentType }); out.push("stored"); } catch (e) { out.push(e.name + ": " + e.message); } return out;`,
        [
          expect.stringMatching(/^TypeError: The contentType of a stored object cannot hold line breaks/),
          expect.stringMatching(/^TypeError/),
          "stored",
          expect.stringMatching(/^TypeError/),
        ],
      ],
      "keys must be text": [
        `return [await caught(() => store.get("")), await caught(() => store.put(5, "x")), await caught(() => store.delete())];`,
        ["TypeError", "TypeError", "TypeError"],
      ],
    },
    { fetch: () => ({ body: ["from ", "afar"] }) },
  );
});

describe("secrets", () => {
  test("are read by name and change while the program is loaded", async () => {
    const host = await TestHost.program(
      `() => Response.json([secrets.get("NAME") ?? null, secrets.get("NEW") ?? null, secrets.get("toString") ?? null, secrets.get("__proto__") ?? null])`,
      echo,
    );
    expect(JSON.parse((await host.request()).body.toString())).toEqual(["s3cret", null, null, null]);
    host.setSecrets({ NEW: "n" });
    expect(JSON.parse((await host.request()).body.toString())).toEqual([null, "n", null, null]);
    host.close();
  });
});

describe("fetch", () => {
  const answers = {
    fetch: async ({
      method,
      url,
      headers,
      body,
      redirect,
    }: {
      method: string;
      url: string;
      headers: [string, string][];
      body: Buffer;
      redirect: string;
    }) => {
      if (url.endsWith("/refused")) throw Object.assign(new TypeError("fetch failed: the address is private"), { code: "FETCH_REFUSED" });
      if (url.endsWith("/stall")) return { body: ["a"], stalls: true };
      if (url.endsWith("/hang")) await new Promise(() => {});
      if (url.endsWith("/parts")) return { body: ["a", "b", "c"], headers: { "x-a": "1" } };
      if (url.endsWith("/none")) return { status: 204 };
      return { body: JSON.stringify({ method, url, headers: Object.fromEntries(headers), body: body.toString(), redirect }) };
    },
  };
  conformance(
    {
      GET: [
        `const r = await fetch("https://e.com/a b"); return [r.status, r.ok, r.url, r.type, await r.json()];`,
        [
          200,
          true,
          "https://e.com/a%20b",
          "basic",
          { method: "GET", url: "https://e.com/a%20b", headers: {}, body: "", redirect: "follow" },
        ],
      ],
      "POST of every body": [
        `const out = []; for (const body of ["téxt", new Uint8Array([65]), new Blob(["blob"]), new URLSearchParams("a=1"), new Blob(["str"]).stream()]) { const r = await (await fetch("https://e.com/", { method: "POST", body, duplex: "half", headers: { x: "1" } })).json(); out.push(r.body, r.headers["content-type"] ?? null); } return out;`,
        [
          "téxt",
          "text/plain;charset=UTF-8",
          "A",
          null,
          "blob",
          null,
          "a=1",
          "application/x-www-form-urlencoded;charset=UTF-8",
          "str",
          null,
        ],
      ],
      "a Request with its own body": [
        `const r = new Request("https://e.com/", { method: "PUT", body: "x", redirect: "manual" }); const j = await (await fetch(r)).json(); return [j.method, j.body, j.redirect, r.bodyUsed];`,
        ["PUT", "x", "manual", true],
      ],
      "a streamed answer": [
        `const r = await fetch("https://e.com/parts"); const parts = []; for await (const p of r.body) parts.push(p.length); return [parts, r.headers.get("x-a")];`,
        [[1, 1, 1], "1"],
      ],
      "no body": [`const r = await fetch("https://e.com/none"); return [r.status, r.body, await r.text()];`, [204, null, ""]],
      "a refusal is a TypeError": [
        `try { await fetch("https://e.com/refused"); } catch (e) { return [e.name, e.message, e.code]; }`,
        ["TypeError", "fetch failed: the address is private", "FETCH_REFUSED"],
      ],
      "an aborted signal": [
        `const c = new AbortController(); const p = fetch("https://e.com/hang", { signal: c.signal }); setTimeout(() => c.abort(new RangeError("stop")), 5); return [await caught(() => p), await caught(() => fetch("https://e.com/", { signal: AbortSignal.abort() }))];`,
        ["RangeError", "AbortError"],
      ],
      "a timeout while the body comes": [
        `const r = await fetch("https://e.com/stall", { signal: AbortSignal.timeout(20) }); return [r.status, await caught(() => r.text()), await caught(async () => { const s = await fetch("https://e.com/stall", { signal: AbortSignal.timeout(20) }); for await (const _ of s.body); })];`,
        [200, "TimeoutError", "TimeoutError"],
      ],
      "a large data address": [`return (await (await fetch("data:;base64," + "QUFB".repeat(100000))).bytes()).length;`, 300000],
      "a timeout": [`return caught(() => fetch("https://e.com/hang", { signal: AbortSignal.timeout(5) }));`, "TimeoutError"],
      "bad addresses": [
        `return [await caught(() => fetch("nope")), await caught(() => fetch("https://u:p@e.com"))];`,
        ["TypeError", "TypeError"],
      ],
      "data addresses": [
        `const r = await fetch("data:text/x;a=b,h%20i"); const b = await fetch("data:;base64,aGk="); return [r.headers.get("content-type"), await r.text(), await b.text(), b.headers.get("content-type")];`,
        ["text/x;a=b", "h i", "hi", "text/plain;charset=US-ASCII"],
      ],
      "a failing upload fails the fetch": [
        `return caught(() => fetch("https://e.com/", { method: "POST", duplex: "half", body: new ReadableStream({ pull() { throw new RangeError("up"); } }) }));`,
        "RangeError",
      ],
      "the answer can be the program's own": [
        `const r = await fetch("https://e.com/parts"); const own = new Response(r.body, r); own.headers.set("x-b", "2"); return [own.headers.get("x-a"), own.headers.get("x-b"), await own.text()];`,
        ["1", "2", "abc"],
      ],
    },
    answers,
  );
});
