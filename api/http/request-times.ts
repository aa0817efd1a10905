import { Histogram, type Metrics } from "#platform/metrics.ts";

const name = "kapstone_http_request_seconds";
/** Fine below 5 ms, where the goals are, coarse above. */
const buckets = [0.00025, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** Notes how long a request took, from its arrival at its route to its answer being written. Never the path itself: it can hold a secret. */
export type NoteRequest = (route: { method: string; path: string }, status: number, startedMs: number) => void;

/** The histogram of service times in a registry: method, path of the route, status. */
export function requestTimes(metrics: Metrics): NoteRequest {
  const known = metrics.getSingleMetric(name) as Histogram<"method" | "route" | "status"> | undefined;
  const histogram =
    known ??
    new Histogram({
      name,
      help: "Service time of a request, from its arrival at its route to its answer being written, in seconds",
      labelNames: ["method", "route", "status"],
      buckets,
      registers: [metrics],
    });
  return ({ method, path }, status, startedMs) => {
    histogram.observe({ method, route: path, status }, (performance.now() - startedMs) / 1_000);
  };
}
