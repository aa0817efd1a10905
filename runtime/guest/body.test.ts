import { describe } from "vitest";
import { conformance } from "./testing-cases.ts";

describe("Response", () => {
  conformance({
    "attributes of a plain one": `const r = new Response("x"); return [r.status, r.ok, r.statusText, r.type, r.url, r.redirected, r.bodyUsed, [...r.headers]];`,
    init: `const r = new Response(null, { status: 404, statusText: "No", headers: { a: "b" } }); return [r.status, r.ok, r.statusText, r.body, [...r.headers]];`,
    "statuses out of range throw": `return [await caught(() => new Response("", { status: 199 })), await caught(() => new Response("", { status: 600 })), await caught(() => new Response("x", { status: 204 })), await caught(() => new Response("", { statusText: "\\n" }))];`,
    json: `const r = Response.json({ a: [1] }, { status: 201, headers: { x: "y" } }); return [r.status, [...r.headers], await r.json()];`,
    "json keeps a given type": `return Response.json(1, { headers: { "content-type": "a/b" } }).headers.get("content-type");`,
    "json of undefined throws": `return caught(() => Response.json(undefined));`,
    redirect: `const r = Response.redirect("https://e.com/a b", 307); return [r.status, r.headers.get("location")];`,
    "redirect refuses other statuses": `return [await caught(() => Response.redirect("https://e.com", 200)), await caught(() => Response.redirect("nope"))];`,
    error: `const r = Response.error(); return [r.type, r.status, r.ok];`,
    "text, bytes, blob, arrayBuffer": `const b = "hé😀"; return [await new Response(b).text(), [...await new Response(b).bytes()], (await new Response(b).blob()).type, (await new Response(b).arrayBuffer()).byteLength];`,
    "a second read throws": `const r = new Response("x"); await r.text(); return [r.bodyUsed, await caught(() => r.text()), await caught(() => r.clone())];`,
    "an absent body reads as empty again and again": `const r = new Response(); return [await r.text(), await r.text(), r.bodyUsed, r.body];`,
    "an empty text is a body": `const r = new Response(""); await r.text(); return [r.bodyUsed, r.headers.get("content-type")];`,
    "bad JSON is a SyntaxError": `return caught(() => new Response("{").json());`,
    "the byte order mark is dropped from text": `return [await new Response("\\ufeffx").text(), await new Response(new Uint8Array([0xef, 0xbb, 0xbf, 0x78])).text(), (await new Response("\\ufeffx").bytes()).length];`,
    "malformed UTF-8 is replaced": `return new Response(new Uint8Array([0x61, 0xff, 0xe2, 0x82, 0x62])).text();`,
    "lone surrogates are replaced": `return [...await new Response("a\\ud800b").bytes()];`,
    "the body as a stream": `return readText(new Response("stream me").body);`,
    "reading the stream marks it used": `const r = new Response("x"); const reader = r.body.getReader(); const locked = await caught(() => r.text()); await reader.read(); return [locked, r.bodyUsed];`,
    "clone gives both all of it": `const r = new Response("twice", { headers: { a: "1" } }); const c = r.clone(); return [await r.text(), await c.text(), c.headers.get("a")];`,
    "clone of a stream": `const r = new Response(new Blob(["ab", "cd"]).stream()); const c = r.clone(); return [await c.text(), await r.text()];`,
    "bytes are copied at construction": `const b = new Uint8Array([1, 2, 3]); const r = new Response(b); b[0] = 9; return [...await r.bytes()];`,
    "a view sends its own part": `return [...await new Response(new Uint8Array([1, 2, 3, 4]).subarray(1, 3)).bytes()];`,
    "a DataView": `return [...await new Response(new DataView(new ArrayBuffer(4), 1, 2)).bytes()];`,
    "a Blob brings its type": `const r = new Response(new Blob(["x"], { type: "a/b" })); return [r.headers.get("content-type"), await r.text()];`,
    "URLSearchParams bring theirs": `const r = new Response(new URLSearchParams("a=1")); return [r.headers.get("content-type"), await r.text()];`,
    "a stream brings none": `return new Response(new ReadableStream()).headers.get("content-type");`,
    "other values become text": `return [await new Response(5).text(), await new Response({}).text(), await new Response(true).text()];`,
    "a locked stream cannot be a body": `const s = new ReadableStream(); s.getReader(); return caught(() => new Response(s));`,
    "a stream of strings fails": `const s = new ReadableStream({ start(c) { c.enqueue("x"); c.close(); } }); return caught(() => new Response(s).text());`,
    "a failing stream fails the read": `const s = new ReadableStream({ pull() { throw new RangeError("no"); } }); return caught(() => new Response(s).text());`,
    "new Response(response.body, response)": `const a = new Response("x", { status: 202, headers: { k: "v" } }); const b = new Response(a.body, a); return [b.status, b.headers.get("k"), await b.text()];`,
    "blob takes the response's type": `return (await new Response("x", { headers: { "content-type": "Text/X" } }).blob()).type;`,
    tag: `return [String(new Response()), Response.name, Response.length];`,
  });
});

