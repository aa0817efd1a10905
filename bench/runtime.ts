import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { type Built, built, program, testBuilder } from "../api/services/kaps/build/test-builder.ts";
import { startPostgres } from "../local/postgres.ts";
import { createLogger } from "../platform/log.ts";
import { PeerApi } from "../runtime/fixture/peer-api.ts";
import { kapProgram, outwardTo, paths, selects, streamed } from "./handlers.ts";
import type { LoadResult } from "./load.ts";
import { type Measure, ms, type Row } from "./measure.ts";
import { type MeasuredRuntime, startRuntime } from "./measured-runtime.ts";
import { processTree, proportionalMb } from "./process-memory.ts";
import { cores, load, median } from "./processes.ts";
import { type Peer, startBare, startDeno, startWorkerd } from "./runtime-peers.ts";

const rounds = 5;
const claims = 20;
const counts = { one: 1_500, fifty: 8_000, echo: 1_500, stream: 25, sql: 10, outward: 500 };
const largeBundleBytes = 300 * 1024;
const spareMs = 2_500;
const restMs = 500;

/**
 * The runtime without gateway and api, beside bare `node:http`, workerd and Deno serving the same program. Paired rounds: in each, all take turns,
 * and the median of the rounds' differences and ratios counts. Server and its children on one core, load on the other.
 */
export const runtimeAlone: Measure = {
  name: "runtime",
  async run(): Promise<Row[]> {
    const api = await PeerApi.start();
    const home = await mkdtemp(join(tmpdir(), "kapstone-bench-"));
    const server = await startPostgres({ home: join(home, "postgres"), log: createLogger("bench", { level: "warn" }) });
    const closers: Peer[] = [];
    const keep = <P extends Peer>(peer: P): P => {
      closers.push(peer);
      return peer;
    };
    try {
      const rows = await claimRows(api);
      await fillTable(server.url);
      const stub = keep(await startBare(undefined, cores.rest));
      const ours = keep(await startRuntime(api, new URL(stub.origin).host));
      await ours.claim(kapProgram, { database: databaseOf(server.url) });
      const [bare, workerd, deno] = [keep(await startBare(server.url)), keep(await startWorkerd()), keep(await startDeno())];
      await ours.get(paths.json);
      await new Promise((resolve) => setTimeout(resolve, spareMs));
      const peers = [bare, workerd, deno];
      rows.unshift(...memoryRows("its program sends statements", ours, peers));
      const plain = keep(await startRuntime(api));
      await plain.claim(`exports.default = { fetch: () => Response.json({ hello: "world" }) };`);
      await plain.get(paths.json);
      await new Promise((resolve) => setTimeout(resolve, spareMs));
      rows.unshift(...memoryRows("its program sends none", plain, peers));
      await plain.close();
      rows.unshift(...(await speedRows(ours, bare, workerd, deno, stub.origin + paths.json)));
      return rows;
    } finally {
      for (const peer of closers) await peer.close();
      await api.close();
      await server.stop();
      await rm(home, { recursive: true, force: true });
    }
  },
};

interface Round {
  one: LoadResult;
  fifty: LoadResult;
  echo: LoadResult;
  stream: LoadResult;
  outward: LoadResult;
}

