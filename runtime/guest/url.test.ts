import { describe } from "vitest";
import { conformance } from "./testing-cases.ts";

const parts = "[u.href, u.origin, u.protocol, u.username, u.password, u.host, u.hostname, u.port, u.pathname, u.search, u.hash]";
const show = (input: string, base?: string) =>
  `const input = ${JSON.stringify(input)}; const base = ${base === undefined ? "undefined" : JSON.stringify(base)};
   try { const u = new URL(input, base); return ${parts}; } catch (e) { return e.name; }`;

const inputs: [string, string?][] = [
  ["https://example.com"],
  ["https://example.com/"],
  ["http://example.com:80/a"],
  ["https://example.com:443/a"],
  ["https://example.com:8443/a?b=c#d"],
  ["http://localhost:8080/x"],
  ["https://a-b.example.com/path/to;p=1/x.js?q=1&r=%20#frag"],
  ["https://example.com/a/../b/./c"],
  ["https://example.com/a/%2e%2E/b"],
  ["https://example.com/.well-known/x"],
  ["https://example.com/%7Efoo/%zz"],
  ["https://example.com?x"],
  ["https://example.com#x"],
  ["https://example.com/?"],
  ["https://example.com/#"],
  ["https://example.com/?#"],
  ["HTTPS://EXAMPLE.com/Ä?ö#ü"],
  ["https://bücher.example/"],
  ["https://xn--bcher-kva.example/"],
  ["https://xn--a/"],
  ["https://faß.example/"],
  ["https://ＧＯ.com/"],
  ["https://日本語。jp/"],
  ["https://a\u00adb.example/"],
  ["http://0x7f.1/"],
  ["http://2130706433/"],
  ["http://0177.0.0.1/"],
  ["http://1.2.3.256/"],
  ["http://foo.0x/"],
  ["http://[::1]:80/"],
  ["http://[0:0::FFFF:1.2.3.4]/"],
  ["http://[::1"],
  ["https://user:pa%20ss@example.com/"],
  ["https://us er@example.com/"],
  ["https://exa mple.com/"],
  ["https://exa%20mple.com/"],
  ["https://example.com:99999/"],
  ["https://example.com:0/"],
  ["https://example.com:007/"],
  ["https://-a.com/"],
  ["https://a_b.com/"],
  ["https://a.com./"],
  ["https://a..b/"],
  ["https:example.com"],
  ["https:///example.com///x"],
  ["http:\\\\example.com\\a\\b"],
  ["  https://example.com/\t\n x  "],
  ["https://example.com/a b?c d#e f"],
  ["https://example.com/'\"<>`{}|^"],
  ["https://example.com/?'\"<>`{}|^"],
  ["https://example.com/#'\"<>`{}|^"],
  ["file:///C:/x/../y"],
  ["file://host/x"],
  ["mailto:a@b.c"],
  ["data:text/plain,hi there"],
  ["javascript:alert(1)"],
  ["blob:https://example.com/uuid"],
  ["non-special://host:80/p?q#f"],
  ["non-special:opaque path"],
  [""],
  ["/a"],
  ["//x/y"],
  ["/a/b?c", "https://example.com/d/e"],
  ["/.a", "https://example.com/d/e"],
  ["../x", "https://example.com/d/e/f"],
  ["?q", "https://example.com/d/e#f"],
  ["#h", "https://example.com/d/e?f"],
  ["", "https://example.com/d/e?f#g"],
  ["//other/x", "https://example.com/"],
  ["http:x", "http://example.com/y"],
  ["x", "mailto:a"],
  ["x", "not a base"],
  ["https://a.b/", "bad base"],
];

describe("URL parses as the standard says", () => {
  conformance(
    Object.fromEntries(
      inputs.map(([input, base]) => [`${JSON.stringify(input)}${base === undefined ? "" : ` against ${base}`}`, show(input, base)]),
    ),
  );
});

const setters: [start: string, part: string, value: string][] = [
  ["https://example.com/a?b#c", "protocol", "http"],
  ["https://example.com/a", "protocol", "ftp:"],
  ["https://example.com/a", "protocol", "foo"],
  ["https://example.com:8443/a", "port", ""],
  ["https://example.com/a", "port", "99999"],
  ["https://example.com/a", "port", "80x"],
  ["https://example.com/a", "host", "x.org:99"],
  ["https://example.com/a", "hostname", "bücher.de"],
  ["https://example.com/a", "hostname", "a b"],
  ["https://example.com/a", "pathname", "x y/../z"],
  ["https://example.com/a", "search", "?x=ä"],
  ["https://example.com/a?b", "search", ""],
  ["https://example.com/a", "hash", "x y"],
  ["https://example.com/a", "username", "m e"],
  ["https://example.com/a", "password", "p:w"],
  ["https://example.com/a", "href", "https://other/"],
  ["mailto:a@b", "pathname", "x"],
];

