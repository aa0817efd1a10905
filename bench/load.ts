import { Pool } from "undici";

/** What a load run is told on its command line, as JSON. */
export interface LoadOptions {
  origin: string;
  path: string;
  headers: Record<string, string>;
  connections: number;
  /** Counted requests; a tenth of them run before, uncounted. */
  requests: number;
  /** Bytes of a POST's body; a GET without. */
  bodyBytes?: number;
  /** A POST's JSON, instead of bytes. */
  json?: string;
  /** Requests are sent at this pace, whether or not earlier ones have been answered; without, each connection sends as fast as it is answered. */
  pace?: number;
}

/** What it prints, as JSON. Times in milliseconds. */
export interface LoadResult {
  perSecond: number;
  p50: number;
  p99: number;
  failures: number;
}

/** Sends requests over `connections` connections, one at a time on each, and measures each from send to last byte. */
async function load(options: LoadOptions): Promise<LoadResult> {
  const pool = new Pool(options.origin, { connections: options.connections, pipelining: 1 });
  const body = options.json ?? (options.bodyBytes === undefined ? null : Buffer.alloc(options.bodyBytes, 97));
  const method = body === null ? "GET" : "POST";
  let failures = 0;
  const one = (): Promise<number> =>
    new Promise((resolve) => {
      const start = performance.now();
      let status = 0;
      pool.dispatch(
        { method, path: options.path, headers: options.headers, body },
        {
          onRequestStart() {},
          onResponseStart(_controller, code) {
            status = code;
          },
          onResponseData() {},
          onResponseEnd() {
            if (status !== 200) failures += 1;
            resolve(performance.now() - start);
          },
          onResponseError() {
            failures += 1;
            resolve(performance.now() - start);
          },
        },
      );
    });
  const paced = async (count: number, perSecond: number): Promise<Float64Array> => {
    const times = new Float64Array(count);
    const open: Promise<void>[] = [];
    const began = performance.now();
    while (open.length < count) {
      const due = Math.min(count, Math.floor(((performance.now() - began) / 1_000) * perSecond));
      while (open.length < due) {
        const at = open.length;
        open.push(
          one().then((tookMs) => {
            times[at] = tookMs;
          }),
        );
      }
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    await Promise.all(open);
    return times;
  };
  const round = async (count: number): Promise<Float64Array> => {
    if (options.pace !== undefined) return paced(count, options.pace);
    const times = new Float64Array(count);
    let next = 0;
    await Promise.all(
      Array.from({ length: options.connections }, async () => {
        for (let at = next++; at < count; at = next++) times[at] = await one();
      }),
    );
    return times;
  };
  await round(Math.max(options.connections, Math.ceil(options.requests / 10)));
  failures = 0;
  const start = performance.now();
  const times = (await round(options.requests)).sort();
  const seconds = (performance.now() - start) / 1000;
  await pool.close();
  const at = (share: number): number => times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0;
  return { perSecond: options.requests / seconds, p50: at(0.5), p99: at(0.99), failures };
}

console.log(JSON.stringify(await load(JSON.parse(process.argv[2] ?? "{}") as LoadOptions)));
