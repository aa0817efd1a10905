import { Counter, Gauge, Histogram, type Metrics } from "#platform/metrics.ts";

/** What the operator counts. Gauges are read from `state` when asked. */
export interface OperatorMetrics {
  reconciles: Counter<"kind" | "outcome">;
  errors: Counter<"kind">;
  statusWrites: Counter;
  adoptions: Counter;
  releases: Counter;
  coldStart: Histogram;
}

/** What the gauges show; undefined while another operator leads. */
export interface OperatorState {
  queueDepth: number;
  watchFailures: number;
  kaps: number;
  pool: { warm: number; claimed: number };
  claims: number;
  cronJobs: number;
}

/** Cold starts from a warm pool take tens of milliseconds; with an empty pool a second or more. */
const coldStartBuckets = [0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 1.5, 2.5, 5, 10];

export function createOperatorMetrics(registry: Metrics, state: () => OperatorState | undefined): OperatorMetrics {
  const registers = [registry];
  const gauge = (name: string, help: string, read: (now: OperatorState) => number): void => {
    new Gauge({
      name: `kapstone_operator_${name}`,
      help,
      registers,
      collect() {
        const now = state();
        this.set(now === undefined ? 0 : read(now));
      },
    });
  };
  gauge("leader", "1 while this operator leads", () => 1);
  gauge("queue_depth", "Kaps and pods that wait for a worker", (now) => now.queueDepth);
  gauge("kaps", "Kap resources", (now) => now.kaps);
  gauge("pool_warm", "Runtime pods that nobody has claimed", (now) => now.pool.warm);
  gauge("pool_claimed", "Runtime pods that serve a kap", (now) => now.pool.claimed);
  gauge("claims", "Runtimes that PostgreSQL says serve a kap", (now) => now.claims);
  gauge("cron_jobs", "CronJobs, one per cadence in use", (now) => now.cronJobs);
  gauge("watch_failures", "Lists and watches that failed since this operator leads", (now) => now.watchFailures);
  return {
    reconciles: new Counter({
      name: "kapstone_operator_reconciles_total",
      help: "Times that a kap, a pod or the CronJobs were looked at",
      labelNames: ["kind", "outcome"],
      registers,
    }),
    errors: new Counter({
      name: "kapstone_operator_errors_total",
      help: "Times that such a look failed and is repeated",
      labelNames: ["kind"],
      registers,
    }),
    statusWrites: new Counter({ name: "kapstone_operator_status_writes_total", help: "Statuses written", registers }),
    adoptions: new Counter({ name: "kapstone_operator_adoptions_total", help: "Claimed pods adopted", registers }),
    releases: new Counter({ name: "kapstone_operator_releases_total", help: "Runtime pods ended", registers }),
    coldStart: new Histogram({
      name: "kapstone_operator_cold_start_seconds",
      help: "From the claim of a kap's slot until its runtime was ready",
      buckets: coldStartBuckets,
      registers,
    }),
  };
}
