import { describe } from "vitest";
import { conformance } from "./testing-cases.ts";

describe("streams", () => {
  conformance({
    "a reader gets the chunks in order": `const s = new ReadableStream({ start(c) { c.enqueue(1); c.enqueue(2); c.close(); } }); const r = s.getReader(); return [await r.read(), await r.read(), await r.read()];`,
    "pull is asked for what is wanted": `let n = 0; const s = new ReadableStream({ pull(c) { c.enqueue(++n); if (n === 3) c.close(); } }, { highWaterMark: 0 }); const out = []; for await (const x of s) out.push(x); return [out, n];`,
    "cancel reaches the source": `let why; const s = new ReadableStream({ cancel(r) { why = r; } }); await s.cancel("enough"); return why;`,
    "tee gives both branches all": `const [a, b] = new ReadableStream({ start(c) { c.enqueue("x"); c.enqueue("y"); c.close(); } }).tee(); const read = async (s) => { const out = []; for await (const x of s) out.push(x); return out; }; return [await read(a), await read(b)];`,
    "ReadableStream.from": `const out = []; for await (const x of ReadableStream.from(["a", "b"])) out.push(x); return out;`,
    "from an async generator": `const s = ReadableStream.from((async function* () { yield 1; yield 2; })()); const out = []; for await (const x of s) out.push(x); return out;`,
    "BYOB readers fill the given buffer": `const s = new ReadableStream({ type: "bytes", pull(c) { if (c.byobRequest) { c.byobRequest.view[0] = 7; c.byobRequest.respond(1); } else c.enqueue(new Uint8Array([9])); } }); const r = s.getReader({ mode: "byob" }); const { value } = await r.read(new Uint8Array(4)); return [value.length, value[0], value.buffer.byteLength];`,
    "BYOB with min": `const s = new ReadableStream({ type: "bytes", start(c) { c.enqueue(new Uint8Array([1, 2])); c.enqueue(new Uint8Array([3, 4])); } }); const r = s.getReader({ mode: "byob" }); const { value } = await r.read(new Uint8Array(8), { min: 4 }); return [...value];`,
    "a body is a byte stream": `const r = new Response("hello").body.getReader({ mode: "byob" }); const { value } = await r.read(new Uint8Array(3)); return [...value];`,
    "pipeTo with back-pressure": `const out = []; await new ReadableStream({ start(c) { for (let i = 0; i < 5; i++) c.enqueue(i); c.close(); } }).pipeTo(new WritableStream({ async write(x) { await null; out.push(x); } }, { highWaterMark: 1 })); return out;`,
    "pipeTo stops at a signal": `const c = new AbortController(); const p = new ReadableStream({ pull(k) { k.enqueue(1); } }).pipeTo(new WritableStream({ write() { c.abort(new RangeError("stop")); } }), { signal: c.signal }); return caught(() => p);`,
    TransformStream: `const t = new TransformStream({ transform(x, c) { c.enqueue(x * 2); }, flush(c) { c.enqueue("end"); } }); const out = []; for await (const x of ReadableStream.from([1, 2]).pipeThrough(t)) out.push(x); return out;`,
    "a writer waits for ready": `const w = new WritableStream({}, { highWaterMark: 2 }).getWriter(); const before = w.desiredSize; w.write(1); const after = w.desiredSize; await w.ready; await w.close(); return [before, after];`,
    "abort of a writer": `let why; const s = new WritableStream({ abort(r) { why = r; } }); await s.abort("x"); return why;`,
    "an error in write errors the stream": `const w = new WritableStream({ write() { throw new RangeError("w"); } }).getWriter(); const first = await caught(() => w.write(1)); return [first, await caught(() => w.write(2)), await caught(() => w.closed)];`,
    "queuing strategies": `return [new CountQueuingStrategy({ highWaterMark: 3 }).highWaterMark, new CountQueuingStrategy({ highWaterMark: 3 }).size(), new ByteLengthQueuingStrategy({ highWaterMark: 9 }).size(new Uint8Array(4))];`,
    "locked streams refuse a second reader": `const s = new ReadableStream(); const r = s.getReader(); const e = await caught(() => s.getReader()); r.releaseLock(); return [e, s.locked];`,
    names: `return [ReadableStream, WritableStream, TransformStream, ReadableStreamBYOBReader, WritableStreamDefaultWriter].map((c) => [c.name, Object.prototype.toString.call(c.prototype)]);`,
    "illegal constructors": `return [await caught(() => new ReadableStreamDefaultController()), await caught(() => new TransformStreamDefaultController())];`,
  });
});

describe("compression", () => {
  const pack = (format: string) =>
    `const pack = (t, f) => new Response(new Blob([t]).stream().pipeThrough(new CompressionStream(f))).bytes(); const unpack = (b, f) => new Response(new Blob([b]).stream().pipeThrough(new DecompressionStream(f))).text(); const f = "${format}";`;
  conformance({
    ...Object.fromEntries(
      ["gzip", "deflate", "deflate-raw"].map((format) => [
        `${format} there and back`,
        `${pack(format)} const t = "hello ".repeat(20000); const b = await pack(t, f); return [b.length < 2000, (await unpack(b, f)) === t];`,
      ]),
    ),
    "gzip of another maker": `const b = Uint8Array.from(atob("H4sIAAAAAAAAA8tIzcnJBwCGphA2BQAAAA=="), (c) => c.charCodeAt(0)); return new Response(new Blob([b]).stream().pipeThrough(new DecompressionStream("gzip"))).text();`,
    "an empty stream": `${pack("gzip")} return unpack(await pack("", f), f);`,
    "bytes that cannot be packed": `${pack("deflate")} const r = new Uint8Array(60000); crypto.getRandomValues(r); const b = await pack(r, f); const back = new Uint8Array(await new Response(new Blob([b]).stream().pipeThrough(new DecompressionStream(f))).arrayBuffer()); return back.every((x, i) => x === r[i]);`,
    "damaged data are a TypeError": `${pack("gzip")} const b = await pack("hello hello", f); b[12] ^= 255; return caught(() => unpack(b, f));`,
    "truncated data are a TypeError": `${pack("gzip")} const b = await pack("hello hello", f); return caught(() => unpack(b.subarray(0, b.length - 4), f));`,
    "bytes after the end are a TypeError": `${pack("deflate")} const b = await pack("hello", f); return caught(() => unpack(new Blob([b, "junk"]), f));`,
    "unknown formats throw": `return [await caught(() => new CompressionStream("x")), await caught(() => new DecompressionStream())];`,
    "chunks must be bytes": [
      `const c = new CompressionStream("gzip"); const w = c.writable.getWriter(); const read = readText(c.readable); return [await caught(() => w.write("text").then(() => w.closed)), await caught(() => read)];`,
      ["TypeError", "TypeError"],
    ],
    "a bomb is unpacked part by part": [
      `const zeros = new Uint8Array(4_000_000); const b = await new Response(new Blob([zeros]).stream().pipeThrough(new CompressionStream("gzip"))).bytes(); let n = 0; for await (const part of new Blob([b]).stream().pipeThrough(new DecompressionStream("gzip"))) n += part.length; return n;`,
      4_000_000,
    ],
  });
});