describe("Request", () => {
  conformance({
    attributes: `const r = new Request("https://e.com/a/../b#h", { method: "post", body: "x", headers: { a: "1" } }); return [r.method, r.url, r.headers.get("content-type"), r.redirect, r.bodyUsed, await r.text()];`,
    "methods are normalised as far as the standard says": `return ["get", "Post", "patch", "custom"].map((method) => new Request("https://e.com", { method }).method);`,
    "forbidden and bad methods throw": `return [await caught(() => new Request("https://e.com", { method: "CONNECT" })), await caught(() => new Request("https://e.com", { method: "a b" }))];`,
    "a GET has no body": `return [await caught(() => new Request("https://e.com", { body: "x" })), await caught(() => new Request("https://e.com", { method: "HEAD", body: "x" }))];`,
    "bad addresses throw": `return [await caught(() => new Request("nope")), await caught(() => new Request("https://u:p@e.com")), await caught(() => new Request())];`,
    "from another request": `const a = new Request("https://e.com", { method: "PUT", body: "x", headers: { a: "1" } }); const b = new Request(a, { headers: { b: "2" } }); return [b.method, b.headers.get("a"), b.headers.get("b"), a.bodyUsed, await b.text()];`,
    "from a used request throws": `const a = new Request("https://e.com", { method: "PUT", body: "x" }); await a.text(); return caught(() => new Request(a));`,
    clone: `const a = new Request("https://e.com", { method: "PUT", body: "x" }); const b = a.clone(); return [await a.text(), await b.text(), b.method];`,
    "a stream needs duplex": `const body = () => new Blob(["hi"]).stream(); return [await caught(() => new Request("https://e.com", { method: "POST", body: body() })), await new Request("https://e.com", { method: "POST", body: body(), duplex: "half" }).text()];`,
    "the signal follows the given one": `const c = new AbortController(); const r = new Request("https://e.com", { signal: c.signal }); let heard = 0; r.signal.addEventListener("abort", () => heard++); c.abort("why"); return [r.signal.aborted, r.signal.reason, heard, r.signal === c.signal];`,
    json: `return new Request("https://e.com", { method: "POST", body: '{"a":1}' }).json();`,
    "redirect modes": `return [new Request("https://e.com", { redirect: "manual" }).redirect, await caught(() => new Request("https://e.com", { redirect: "x" }))];`,
  });
});

describe("FormData", () => {
  const roundTrip =
    "return [...(await new Response(f).formData())].map(([n, v]) => typeof v === 'string' ? [n, v] : [n, v.name, v.type, v.size]);";
  conformance({
    entries: `const f = new FormData(); f.append("a", "1"); f.append("a", 2); f.set("b", "x"); f.append("c", new Blob(["zz"])); return [[...f.keys()], f.getAll("a"), f.get("c").name, f.has("b"), f.get("none")];`,
    "set and delete": `const f = new FormData(); f.append("a", "1"); f.append("b", "2"); f.append("a", "3"); f.set("a", "9"); f.delete("b"); return [...f];`,
    "a file name needs a Blob": `return caught(() => new FormData().append("a", "x", "name"));`,
    "multipart there and back": `const f = new FormData(); f.append("t", "two\\nlines"); f.append("q\\"uote\\r\\n", "ä😀"); f.append("file", new File(["a\\r\\n--b"], 'n"ä.txt', { type: "text/x" })); f.append("blob", new Blob([new Uint8Array([0, 255, 13, 10])])); ${roundTrip}`,
    "an empty form": `const f = new FormData(); ${roundTrip}`,
    urlencoded: `return [...await new Response("a=1&b=%20x+y&a=ä", { headers: { "content-type": "application/x-www-form-urlencoded" } }).formData()];`,
    "multipart as browsers write it": `const b = "--X\\r\\nContent-Disposition: form-data; name=\\"a\\"\\r\\n\\r\\n1\\r\\n--X\\r\\ncontent-disposition: form-data; name=\\"f\\"; filename=\\"x.bin\\"\\r\\nContent-Type: application/octet-stream\\r\\n\\r\\n\\r\\n--X--\\r\\n"; const f = await new Response(b, { headers: { "content-type": "multipart/form-data; boundary=X" } }).formData(); return [f.get("a"), f.get("f").name, f.get("f").size, f.get("f").type];`,
    "malformed bodies are TypeErrors": `const parse = (body, type) => caught(() => new Response(body, { headers: { "content-type": type } }).formData()); return [await parse("x", "text/plain"), await parse("x", "multipart/form-data"), await parse("--X\\r\\nnope", "multipart/form-data; boundary=X"), await parse("--X\\r\\nContent-Disposition: form-data; name=\\"a\\"\\r\\n\\r\\n1", "multipart/form-data; boundary=X")];`,
    "the type names the boundary": `const r = new Response(new FormData()); return /^multipart\\/form-data; boundary=-{2,}/.test(r.headers.get("content-type"));`,
  });
});

describe("Blob and File", () => {
  conformance({
    "parts of every kind": `const b = new Blob(["ä", new Uint8Array([98]), new Uint8Array([99]).buffer, new Blob(["d"]), 5], { type: "Text/Plain" }); return [b.size, b.type, await b.text()];`,
    slices: `const b = new Blob(["0123456789"], { type: "x/y" }); return [await b.slice(2, 5).text(), await b.slice(-3).text(), await b.slice(0, -8).text(), await b.slice(8, 99).text(), b.slice(3, 2).size, b.slice(0, 1, "a/b").type, b.slice().type];`,
    "line endings": `return new Blob(["a\\r\\nb\\nc"], { endings: "native" }).text();`,
    stream: `return readText(new Blob(["a", "b"]).stream());`,
    "bytes and arrayBuffer": `const b = new Blob(["ab"]); return [[...await b.bytes()], (await b.arrayBuffer()).byteLength];`,
    "bad parts throw": `return [await caught(() => new Blob("x")), await caught(() => new Blob(5)), await caught(() => new Blob([], { endings: "x" }))];`,
    "bad types are dropped": `return new Blob([], { type: "ä" }).type;`,
    File: `const f = new File(["x"], "n.txt", { type: "a/b", lastModified: 5 }); return [f.name, f.type, f.size, f.lastModified, f instanceof Blob, String(f)];`,
    "File needs a name": `return caught(() => new File([]));`,
  });
});
