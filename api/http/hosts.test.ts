import type { IncomingMessage } from "node:http";
import { expect, test } from "vitest";
import { clientAddress, createAddresses } from "./hosts.ts";

const local = createAddresses({ domain: "localhost", scheme: "http", port: 8080 });
const live = createAddresses({ domain: "example.com", scheme: "https", port: 443 });

test.each([
  ["localhost:8080", { zone: "api" }],
  ["api.localhost:8080", { zone: "api" }],
  ["127.0.0.1:8080", { zone: "api" }],
  ["share.localhost", { zone: "share" }],
  ["acme.localhost:9", { zone: "org", slug: "acme" }],
  ["ACME.localhost", { zone: "org", slug: "acme" }],
  ["hits.kaps.localhost:8080", { zone: "kap", slug: "hits" }],
  ["kaps.localhost:8080", { zone: "runtime" }],
  ["www.localhost", { zone: "unknown" }],
  ["mail.localhost", { zone: "unknown" }],
  ["a.localhost", { zone: "unknown" }], // slugs have at least three characters
  ["a.b.localhost", { zone: "unknown" }],
  ["x.hits.kaps.localhost", { zone: "unknown" }],
  ["evil.com", { zone: "unknown" }],
  ["notlocalhost", { zone: "unknown" }],
  [undefined, { zone: "unknown" }],
])("the host %s is %o", (header, host) => {
  expect(local.read(header)).toEqual(host);
});

test("every address the system prints is read back as what it is", () => {
  for (const addresses of [local, live]) {
    const host = (url: string) => new URL(url).host;
    expect(addresses.read(host(addresses.api))).toEqual({ zone: "api" });
    expect(addresses.read(host(addresses.share))).toEqual({ zone: "share" });
    expect(addresses.read(host(addresses.org("acme")))).toEqual({ zone: "org", slug: "acme" });
    expect(addresses.read(host(addresses.kap("hits")))).toEqual({ zone: "kap", slug: "hits" });
    expect(addresses.read(host(addresses.runtime))).toEqual({ zone: "runtime" });
  }
  expect(live.api).toBe("https://api.example.com");
  expect(local.kap("hits")).toBe("http://hits.kaps.localhost:8080");
});

test("a proxy may be any address of a network: those of an ingress controller's pods change", () => {
  const proxies = ["10.244.0.0/16", "fd00::/8", "192.0.2.7"];
  const from = (remoteAddress: string) =>
    clientAddress({ socket: { remoteAddress }, headers: { "x-forwarded-for": "198.51.100.1" } } as unknown as IncomingMessage, proxies);
  for (const proxy of ["10.244.7.9", "::ffff:10.244.7.9", "fd12::1", "192.0.2.7"]) expect(from(proxy)).toBe("198.51.100.1");
  for (const other of ["10.245.0.1", "fe80::1", "192.0.2.8"]) expect(from(other)).toBe(other);
});

test("X-Forwarded-For counts only from a configured proxy, and only its newest entry that is no proxy", () => {
  const from = (remoteAddress: string, forwarded?: string) =>
    clientAddress(
      { socket: { remoteAddress }, headers: forwarded === undefined ? {} : { "x-forwarded-for": forwarded } } as IncomingMessage,
      ["10.0.0.1", "10.0.0.2"],
    );
  expect(from("203.0.113.9", "198.51.100.1")).toBe("203.0.113.9");
  expect(from("::ffff:203.0.113.9")).toBe("203.0.113.9");
  expect(from("10.0.0.1", "198.51.100.1")).toBe("198.51.100.1");
  expect(from("10.0.0.1", "6.6.6.6, 198.51.100.1, 10.0.0.2")).toBe("198.51.100.1"); // what the caller wrote before is not believed
  expect(from("10.0.0.1")).toBe("10.0.0.1");
});