async function speedRows(ours: MeasuredRuntime, bare: Peer, workerd: Peer, deno: Peer, stubUrl: string): Promise<Row[]> {
  const all: Peer[] = [ours, bare, workerd, deno];
  const taken = new Map<Peer, Round[]>(all.map((peer) => [peer, []]));
  const sql: { ours: number; raw: number }[] = [];
  for (let round = 0; round < rounds; round++) {
    for (const peer of all) {
      const to = { origin: peer.origin, headers: ours.headers };
      taken.get(peer)?.push({
        one: await load({ ...to, path: paths.json, connections: 1, requests: counts.one }),
        fifty: await load({ ...to, path: paths.json, connections: 50, requests: counts.fifty }),
        echo: await load({ ...to, path: paths.echo, connections: 4, requests: counts.echo, bodyBytes: 65_536 }),
        stream: await load({ ...to, path: paths.stream, connections: 1, requests: counts.stream }),
        outward: await load({
          origin: peer.origin,
          headers: { ...ours.headers, [outwardTo]: stubUrl },
          path: paths.outward,
          connections: 1,
          requests: counts.outward,
        }),
      });
    }
    const selectMs = async (peer: Peer): Promise<number> => {
      const result = await load({ origin: peer.origin, headers: ours.headers, path: paths.sql, connections: 1, requests: counts.sql });
      if (result.failures > 0) throw new Error(`${peer.name} failed ${result.failures} requests of selects`);
      return result.p50 / selects;
    };
    sql.push({ ours: await selectMs(ours), raw: await selectMs(bare) });
  }
  const roundsOf = (peer: Peer): Round[] => taken.get(peer) ?? [];
  const failures = [...taken.values()]
    .flat()
    .reduce((sum, round) => sum + Object.values<LoadResult>({ ...round }).reduce((of, { failures }) => of + failures, 0), 0);
  if (failures > 0) throw new Error(`${failures} requests failed while they were measured`);
  const of = (peer: Peer, read: (round: Round) => number): number => median(roundsOf(peer).map(read));
  const paired = (peer: Peer, combine: (mine: Round, theirs: Round) => number): number =>
    median(roundsOf(ours).map((mine, at) => combine(mine, roundsOf(peer)[at] as Round)));
  const over = paired(bare, (mine, theirs) => mine.one.p50 - theirs.one.p50);
  const ratio = paired(workerd, (mine, theirs) => mine.fifty.perSecond / theirs.fifty.perSecond);
  const megabytes = (peer: Peer, read: (round: Round) => number, bytes: number): string =>
    `${((of(peer, read) * bytes) / 1e6).toFixed(0)} MB/s`;
  const peers = [bare, workerd, deno];
  const echoOf = (round: Round): number => round.echo.perSecond;
  const streamOf = (round: Round): number => round.stream.perSecond;
  const streamBytes = streamed.pieces * streamed.pieceBytes;
  const streamRate = (of(ours, streamOf) * streamBytes) / 1e6;
  const sqlOver = median(sql.map(({ ours: mine, raw }) => mine - raw));
  return [
    {
      measure: "runtime alone, JSON, concurrency 1, median",
      value: ms(of(ours, ({ one }) => one.p50)),
      peer: peers.map((peer) => `${peer.name} ${ms(of(peer, ({ one }) => one.p50))}`).join(", "),
      result: `+${ms(over)} over bare`,
      goal: "≤ +0.15 ms",
      isMet: over <= 0.15,
    },
    {
      measure: "runtime alone, JSON, concurrency 50, one core",
      value: `${of(ours, ({ fifty }) => fifty.perSecond).toFixed(0)}/s, p99 ${ms(of(ours, ({ fifty }) => fifty.p99))}`,
      peer: peers.map((peer) => `${peer.name} ${of(peer, ({ fifty }) => fifty.perSecond).toFixed(0)}/s`).join(", "),
      result: `${ratio.toFixed(2)} × workerd, ${paired(bare, (mine, theirs) => mine.fifty.perSecond / theirs.fifty.perSecond).toFixed(2)} × bare`,
      goal: "> 1 × workerd",
      isMet: ratio > 1,
    },
    {
      measure: "runtime alone, 64 KB echo, 4 connections",
      value: megabytes(ours, echoOf, 65_536),
      peer: peers.map((peer) => `${peer.name} ${megabytes(peer, echoOf, 65_536)}`).join(", "),
      result: `${paired(workerd, (mine, theirs) => mine.echo.perSecond / theirs.echo.perSecond).toFixed(2)} × workerd`,
      goal: "",
      isMet: true,
    },
    {
      measure: "runtime alone, 10 MB streamed in 64 KB pieces",
      value: megabytes(ours, streamOf, streamBytes),
      peer: peers.map((peer) => `${peer.name} ${megabytes(peer, streamOf, streamBytes)}`).join(", "),
      result: `${streamRate.toFixed(0)} MB/s`,
      goal: "≥ 300 MB/s",
      isMet: streamRate >= 300,
    },
    {
      measure: "one select from a kap",
      value: ms(median(sql.map((pair) => pair.ours))),
      peer: `raw pg ${ms(median(sql.map((pair) => pair.raw)))}`,
      result: `+${ms(sqlOver)}`,
      goal: "≤ +0.25 ms",
      isMet: sqlOver <= 0.25,
    },
    {
      measure: "one outward fetch to a local stub, concurrency 1, median",
      value: ms(of(ours, ({ outward }) => outward.p50)),
      peer: peers.map((peer) => `${peer.name} ${ms(of(peer, ({ outward }) => outward.p50))}`).join(", "),
      result: `+${ms(paired(workerd, (mine, theirs) => mine.outward.p50 - theirs.outward.p50))} over workerd`,
      goal: "",
      isMet: true,
    },
  ];
}

