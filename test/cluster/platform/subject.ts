import { expect } from "vitest";
import { signUpOrg, type TestKap, type TestOrg } from "../../harness/org.ts";
import type { Load } from "./client.ts";
import type { LoadCall } from "./client-agent.ts";
import type { Release } from "./release.ts";

/** A kap whose calls each write a row of their own before they are answered. */
export interface Subject {
  org: TestOrg;
  kap: TestKap;
  /** Calls it over and over, from inside the cluster. */
  load(options: { callers: number; pauseMs: number; isKeptAlive: boolean }): Promise<Load>;
  /** Keys of all rows that are there. */
  keys(): Promise<Set<string>>;
}

const program = `
import { db } from "kap";
export default async (request) => {
  const { pathname, searchParams } = new URL(request.url);
  if (pathname === "/setup") await db.query("create table acknowledged (key text primary key)");
  else await db.query("insert into acknowledged (key) values ($1)", [searchParams.get("key")]);
  return new Response("ok");
};`;
/** A call may take 30 s of wall time, and 10 s to find a runtime. */
const hangMs = 50_000;

/** Makes one, with its table. */
export async function createSubject(release: Release): Promise<Subject> {
  const org = await signUpOrg(release);
  const kap = await org.createKap(program);
  const made = await kap.call({ path: "/setup" });
  if (made.status !== 200) throw new Error(`the kap was not set up: ${made.status} ${made.text}`);
  const mark = kap.id.slice(0, 8);
  const [row] = await release.query<{ schema_name: string }>(`select schema_name from kaps where id = '${kap.id}'`);
  return {
    org,
    kap,
    load: (options) =>
      release.client.startLoad({
        ...options,
        path: `/?key=${mark}-{key}`,
        headers: { host: release.host(`${kap.slug}.kaps`), authorization: `Bearer ${kap.token}` },
        timeoutMs: hangMs,
      }),
    async keys() {
      const rows = await release.query<{ key: string }>(`select key from ${row?.schema_name}.acknowledged`);
      return new Set(rows.map(({ key }) => key.slice(mark.length + 1)));
    },
  };
}

/** Every call that was acknowledged has its row. */
export async function proveRows(subject: Subject, calls: LoadCall[]): Promise<void> {
  const keys = await subject.keys();
  expect(calls.filter(({ status, key }) => status === 200 && !keys.has(key))).toEqual([]);
}

/** What went wrong, in words, with how often. */
export function troubles(calls: LoadCall[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status, text } of calls) {
    if (status === 200) continue;
    const what = `${status} ${/"code":"([A-Z_]+)"/.exec(text)?.[1] ?? text}`;
    counts[what] = (counts[what] ?? 0) + 1;
  }
  return counts;
}

/** The value below which a share of the values lie. */
export function percentile(values: number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN);
}
