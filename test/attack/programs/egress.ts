import { expect } from "vitest";
import { type Attack, attempts, happened } from "../attack.ts";
import type { Ground } from "../ground.ts";

/** Addresses that must all be refused, with nobody reached and no word of why that tells what is there. */
function unreachable(name: string, addresses: (ground: Ground) => string[], init = ""): Attack {
  return {
    name,
    program: (ground) => attempts(addresses(ground).map((address) => `fetch(${JSON.stringify(address)}${init}).then((r) => r.text())`)),
    outcome: "ok",
    expect({ answer, ground }) {
      const all = happened(answer);
      expect(all.length).toBeGreaterThan(0);
      for (const [address, what] of all) {
        expect(what, address).toMatch(/^threw (?:TypeError|EgressRefused|Error|SyntaxError) /);
        expect(what, address).not.toMatch(/ECONNREFUSED|EHOSTUNREACH|ENOENT|root:/);
      }
      expect(ground.canary.hits()).toBe(0);
    },
  };
}

/** Ways by fetch to what is not public. */
export const egressAttacks: Attack[] = [
  unreachable("loopback in every spelling", ({ canary: { port } }) =>
    [
      "127.0.0.1",
      "127.1",
      "127.0.1",
      "2130706433",
      "0x7f000001",
      "0x7f.0.0.1",
      "0177.0.0.1",
      "017700000001",
      "0",
      "0.0.0.0",
      "127.255.255.254",
      "[::1]",
      "[::]",
      "[0:0:0:0:0:0:0:1]",
      "[::ffff:127.0.0.1]",
      "[::ffff:7f00:1]",
      "[::127.0.0.1]",
      "[64:ff9b::7f00:1]",
      "[2002:7f00:1::]",
      "localhost",
      "LOCALHOST",
      "localhost.",
      "a.localhost",
      "１２７.0.0.1",
      "127。0。0。1",
      "①②⑦.⓪.⓪.①",
    ].map((host) => `http://${host}:${port}/`),
  ),
  unreachable("private, link-local and metadata addresses", () =>
    [
      "10.0.0.1",
      "172.16.0.1",
      "192.168.1.1",
      "100.64.0.1",
      "169.254.169.254",
      "169.254.170.2",
      "[fe80::1]",
      "[fd00::1]",
      "[fc00::1]",
      "[fd00:ec2::254]",
      "metadata.google.internal",
      "224.0.0.1",
      "255.255.255.255",
      "[ff02::1]",
      "[::ffff:169.254.169.254]",
      "[::ffff:a9fe:a9fe]",
      "2852039166",
      "0xa9fea9fe",
      "printer.local",
    ].map((host) => `http://${host}/latest/meta-data/`),
  ),
  unreachable("the platform's own listeners", ({ test }) => [
    `http://127.0.0.1:${test.platform.port}/`,
    `http://127.0.0.1:${test.platform.internalPort}/metrics`,
    `http://127.0.0.1:${test.platform.smtpPort}/`,
    `http://127.0.0.1:${new URL(test.platform.databaseUrl).port || 5432}/`,
    `http://api.localhost:${test.platform.port}/v1`,
    `http://${test.platform.api.deps.config.domain}:${test.platform.port}/`,
  ]),
  unreachable("other schemes", ({ canary }) => [
    "file:///etc/passwd",
    "ftp://127.0.0.1/",
    "gopher://127.0.0.1/",
    `ws://127.0.0.1:${canary.port}/`,
    "unix:/var/run/docker.sock",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
    "node:fs",
    "javascript:1",
    "about:blank",
    "blob:null/1",
    "chrome://version",
    "/relative",
    "//127.0.0.1/",
  ]),
  unreachable("credentials in the address", ({ outside, canary }) => [
    `http://user:password@127.0.0.1:${outside.port}/`,
    `http://127.0.0.1:${outside.port}@127.0.0.1:${canary.port}/`,
    `http://user@127.0.0.1:${canary.port}/`,
  ]),
  unreachable("redirects to what is private", ({ outside, canary, test }) =>
    [
      `http://127.0.0.1:${canary.port}/`,
      `http://localhost:${canary.port}/`,
      `http://[::1]:${canary.port}/`,
      `http://2130706433:${canary.port}/`,
      "http://169.254.169.254/",
      `http://127.0.0.1:${test.platform.internalPort}/`,
      "file:///etc/passwd",
      `http://127.0.0.1:${outside.port}/redirect?to=${encodeURIComponent(`http://127.0.0.1:${canary.port}/`)}`,
    ].map((to) => `http://127.0.0.1:${outside.port}/redirect?to=${encodeURIComponent(to)}`),
  ),
  unreachable("redirects without end", ({ outside }) => [
    `http://127.0.0.1:${outside.port}/redirect?to=${encodeURIComponent("/redirect?to=/redirect")}`,
    `http://127.0.0.1:${outside.port}/headers`,
  ]),
  unreachable(
    "a proxied Host, an upgrade and a method that tunnels",
    ({ canary }) => [`http://127.0.0.1:${canary.port}/`],
    ", { method: 'CONNECT', headers: { host: 'example.com' } }",
  ),
  {
    name: "forged Host and hop-by-hop headers to an allowed server",
    program: ({ outside }) =>
      `async () => { const said = []; for (const headers of [{ host: 'internal' }, { connection: 'upgrade', upgrade: 'h2c' }, { 'transfer-encoding': 'chunked', 'content-length': '5' }, { 'proxy-authorization': 'x' }, { 'x-kapstone-run': 'forged' }]) { try { said.push((await fetch('http://127.0.0.1:${outside.port}/echo', { headers })).status); } catch (error) { said.push(error.name); } } return Response.json(said); }`,
    outcome: "ok",
    expect({ ground }) {
      for (const { headers } of ground.outside.requests.filter(({ url }) => url === "/echo")) {
        expect(headers.host).toBe(`127.0.0.1:${ground.outside.port}`);
        expect(headers.authorization).toBeUndefined();
      }
    },
  },
  {
    name: "60 fetches, one after the other",
    program: ({ outside }) =>
      `async () => { let n = 0; try { for (; n < 60; n++) await (await fetch('http://127.0.0.1:${outside.port}/')).text(); } catch (error) { return new Response(n + ' ' + error.name); } return new Response(String(n)); }`,
    outcome: "ok",
    expect: ({ answer }) => expect(answer?.text).toBe("50 TypeError"),
  },
  {
    name: "500 fetches at once to a server that is silent",
    program: ({ outside }) =>
      `async () => { const all = Array.from({ length: 500 }, () => fetch('http://127.0.0.1:${outside.port}/silence')); let refused = 0; await new Promise((done) => { for (const each of all) each.catch((error) => { if (error.name === 'TypeError' && ++refused === 450) done(); }); }); await new Promise((done) => setTimeout(done, 100)); return new Response(String(refused)); }`,
    outcome: ["ok", "cpu-exceeded"],
    expect: ({ answer }) => {
      if (answer?.status === 200) expect(answer.text).toBe("450");
    },
  },
  {
    name: "an answer of 50 MB, announced and not",
    program: ({ outside }) =>
      attempts([
        `fetch('http://127.0.0.1:${outside.port}/bytes?count=50000000&announced=1').then((r) => r.arrayBuffer()).then((b) => b.byteLength)`,
        `fetch('http://127.0.0.1:${outside.port}/bytes?count=50000000').then((r) => r.arrayBuffer()).then((b) => b.byteLength)`,
      ]),
    outcome: ["ok", "memory-exceeded", "timeout"],
    expect({ answer }) {
      if (answer?.status === 200) for (const [, what] of happened(answer)) expect(what).toMatch(/^threw TypeError/);
    },
  },
  {
    name: "a request body of 50 MB, streamed outward without end",
    program: ({ outside }) =>
      `async () => { try { await fetch('http://127.0.0.1:${outside.port}/swallow', { method: 'POST', duplex: 'half', body: new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(1_000_000)); } }) }); return new Response('sent'); } catch (error) { return new Response(error.name); } }`,
    outcome: ["ok", "memory-exceeded", "timeout", "cpu-exceeded"],
    expect({ answer }) {
      if (answer?.status === 200) expect(answer.text).toBe("TypeError");
    },
  },
];