/** Idle memory. The spare waits for any child's end and its memory is that of a child: it is counted apart. */
function memoryRows(what: string, ours: MeasuredRuntime, peers: Peer[]): Row[] {
  const [supervisor = 0, ...children] = processTree(ours.pid).filter((pid) => proportionalMb([pid]) !== 0);
  const [child = 0, ...spares] = children;
  const assigned = proportionalMb([supervisor, child]);
  if (assigned === null) return [];
  const mb = (value: number | null): string => `${(value ?? 0).toFixed(0)} MB`;
  return [
    {
      measure: `memory of an assigned idle runtime (PSS), ${what}`,
      value: `${mb(assigned)}: supervisor ${mb(proportionalMb([supervisor]))}, child ${mb(proportionalMb([child]))}; spare ${mb(proportionalMb(spares))}`,
      peer: peers.map((peer) => `${peer.name} ${mb(proportionalMb(processTree(peer.pid)))}`).join(", "),
      result: mb(assigned),
      goal: "≤ 60 MB",
      isMet: assigned <= 60,
    },
  ];
}

/** Claims of warm generic runtimes, one after another, each until the program has answered once: a small program and a large one in turn. */
async function claimRows(api: PeerApi): Promise<Row[]> {
  const builder = testBuilder();
  const build = (source: string): Promise<Built> => builder.build(program({ "main.ts": source })).then(built);
  const subjects = await Promise.all(
    (
      [
        ["claim → first answer", "", 30, 100],
        [`claim → first answer, bundle of ${largeBundleBytes / 1024} KB`, fillerOf(largeBundleBytes), 45, null],
      ] as const
    ).map(async ([what, filler, p50Goal, p99Goal]) => ({
      what,
      p50Goal,
      p99Goal,
      program: await build(`${filler}\nexport default () => Response.json({ hello: "world" });`),
      times: [] as number[],
      told: [] as number[],
    })),
  ).finally(() => builder.close());
  for (let n = 0; n < claims; n++) {
    for (const { program: given, times, told } of subjects) {
      const runtime = await startRuntime(api);
      try {
        await new Promise((resolve) => setTimeout(resolve, restMs)); // warm runtimes wait for their claim
        const start = performance.now();
        told.push(await runtime.claim(given));
        const { status, text } = await runtime.get(paths.json);
        times.push(performance.now() - start);
        if (status !== 200) throw new Error(`the first call was answered ${status}: ${text}`);
      } finally {
        await runtime.close();
      }
    }
  }
  return subjects.map(({ what, p50Goal, p99Goal, program: { bundle }, times, told }) => {
    const p50 = median(times);
    const p99 = Math.max(...times); // of so few, the slowest
    return {
      measure: `${what}, ${claims} claims`,
      value: `p50 ${ms(p50)}, p99 ${ms(p99)}`,
      peer: `of it the claim ${ms(median(told))}; bundle ${(bundle.length / 1024).toFixed(0)} KB`,
      result: ms(p50),
      goal: p99Goal === null ? `p50 ≤ ${p50Goal} ms` : `p50 ≤ ${p50Goal} ms, p99 ≤ ${p99Goal} ms`,
      isMet: p50 <= p50Goal && (p99Goal === null || p99 <= p99Goal),
    };
  });
}

/** Functions that the program keeps, of about so many bytes once bundled. */
function fillerOf(bytes: number): string {
  const one = (n: number): string =>
    `(input: string[]): string => { const parts = input.map((part) => part.trim()).filter((part) => part.length > ${n}); ` +
    `if (parts.length === 0) return "nothing of ${n}"; return parts.concat(["${"y".repeat(60)}"]).join("-"); }`;
  const count = Math.ceil(bytes / (one(0).length - 46));
  return `export const kept = [${Array.from({ length: count }, (_, n) => one(n)).join(",\n")}];`;
}

function databaseOf(url: string): { host: string; port: number; database: string; user: string; password: string; schema: string } {
  const { hostname, port, pathname, username, password } = new URL(url);
  return {
    host: hostname,
    port: Number(port),
    database: pathname.slice(1),
    user: username,
    password: decodeURIComponent(password),
    schema: "public",
  };
}

async function fillTable(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(
    "create table bench_rows (id int primary key, name text); insert into bench_rows select n, 'row ' || n from generate_series(0, 999) n",
  );
  await client.end();
}
