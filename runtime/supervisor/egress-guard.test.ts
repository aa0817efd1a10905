import { expect, test } from "vitest";
import { allowedHosts, checkTarget, EgressRefused, guardedLookup, isPublicAddress } from "./egress-guard.ts";

test.each(["1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001:800::200e"])("%s is public", (address) => {
  expect(isPublicAddress(address)).toBe(true);
});

test.each([
  "0.0.0.0",
  "0.1.2.3",
  "10.0.0.1",
  "100.64.0.1",
  "127.0.0.1",
  "127.255.255.254",
  "169.254.169.254",
  "172.16.0.1",
  "172.31.255.255",
  "192.0.0.1",
  "192.0.2.1",
  "192.88.99.1",
  "192.168.1.1",
  "198.18.0.1",
  "198.51.100.1",
  "203.0.113.1",
  "224.0.0.1",
  "239.255.255.255",
  "240.0.0.1",
  "255.255.255.255",
  "::",
  "::1",
  "::ffff:127.0.0.1",
  "::ffff:8.8.8.8",
  "::ffff:7f00:1",
  "::127.0.0.1",
  "64:ff9b::7f00:1",
  "64:ff9b:1::1",
  "100::1",
  "2001::1",
  "2001:db8::1",
  "2002:7f00:1::",
  "3fff::1",
  "5f00::1",
  "fc00::1",
  "fd12::1",
  "fe80::1",
  "fec0::1",
  "ff02::1",
  "fe80::1%eth0",
  "not an address",
  "",
])("%s is not public", (address) => {
  expect(isPublicAddress(address)).toBe(false);
});

test.each([
  "http://127.0.0.1/",
  "http://127.1/",
  "http://2130706433/",
  "http://0x7f000001/",
  "http://0177.0.0.1/",
  "http://0/",
  "http://[::1]/",
  "http://[::ffff:127.0.0.1]/",
  "http://[::ffff:a9fe:a9fe]/",
  "http://169.254.169.254/latest/meta-data",
  "http://localhost/",
  "http://LOCALHOST./",
  "http://a.localhost/",
  "http://metadata.google.internal/",
  "http://printer.local/",
  "http://１２７.0.0.1/",
  "http://127。0。0。1/",
  "ftp://example.com/",
  "file:///etc/passwd",
  "http://user:pass@example.com/",
])("%s is refused before any connection", (url) => {
  expect(() => checkTarget(new URL(url), allowedHosts([]))).toThrow(/refuse|cannot use/);
});

test("the deployment's list lets exactly its pairs through", () => {
  const allowed = allowedHosts(["127.0.0.1:9000", "Stub.internal:80"]);
  expect(() => checkTarget(new URL("http://127.0.0.1:9000/"), allowed)).not.toThrow();
  expect(() => checkTarget(new URL("http://stub.internal/"), allowed)).not.toThrow();
  expect(() => checkTarget(new URL("http://127.0.0.1:9001/"), allowed)).toThrow(EgressRefused);
  expect(() => checkTarget(new URL("https://stub.internal/"), allowed)).toThrow(EgressRefused);
});

const lookup = (addresses: string[], allowed: string[] = []): Promise<unknown> =>
  new Promise((resolve) =>
    guardedLookup(80, allowedHosts(allowed), async () => addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 })))(
      "name.example",
      { all: true },
      (error, found) => resolve(error ?? found),
    ),
  );

test("a name is judged by what it resolves to when the connection is made", async () => {
  expect(await lookup(["1.1.1.1"])).toEqual([{ address: "1.1.1.1", family: 4 }]);
  expect(await lookup(["127.0.0.1"])).toBeInstanceOf(EgressRefused);
  expect(await lookup(["1.1.1.1", "10.0.0.1"])).toBeInstanceOf(EgressRefused);
  expect(await lookup(["::ffff:10.0.0.1"])).toBeInstanceOf(EgressRefused);
  expect(await lookup([])).toBeInstanceOf(EgressRefused);
  expect(await lookup(["10.0.0.1"], ["name.example:80"])).toEqual([{ address: "10.0.0.1", family: 4 }]);
});
