import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import pg from "pg";
import { extract, type Header, pack } from "tar-stream";
import { request } from "undici";
import { type Measure, ms, type Row } from "./measure.ts";
import { type MeasuredPlatform, startMeasuredPlatform } from "./platform.ts";
import { median } from "./processes.ts";

const rounds = 5;
const queries = 300;
const select = "select id, name from bench_rows where id = $1";
const many = { files: 10_000, bytes: 1_024 };
const large = { files: 100, bytes: 2 * 1024 * 1024 };
const mebibyte = 1024 * 1024;
/** What the API may grow by, however large the archive is. */
const growthMb = 128;

type Org = Awaited<ReturnType<MeasuredPlatform["signUp"]>>;

/** A kap's data over HTTP beside raw `pg`; and how much the API grows while it takes in and gives out archives that are far larger than its memory should be. */
export const kapData: Measure = {
  name: "data",
  async run(): Promise<Row[]> {
    const platform = await startMeasuredPlatform();
    try {
      const org = await platform.signUp();
      const kap = await platform.createKap(org, "export default () => new Response('data')");
      const rows = [await queryRow(platform, org, kap.id)];
      const template = await exported(platform, org, kap.id);
      rows.push(...(await archiveRows(platform, org, template, many, "10,000 files of 1 KiB")));
      rows.push(...(await archiveRows(platform, org, template, large, "200 MiB in 100 files")));
      return rows;
    } finally {
      await platform.close();
    }
  },
};

async function queryRow(platform: MeasuredPlatform, org: Org, kap: string): Promise<Row> {
  const query = async (sql: string, params: unknown[] = []): Promise<number> => {
    const start = performance.now();
    const answer = await platform.http.call({
      host: platform.host("api"),
      method: "POST",
      path: `/v1/kaps/${kap}/db/query`,
      headers: { authorization: `Bearer ${org.session}`, "x-service-client": "bench" },
      body: { sql, params },
    });
    if (answer.status !== 200) throw new Error(`a query was answered ${answer.status}: ${answer.text}`);
    return performance.now() - start;
  };
  await query("create table bench_rows (id int primary key, name text)");
  await query("insert into bench_rows select n, 'row ' || n from generate_series(0, 999) n");
  const raw = new pg.Client({ connectionString: platform.databaseUrl });
  await raw.connect();
  await raw.query("create temporary table bench_rows as select n as id, 'row ' || n as name from generate_series(0, 999) n");
  await raw.query("create unique index on bench_rows (id)");
  const ours: number[] = [];
  const theirs: number[] = [];
  const over: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const a: number[] = [];
    const b: number[] = [];
    for (let n = 0; n < queries; n++) {
      a.push(await query(select, [n % 1_000]));
      const start = performance.now();
      await raw.query(select, [n % 1_000]);
      b.push(performance.now() - start);
    }
    ours.push(median(a));
    theirs.push(median(b));
    over.push(median(a) - median(b));
  }
  await raw.end();
  return {
    measure: "/db/query, one indexed row, median",
    value: ms(median(ours)),
    peer: `raw pg ${ms(median(theirs))}`,
    result: `+${ms(median(over))}`,
    goal: "",
    isMet: true,
  };
}

