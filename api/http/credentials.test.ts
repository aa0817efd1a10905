import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { describe, expect, test } from "vitest";
import { digestSecret } from "../../platform/secrets.ts";
import { presentedCredential, sessionCookieName } from "./credentials.ts";

const cookieName = sessionCookieName("http");
const read = (headers: IncomingHttpHeaders) =>
  presentedCredential({ headers, rawHeaders: Object.entries(headers).flat() } as IncomingMessage, cookieName);

describe("the one credential of a request", () => {
  test.each<[string, IncomingHttpHeaders, { text: string; via: string } | null]>([
    ["none", {}, null],
    ["a key", { "x-api-key": "sk" }, { text: "sk", via: "x-api-key" }],
    ["a bearer", { authorization: "Bearer abc" }, { text: "abc", via: "authorization" }],
    ["a scheme in lower case", { authorization: "bearer  abc" }, { text: "abc", via: "authorization" }],
    ["an empty key, which is none", { "x-api-key": "" }, null],
    ["another scheme, which is a credential that does not hold", { authorization: "Basic YTpi" }, { text: "", via: "authorization" }],
    ["a bearer of two words, likewise", { authorization: "Bearer a b" }, { text: "", via: "authorization" }],
    ["a cookie", { cookie: `other=1; ${cookieName}=abc` }, { text: "abc", via: "cookie" }],
    ["an empty cookie, which is none", { cookie: `${cookieName}=` }, null],
    ["a cookie of another name", { cookie: "__Host-kapstone_session=abc" }, null],
    ["the same one twice", { "x-session-token": "abc", authorization: "Bearer abc" }, { text: "abc", via: "authorization" }],
    [
      "an explicit one beside the cookie that browsers send unasked",
      { "x-api-key": "sk", cookie: `${cookieName}=abc` },
      { text: "sk", via: "x-api-key" },
    ],
  ])("%s", (_, headers, expected) => {
    expect(read(headers)).toEqual(expected && { ...expected, digest: digestSecret(expected.text) });
  });

  test.each<[string, IncomingHttpHeaders]>([
    ["a key and a bearer", { "x-api-key": "sk", authorization: "Bearer abc" }],
    ["a key and another scheme", { "x-api-key": "sk", authorization: "Basic YTpi" }],
    ["two sessions", { "x-session-token": "one", authorization: "Bearer two" }],
  ])("two are 400: %s", (_, headers) => {
    expect(() => read(headers)).toThrow(expect.objectContaining({ status: 400, code: "BAD_REQUEST" }));
  });

  test("the cookie has the __Host- prefix on https, so that no sibling host can set it", () => {
    expect([sessionCookieName("http"), sessionCookieName("https")]).toEqual(["kapstone_session", "__Host-kapstone_session"]);
  });
});
