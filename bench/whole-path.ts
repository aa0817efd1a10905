import { paths } from "./handlers.ts";
import type { LoadResult } from "./load.ts";
import { type Measure, ms, type Row } from "./measure.ts";
import { startMeasuredPlatform } from "./platform.ts";
import { type Part, processorSeconds } from "./process-time.ts";
import { cores, end, load, median, script, startOn } from "./processes.ts";
import { startWorkerd } from "./runtime-peers.ts";

const rounds = 5;
const requests = { one: 2_000, fifty: 10_000 };

type Round = Record<"ours1" | "hop1" | "ours50" | "workerd50" | "hop50", LoadResult> & {
  /** Microseconds of processor time that each part took for a call at 50; null where the system does not tell it. */
  processor: Record<Part, number> | null;
};

/** The calls of a load run, those before the count included. */
const callsOf = (requests: number): number => requests + Math.ceil(requests / 10);

/**
 * A call of a kap through gateway, token check and run record: alone beside a bare `node:http` server behind a bare proxy hop, under load beside bare
 * workerd, which has none of these, and beside the hop. Paired rounds: all take turns, and the median of the rounds' differences and ratios counts.
 */
export const wholePath: Measure = {
  name: "whole-path",
  async run(): Promise<Row[]> {
    const platform = await startMeasuredPlatform();
    const http = await startOn(cores.measured, script("peer-servers.ts", "http"));
    const proxy = await startOn(cores.measured, script("peer-servers.ts", "proxy", http.firstLine));
    const workerd = await startWorkerd();
    try {
      const org = await platform.signUp();
      const kap = await platform.createKap(org, "export default () => Response.json({ hello: 'world' })");
      const ours = {
        origin: platform.origin,
        path: "/",
        headers: { host: platform.host(`${kap.slug}.kaps`), authorization: `Bearer ${kap.token}` },
      };
      const hop = { origin: proxy.firstLine, path: "/", headers: { host: "peer" } };
      const bare = { origin: workerd.origin, path: paths.json, headers: { host: "peer" } };
      const taken: Round[] = [];
      const used = (): Record<Part, number> | null => processorSeconds(platform.process.pid ?? 0);
      for (let round = 0; round < rounds; round++) {
        const ours1 = await load({ ...ours, connections: 1, requests: requests.one });
        const hop1 = await load({ ...hop, connections: 1, requests: requests.one });
        const before = used();
        const ours50 = await load({ ...ours, connections: 50, requests: requests.fifty });
        const after = used();
        const microseconds = (part: Part): number =>
          before && after ? ((after[part] - before[part]) / callsOf(requests.fifty)) * 1_000_000 : 0;
        taken.push({
          ours1,
          hop1,
          ours50,
          processor: before &&
            after && { gateway: microseconds("gateway"), supervisor: microseconds("supervisor"), child: microseconds("child") },
          workerd50: await load({ ...bare, connections: 50, requests: requests.fifty }),
          hop50: await load({ ...hop, connections: 50, requests: requests.fifty }),
        });
      }
      const failures = taken
        .flatMap(({ processor: _, ...results }) => Object.values(results))
        .reduce((sum, result) => sum + result.failures, 0);
      if (failures > 0) throw new Error(`${failures} calls failed while they were measured`);
      const of = (read: (round: Round) => number): number => median(taken.map(read));
      const over = of(({ ours1, hop1 }) => ours1.p50 - hop1.p50);
      const ratio = of(({ ours50, workerd50 }) => ours50.perSecond / workerd50.perSecond);
      const hopRatio = of(({ ours50, hop50 }) => ours50.perSecond / hop50.perSecond);
      return [
        {
          measure: "whole path, concurrency 1, median",
          value: ms(of(({ ours1 }) => ours1.p50)),
          peer: `bare proxy hop ${ms(of(({ hop1 }) => hop1.p50))}`,
          result: `+${ms(over)}`,
          goal: "≤ +0.5 ms",
          isMet: over <= 0.5,
        },
        {
          measure: "whole path, concurrency 50, one core",
          value: `${of(({ ours50 }) => ours50.perSecond).toFixed(0)}/s, p99 ${ms(of(({ ours50 }) => ours50.p99))}`,
          peer: `bare workerd ${of(({ workerd50 }) => workerd50.perSecond).toFixed(0)}/s, bare proxy hop ${of(({ hop50 }) => hop50.perSecond).toFixed(0)}/s`,
          result: `${ratio.toFixed(2)} × workerd, ${hopRatio.toFixed(2)} × proxy hop`,
          goal: "≥ 0.5 × workerd",
          isMet: ratio >= 0.5,
        },
        ...processorRow(taken.flatMap(({ processor }) => processor ?? [])),
      ];
    } finally {
      await Promise.all([end(proxy.process), end(http.process), workerd.close()]);
      await platform.close();
    }
  },
};

function processorRow(taken: Record<Part, number>[]): Row[] {
  if (taken.length === 0) return [];
  const of = (part: Part): number => median(taken.map((each) => each[part]));
  const [gateway, child, supervisor] = [of("gateway"), of("child"), of("supervisor")];
  return [
    {
      measure: "processor time of a call, concurrency 50",
      value: `${(gateway + child + supervisor).toFixed(0)} µs`,
      peer: `gateway ${gateway.toFixed(0)} µs, child ${child.toFixed(0)} µs, supervisor ${supervisor.toFixed(0)} µs`,
      result: `${(gateway + child + supervisor).toFixed(0)} µs`,
      goal: "",
      isMet: true,
    },
  ];
}
