import { type Measure, ms, type Row } from "./measure.ts";
import { startMeasuredPlatform } from "./platform.ts";
import { cores, end, load, median, script, startOn } from "./processes.ts";

const rounds = 5;
const requests = { one: 2_000, fifty: 10_000 };

/**
 * A call of a kap through gateway, token check and run record, beside a bare `node:http` server behind a bare proxy hop. Paired rounds: platform and
 * peer take turns, and the median of the rounds' differences and ratios counts.
 */
export const wholePath: Measure = {
  name: "whole-path",
  async run(): Promise<Row[]> {
    const platform = await startMeasuredPlatform();
    const http = await startOn(cores.measured, script("peer-servers.ts", "http"));
    const proxy = await startOn(cores.measured, script("peer-servers.ts", "proxy", http.firstLine));
    try {
      const org = await platform.signUp();
      const kap = await platform.createKap(org, "export default () => Response.json({ hello: 'world' })");
      const ours = {
        origin: platform.origin,
        path: "/",
        headers: { host: platform.host(`${kap.slug}.kaps`), authorization: `Bearer ${kap.token}` },
      };
      const theirs = { origin: proxy.firstLine, path: "/", headers: { host: "peer" } };
      const pairs: { over: number; ours: number; theirs: number; ratio: number; perSecond: number; p99: number; failures: number }[] = [];
      for (let round = 0; round < rounds; round++) {
        const a1 = await load({ ...ours, connections: 1, requests: requests.one });
        const b1 = await load({ ...theirs, connections: 1, requests: requests.one });
        const a50 = await load({ ...ours, connections: 50, requests: requests.fifty });
        const b50 = await load({ ...theirs, connections: 50, requests: requests.fifty });
        pairs.push({
          over: a1.p50 - b1.p50,
          ours: a1.p50,
          theirs: b1.p50,
          ratio: a50.perSecond / b50.perSecond,
          perSecond: a50.perSecond,
          p99: a50.p99,
          failures: a1.failures + a50.failures,
        });
      }
      const failures = pairs.reduce((sum, pair) => sum + pair.failures, 0);
      if (failures > 0) throw new Error(`${failures} calls failed while they were measured`);
      const of = (key: keyof (typeof pairs)[0]): number => median(pairs.map((pair) => pair[key]));
      return [
        {
          measure: "whole path, concurrency 1, median",
          value: ms(of("ours")),
          peer: `bare proxy hop ${ms(of("theirs"))}`,
          result: `+${ms(of("over"))}`,
          goal: "≤ +0.5 ms",
          isMet: of("over") <= 0.5,
        },
        {
          measure: "whole path, concurrency 50",
          value: `${of("perSecond").toFixed(0)}/s, p99 ${ms(of("p99"))}`,
          peer: "bare proxy hop",
          result: `${of("ratio").toFixed(2)} ×`,
          goal: "≥ 0.5 ×",
          isMet: of("ratio") >= 0.5,
        },
      ];
    } finally {
      await Promise.all([end(proxy.process), end(http.process)]);
      await platform.close();
    }
  },
};
