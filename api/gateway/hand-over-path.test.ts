import fc from "fast-check";
import { expect, test } from "vitest";
import { addressWithin, pathWithin } from "./hand-over-path.ts";

const origin = "http://kap.kaps.localhost:8080";

test.each([
  ["/a/b?x=1#y", `${origin}/a/b?x=1#y`],
  ["//evil.example/x", `${origin}/`],
  ["/\\evil.example", `${origin}/`],
  ["/\t/evil.example", `${origin}/`],
  ["/.//evil.example", `${origin}//evil.example`],
  ["http://evil.example", `${origin}/`],
  ["javascript:alert(1)", `${origin}/`],
  ["@evil.example", `${origin}/`],
  ["/__kaps/enter?code=x", `${origin}/`],
  ["/x/../__kaps/enter", `${origin}/`],
  [`/${"a".repeat(2_000)}`, `${origin}/`],
  ["", `${origin}/`],
  [null, `${origin}/`],
])("%j leads to %s", (path, expected) => {
  expect(addressWithin(origin, path)).toBe(expected);
});

test("whatever is asked for, the address is on the same host, and its path leads to the same address again", () => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.string({ unit: "binary" }), fc.webUrl(), fc.stringMatching(/^[/\\.@:a-z\t\n#?%]*$/)), (text) => {
      for (const path of [text, `/${text}`, `//${text}`]) {
        const address = addressWithin(origin, path);
        expect(new URL(address).origin).toBe(origin);
        expect(address.startsWith(`${origin}/`)).toBe(true);
        expect(`${origin}${pathWithin(origin, path)}`).toBe(address);
      }
    }),
  );
});