describe("URL's attributes can be set", () => {
  conformance(
    Object.fromEntries(
      setters.map(([start, part, value]) => [
        `${start} ${part} = ${JSON.stringify(value)}`,
        `const u = new URL(${JSON.stringify(start)}); u[${JSON.stringify(part)}] = ${JSON.stringify(value)}; return ${parts};`,
      ]),
    ),
  );
});

describe("URL and its query", () => {
  conformance({
    "changing searchParams changes the address": `const u = new URL("https://e.com/?a=1&b=2#x"); u.searchParams.append("c", "ä ö"); u.searchParams.delete("a"); return [u.href, u.search];`,
    "deleting the last pair removes the question mark": `const u = new URL("https://e.com/?a=1"); u.searchParams.delete("a"); return u.href;`,
    "setting search changes searchParams": `const u = new URL("https://e.com/?a=1"); const p = u.searchParams; u.search = "?z=9"; return [p.get("a"), p.get("z"), u.searchParams === p];`,
    "setting href changes searchParams": `const u = new URL("https://e.com/?a=1"); const p = u.searchParams; u.href = "https://e.com/?q=2"; return [...p];`,
    "canParse and parse": `return [URL.canParse("x"), URL.canParse("/x", "https://e.com"), URL.parse("x"), URL.parse("https://e.com").href];`,
    "JSON and text": `const u = new URL("https://e.com"); return [JSON.stringify({ u }), String(u), u + ""];`,
    "a missing address throws": `return caught(() => new URL());`,
    "setting href to nonsense throws": `return caught(() => { new URL("https://e.com").href = "x"; });`,
  });
});

describe("URLSearchParams", () => {
  const params = (init: string) => `const p = new URLSearchParams(${init}); return [[...p], p.toString(), p.size];`;
  conformance({
    "from a string": params(`"?a=1&b=2&a=3&&=x&y&%zz=%41+%e4"`),
    "from UTF-8": params(`"a=%C3%A4%F0%9F%98%80&b=ä😀"`),
    "from pairs": params(`[["a", "1"], ["b", 2]]`),
    "from a record": params(`{ a: 1, b: undefined, c: null }`),
    "from another": params(`new URLSearchParams("x=1")`),
    "from a Map": params(`new Map([["x", "y"]])`),
    "from FormData": `const f = new FormData(); f.append("a", "b"); const p = new URLSearchParams(f); return p.toString();`,
    "special characters": `return new URLSearchParams([["a b&c=d", "é+*-._~!'()\\n\\ud800"]]).toString();`,
    "bad pairs throw": `return [await caught(() => new URLSearchParams([["a"]])), await caught(() => new URLSearchParams([1])), await caught(() => new URLSearchParams().append("x"))];`,
    "get, getAll, has": `const p = new URLSearchParams("a=1&a=2"); return [p.get("a"), p.get("b"), p.getAll("a"), p.has("a"), p.has("a", "2"), p.has("a", "3")];`,
    "set replaces all": `const p = new URLSearchParams("a=1&b=2&a=3"); p.set("a", "9"); p.set("c", "4"); return p.toString();`,
    "delete with a value": `const p = new URLSearchParams("a=1&a=2&b=1"); p.delete("a", "1"); return p.toString();`,
    "sort is stable": `const p = new URLSearchParams("z=1&a=2&z=0&a=1"); p.sort(); return p.toString();`,
    "iteration sees changes": `const p = new URLSearchParams("a=1&b=2&c=3"); const seen = []; for (const [k] of p) { seen.push(k); p.delete(k); } return seen;`,
    "forEach, keys, values": `const p = new URLSearchParams("a=1&b=2"); const seen = []; p.forEach((v, k, o) => seen.push(v + k + (o === p))); return [seen, [...p.keys()], [...p.values()]];`,
  });
});

describe("URLPattern", () => {
  conformance({
    "matches groups of a path": `const r = new URLPattern({ pathname: "/books/:id" }).exec("https://e.com/books/7"); return r.pathname.groups;`,
    "test with a string and base": `return [new URLPattern("/a/*", "https://e.com").test("https://e.com/a/b"), new URLPattern("https://e.com/a/*").test("https://f.com/a/b")];`,
    "regular expression groups": `return new URLPattern({ pathname: "/x/(\\\\d+)" }).exec({ pathname: "/x/12" }).pathname.groups;`,
    "optional and repeated": `const p = new URLPattern({ pathname: "/a/:b?/:c*" }); return [p.test({ pathname: "/a" }), p.test({ pathname: "/a/x/y/z" })];`,
    attributes: `const p = new URLPattern({ pathname: "/a", search: "x=*" }); return [p.pathname, p.search, p.hostname];`,
    "bad patterns throw": `return caught(() => new URLPattern({ pathname: "(" }));`,
  });
});
