import { readFileSync } from "node:fs";
import ts from "typescript";
import { describe, expect, test } from "vitest";
import { TestHost } from "./testing-host.ts";

const declarations = readFileSync(new URL("./kap.d.ts", import.meta.url), "utf8");

/** What TypeScript says of a program that has nothing but esnext and kap.d.ts. */
function diagnose(program: string): string[] {
  const options: ts.CompilerOptions = {
    target: ts.ScriptTarget.ESNext,
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
    lib: ["lib.esnext.d.ts"],
    strict: true,
    noEmit: true,
    types: [],
  };
  const files: Record<string, string> = { "/main.ts": program, "/kap.d.ts": declarations };
  const host = ts.createCompilerHost(options);
  const { getSourceFile, fileExists, readFile } = host;
  host.getSourceFile = (name, version, ...rest) =>
    name in files ? ts.createSourceFile(name, files[name] as string, version) : getSourceFile.call(host, name, version, ...rest);
  host.fileExists = (name) => name in files || fileExists.call(host, name);
  host.readFile = (name) => files[name] ?? readFile.call(host, name);
  const all = ts.getPreEmitDiagnostics(ts.createProgram(Object.keys(files), options, host));
  return all.map(({ messageText, file }) => `${file?.fileName ?? ""}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`);
}

describe("kap.d.ts", () => {
  test("types the program of the handbook", () => {
    expect(
      diagnose(`
        import { db, store, secrets } from "kap";
        export default {
          async fetch(request: Request, ctx: KapContext): Promise<Response> {
            await db.query("insert into hits(path) values ($1)", [new URL(request.url).pathname]);
            const { rows } = await db.query<{ n: number }>("select count(*)::int as n from hits");
            ctx.waitUntil(store.put("last", JSON.stringify(rows), { contentType: "application/json" }));
            const stored = await store.get("last");
            for await (const part of stored?.body ?? []) console.log(part.length);
            const key = await crypto.subtle.importKey("raw", new TextEncoder().encode("k"), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
            const mac = await crypto.subtle.sign("HMAC", key, new Uint8Array(1));
            const pair = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, ["sign"]);
            const packed = new Blob(["x"]).stream().pipeThrough(new CompressionStream("gzip")).pipeThrough(new DecompressionStream("gzip")).pipeThrough(new TextDecoderStream());
            setTimeout((a: number) => a, 5, 1);
            await new Promise((resolve) => setTimeout(resolve, 5));
            void [mac.byteLength, pair.privateKey, packed, AbortSignal.timeout(5), new URLPattern({ pathname: "/x" }), structuredClone({ a: 1 }).a];
            return Response.json({ hits: rows[0]?.n, org: secrets.get("ORG_NAME"), by: ctx.user?.email, form: (await request.formData()).get("a") });
          },
          async scheduled(event: { triggerId: string; scheduledAt: Date }, ctx: KapContext) { console.log(event.scheduledAt, ctx.runId); },
          async email(message: KapMessage) { for (const { filename, content } of message.attachments) await store.put(filename, content); },
        } satisfies KapHandlers;`),
    ).toEqual([]);
  });

  test("knows nothing of Node or a browser's page", () => {
    const errors = diagnose(`process.exit(); Buffer.from(""); document.title; require("x"); import "node:fs"; new SharedArrayBuffer2();`);
    expect(errors).toHaveLength(6);
  });

  test("reports wrong uses", () => {
    expect(diagnose(`import { db } from "kap"; db.query(5); new Response("x", { status: "200" });`)).toHaveLength(2);
  });

  test("declares exactly the values that are there", async () => {
    const declared = [...declarations.matchAll(/^declare (?:class|function|var|namespace) (\w+)/gm)].map((found) => found[1] as string);
    const host = await TestHost.program(`() => new Response()`);
    const missing = host.evaluate(`return ${JSON.stringify([...new Set(declared)])}.filter((name) => !(name in globalThis)).join();`);
    const own = host.evaluate(`return Object.getOwnPropertyNames(globalThis).join();`).split(",");
    host.close();
    expect(missing).toBe("");
    const ecmaScript = new Set(
      `Object Function Array Number parseFloat parseInt Infinity NaN undefined Boolean String Symbol Date Promise RegExp Error AggregateError
      EvalError RangeError ReferenceError SyntaxError TypeError URIError globalThis JSON Math Intl ArrayBuffer Atomics Uint8Array Int8Array Uint16Array Int16Array
      Uint32Array Int32Array BigUint64Array BigInt64Array Uint8ClampedArray Float32Array Float64Array Float16Array DataView Map BigInt Set Iterator WeakMap WeakSet
      Proxy Reflect FinalizationRegistry WeakRef decodeURI decodeURIComponent encodeURI encodeURIComponent escape unescape eval isFinite isNaN Temporal
      SuppressedError DisposableStack AsyncDisposableStack`.split(/\s+/),
    );
    expect(own.filter((name) => !ecmaScript.has(name) && !declared.includes(name))).toEqual([]);
  });
});
