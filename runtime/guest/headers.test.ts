import { describe } from "vitest";
import { conformance } from "./testing-cases.ts";

describe("Headers", () => {
  conformance({
    "names are lower-case, sorted and combined": `const h = new Headers([["B", "1"], ["a", "2"], ["b", "3"]]); return [...h];`,
    "from a record": `return [...new Headers({ "X-A": "1", y: 2 })];`,
    "from Headers": `return [...new Headers(new Headers({ a: "1" }))];`,
    "values are trimmed": `return new Headers({ a: " \\t x \\r\\n" }).get("a");`,
    "each Set-Cookie stays alone": `const h = new Headers(); h.append("Set-Cookie", "a=1"); h.append("set-cookie", "b=2"); return [h.getSetCookie(), [...h], h.get("set-cookie")];`,
    "get of an absent name is null": `return new Headers().get("x");`,
    "set replaces every value": `const h = new Headers([["a", "1"], ["a", "2"], ["b", "3"]]); h.set("A", "9"); return [...h];`,
    "delete and has": `const h = new Headers({ a: "1" }); const before = h.has("A"); h.delete("A"); return [before, h.has("a")];`,
    "bad names throw": `return [await caught(() => new Headers({ "a b": "1" })), await caught(() => new Headers().append("", "x")), await caught(() => new Headers().get("ä")), await caught(() => new Headers().has("a:"))];`,
    "bad values throw": `return [await caught(() => new Headers({ a: "x\\ny" })), await caught(() => new Headers({ a: "x\\0" })), await caught(() => new Headers({ a: "☃" }))];`,
    "Latin-1 values pass": `return new Headers({ a: "é" }).get("a");`,
    "bad pairs throw": `return [await caught(() => new Headers([["a"]])), await caught(() => new Headers(null)), await caught(() => new Headers(5))];`,
    "forEach, keys, values, entries": `const h = new Headers({ b: "1", a: "2" }); const seen = []; h.forEach((v, n) => seen.push(n + v)); return [seen, [...h.keys()], [...h.values()], [...h.entries()]];`,
    "tag and name": `return [Object.prototype.toString.call(new Headers()), Headers.name];`,
    "iteration sees appended names": `const h = new Headers({ a: "1", c: "2" }); const seen = []; for (const [n] of h) { seen.push(n); if (n === "a") h.append("d", "3"); } return seen;`,
    "a request refuses framing headers silently": [
      `const r = new Request("https://e.com", { headers: { connection: "x", "content-length": "9", host: "h", ok: "1" } }); return [...r.headers];`,
      [["ok", "1"]],
    ],
    "headers of an error or redirect are immutable": `return [await caught(() => Response.error().headers.set("a", "1")), await caught(() => Response.redirect("https://e.com").headers.set("a", "1"))];`,
  });
});
