import { createMetrics, Gauge, type Metrics } from "#platform/metrics.ts";
import type { Supervisor } from "./supervisor.ts";

/** The metrics of one runtime: the process's own and what the supervisor knows. */
export function runtimeMetrics(supervisor: Supervisor): Metrics {
  const metrics = createMetrics("runtime");
  const gauge = (name: string, help: string, read: () => number): void => {
    new Gauge({
      name: `kapstone_runtime_${name}`,
      help,
      registers: [metrics],
      collect() {
        this.set(read());
      },
    });
  };
  gauge("runs_in_flight", "Runs inside the isolate or waiting for something", () => supervisor.inFlight.running);
  gauge("runs_queued", "Runs that wait for a place", () => supervisor.inFlight.queued);
  gauge("children_replaced", "Children that were killed or ended by themselves since the start", () => supervisor.children.lost);
  gauge("children_recycled", "Children that had served enough and were replaced since the start", () => supervisor.children.recycled);
  gauge("reports_waiting", "Ended runs the api has not acknowledged yet", () => supervisor.reporter.backlog);
  gauge("resident_bytes", "Memory of supervisor and children", () => supervisor.rssBytes);
  return metrics;
}
