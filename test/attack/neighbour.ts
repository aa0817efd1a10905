import { setTimeout as delay } from "node:timers/promises";
import type { TestKap } from "../harness/org.ts";

const pauseMs = 10;

/** A kap beside the attacked one that is called all the time; it must never fail, whatever the other does. */
export interface Neighbour {
  kap: TestKap;
  /** Starts to count; the function it gives answers the latencies (ms) and failures since then. */
  watch(): () => { latenciesMs: number[]; failures: string[] };
  stop(): Promise<void>;
}

/** Calls the kap one call after the other, ten milliseconds apart. */
export function keepCalling(kap: TestKap): Neighbour {
  let isOver = false;
  let latenciesMs: number[] = [];
  let failures: string[] = [];
  const loop = async (): Promise<void> => {
    while (!isOver) {
      const started = performance.now();
      try {
        const answer = await kap.call({ path: "/beat", timeoutMs: 20_000 });
        if (answer.status !== 200 || answer.text !== "beat") failures.push(`${answer.status} ${answer.text}`);
      } catch (error) {
        failures.push(String(error));
      }
      latenciesMs.push(performance.now() - started);
      await delay(pauseMs);
    }
  };
  const running = loop();
  return {
    kap,
    watch() {
      latenciesMs = [];
      failures = [];
      return () => ({ latenciesMs: [...latenciesMs], failures: [...failures] });
    },
    async stop() {
      isOver = true;
      await running;
    },
  };
}

/** The value below which 99 of 100 lie; 0 of nothing. */
export function p99(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * 0.99) - 1)] ?? 0;
}