/** Imports an archive with so many files and exports the kap's files as a tar again. */
async function archiveRows(platform: MeasuredPlatform, org: Org, template: Entry[], size: typeof many, what: string): Promise<Row[]> {
  const totalMb = (size.files * size.bytes) / mebibyte;
  let kap = "";
  const taken = await watched(platform, async () => {
    const answer = await request(`${platform.origin}/v1/orgs/${org.orgId}/kaps/import`, {
      method: "POST",
      headers: { ...headersOf(platform, org), "content-type": "application/x-tar" },
      body: archive(template, size),
      headersTimeout: 300_000,
    });
    const text = await answer.body.text();
    if (answer.statusCode !== 201) throw new Error(`an import was answered ${answer.statusCode}: ${text}`);
    kap = (JSON.parse(text) as { kap: { id: string } }).kap.id;
  });
  const given = await watched(platform, async () => {
    const answer = await request(`${platform.origin}/v1/kaps/${kap}/store/files/export`, {
      headers: headersOf(platform, org),
      bodyTimeout: 120_000,
    });
    let bytes = 0;
    for await (const chunk of answer.body as AsyncIterable<Buffer>) bytes += chunk.length;
    if (answer.statusCode !== 200 || bytes < size.files * size.bytes)
      throw new Error(`an export was answered ${answer.statusCode} with ${bytes} bytes`);
  });
  const row = (measure: string, result: Watched): Row => ({
    measure,
    value: `${(result.tookMs / 1_000).toFixed(1)} s, ${(totalMb / (result.tookMs / 1_000)).toFixed(0)} MiB/s`,
    peer: `API before ${result.beforeMb.toFixed(0)} MB`,
    result: `peak growth ${result.growthMb.toFixed(0)} MB`,
    goal: `≤ ${growthMb} MB`,
    isMet: result.growthMb <= growthMb,
  });
  return [row(`import of a kap with ${what}`, taken), row(`tar of ${what}`, given)];
}

interface Watched {
  tookMs: number;
  beforeMb: number;
  growthMb: number;
}

/** How long work takes, and how far the resident memory of the API's process rises meanwhile. */
async function watched(platform: MeasuredPlatform, work: () => Promise<void>): Promise<Watched> {
  const resident = (): number =>
    Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${platform.process.pid}/status`, "latin1"))?.[1] ?? 0) / 1_024;
  const beforeMb = resident();
  let peak = beforeMb;
  const timer = setInterval(() => {
    peak = Math.max(peak, resident());
  }, 20);
  const start = performance.now();
  try {
    await work();
  } finally {
    clearInterval(timer);
  }
  return { tookMs: performance.now() - start, beforeMb, growthMb: Math.max(peak, resident()) - beforeMb };
}

const headersOf = (platform: MeasuredPlatform, org: Org): Record<string, string> => ({
  host: platform.host("api"),
  authorization: `Bearer ${org.session}`,
  "x-service-client": "bench",
});

interface Entry {
  header: Header;
  bytes: Buffer;
}

/** The files of a kap's export. */
async function exported(platform: MeasuredPlatform, org: Org, kap: string): Promise<Entry[]> {
  const answer = await request(`${platform.origin}/v1/kaps/${kap}/export`, { headers: headersOf(platform, org) });
  const tar = extract();
  answer.body.pipe(tar as unknown as NodeJS.WritableStream);
  const entries: Entry[] = [];
  for await (const entry of tar) entries.push({ header: entry.header, bytes: await buffer(entry as unknown as Readable) });
  return entries;
}

/** An export with other files, made as it is read. */
function archive(template: Entry[], size: typeof many): Readable {
  const tar = pack();
  const bytes = Buffer.alloc(size.bytes, "kapstone ");
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  const add = (name: string, content: Buffer): Promise<void> =>
    new Promise((resolve, reject) => {
      tar.entry({ name, size: content.length }, content, (error) => (error ? reject(error) : resolve()));
    });
  const write = async (): Promise<void> => {
    for (const { header, bytes: content } of template) {
      if (header.name !== "checksums.json" && !header.name.startsWith("files/")) await add(header.name, content);
    }
    const sums: [string, string][] = [];
    for (let n = 0; n < size.files; n++) {
      const key = `bench/${String(n).padStart(6, "0")}`;
      await add(`files/${key}`, bytes);
      sums.push([key, sha256]);
    }
    await add("checksums.json", Buffer.from(JSON.stringify(Object.fromEntries(sums))));
    tar.finalize();
  };
  write().catch((error: unknown) => tar.destroy(error instanceof Error ? error : new Error(String(error))));
  return Readable.from(tar, { objectMode: false });
}
