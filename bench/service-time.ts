/** Counts of a histogram of the platform's metrics: seconds up to which, how many so far. */
export type ServiceTimes = ReadonlyMap<number, number>;

/** Reads how long the platform took for the answers of one route, from its internal listener's metrics. */
export async function readServiceTimes(internalOrigin: string, route: string): Promise<ServiceTimes> {
  const text = await (await fetch(`${internalOrigin}/metrics`)).text();
  const lines = text
    .split("\n")
    .filter((line) => line.startsWith("kapstone_http_request_seconds_bucket") && line.includes(`route="${route}"`));
  return new Map(
    lines.map((line) => {
      const upTo = /le="([^"]+)"/.exec(line)?.[1] ?? "";
      return [upTo === "+Inf" ? Number.POSITIVE_INFINITY : Number(upTo), Number(line.slice(line.lastIndexOf(" ")))];
    }),
  );
}

/** A quantile of what came between two readings, in ms, by straight lines inside the buckets. */
export function quantileBetween(before: ServiceTimes, after: ServiceTimes, share: number): number {
  const counts = [...after].map(([upTo, count]) => [upTo, count - (before.get(upTo) ?? 0)] as const).sort(([a], [b]) => a - b);
  const wanted = share * (counts.at(-1)?.[1] ?? 0);
  let [from, below] = [0, 0];
  for (const [upTo, count] of counts) {
    if (count >= wanted)
      return 1_000 * (Number.isFinite(upTo) ? from + ((upTo - from) * (wanted - below)) / Math.max(1, count - below) : from);
    [from, below] = [upTo, count];
  }
  return Number.NaN;
}
