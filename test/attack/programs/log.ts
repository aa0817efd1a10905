import { expect } from "vitest";
import type { Attack } from "../attack.ts";

/** The secrets that the attacked kap has; hostile programs try to print them. */
export const attackSecrets = {
  API_KEY: 'hunter2-"quoted"/slash+plus & ü',
  LONG_KEY: "s3cr3t".repeat(40),
};

/** Programs that flood the log or print what they must not. */
export const logAttacks: Attack[] = [
  {
    name: "100,000 log lines",
    program: "() => { for (let i = 0; i < 100_000; i++) console.log('line', i); return new Response('logged'); }",
    outcome: ["ok", "cpu-exceeded"],
    async expect({ lines }) {
      const all = await lines();
      expect(all.length).toBe(1_001);
      expect(all.at(-1)?.text).toContain("log truncated");
    },
  },
  {
    name: "log lines of 1 MB",
    program: "() => { for (let i = 0; i < 20; i++) console.log('ü'.repeat(500_000)); return new Response('logged'); }",
    outcome: ["ok", "cpu-exceeded"],
    async expect({ lines }) {
      const all = await lines();
      expect(all.length).toBeGreaterThan(0);
      for (const { text } of all) expect(Buffer.byteLength(text)).toBeLessThanOrEqual(8_192);
    },
  },
  {
    name: "a table and a deep object in the log",
    program:
      "() => { console.table(Array.from({ length: 5_000 }, (_, a) => ({ a, b: 'x'.repeat(100) }))); console.dir({ list: new Array(100_000).fill({ deep: { deeper: { deepest: 1 } } }) }, { depth: null }); return new Response('logged'); }",
    outcome: ["ok", "cpu-exceeded"],
    async expect({ lines }) {
      for (const { text } of await lines()) expect(Buffer.byteLength(text)).toBeLessThanOrEqual(8_192);
    },
  },
  {
    name: "groups, counters and timers of the console without end",
    program:
      "() => { for (let i = 0; i < 50_000; i++) { console.group('g' + i); console.count('c' + i); console.time('t' + i); } return new Response('logged'); }",
    outcome: ["ok", "cpu-exceeded"],
    async expect({ lines }) {
      expect((await lines()).length).toBeLessThanOrEqual(1_001);
    },
  },
  {
    name: "control characters and forged lines in the log",
    program:
      "() => { console.log('a\\n2026-01-01T00:00:00.000Z error forged\\r\\u0000\\u001b[2J\\u2028end'); return new Response('logged'); }",
    outcome: "ok",
    async expect({ lines }) {
      const all = await lines();
      expect(all.length).toBe(1);
      expect(all[0]?.text).not.toContain("\u0000");
    },
  },
  {
    name: "secrets in the log, as they are, as JSON and as a URL",
    program:
      "() => { const s = secrets.get('API_KEY'); console.log(s); console.error('key=' + s + ';'); console.log({ s }); console.log(JSON.stringify({ s })); console.log(encodeURIComponent(s)); console.log(new URLSearchParams({ s }).toString()); console.log('%s', s); console.log([[s]]); console.log(new Map([[s, s]])); console.table([{ s }]); console.log(new Error(s)); return new Response('logged'); }",
    outcome: "ok",
    async expect({ lines }) {
      const all = await lines();
      expect(all.length).toBeGreaterThanOrEqual(11);
      for (const { text } of all) {
        expect(text).not.toContain("hunter2-");
      }
      expect(all[0]?.text).toBe("[secret API_KEY]");
    },
  },
  {
    name: "a secret at the place where a line is cut",
    program:
      "() => { const s = secrets.get('LONG_KEY'); for (let at = 8_192 - 300; at < 8_192 + 20; at += 7) console.log('x'.repeat(at) + s); for (let at = 16_384 - 300; at < 16_384 + 20; at += 7) console.log('x'.repeat(at) + s); return new Response('logged'); }",
    outcome: "ok",
    async expect({ lines }) {
      for (const { text } of await lines()) expect(text).not.toContain("s3cr3ts3cr3t");
    },
  },
  {
    name: "a secret in a thrown error",
    program: "() => { const s = secrets.get('API_KEY'); const e = new TypeError('key ' + s); e.name = s; throw e; }",
    outcome: "error",
    expect({ run, answer }) {
      expect(run?.detail).toContain("[secret API_KEY]");
      expect(`${run?.detail} ${answer?.text}`).not.toContain("hunter2-");
    },
  },
  {
    name: "a secret in an unhandled rejection and in reportError",
    program:
      "async () => { const s = secrets.get('API_KEY'); reportError(new Error('reported ' + s)); Promise.reject(new Error(s)); await new Promise((d) => setTimeout(d, 50)); return new Response('x'); }",
    outcome: "error",
    async expect({ run, lines }) {
      expect(JSON.stringify([run, await lines()])).not.toContain("hunter2-");
    },
  },
];
