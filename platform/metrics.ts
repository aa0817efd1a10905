import type { Server } from "node:http";
import { collectDefaultMetrics, Registry } from "prom-client";
import { createServer } from "./node-http.ts";

export { Counter, Gauge, Histogram } from "prom-client";
export type Metrics = Registry;

/** A registry with the process's own metrics (CPU, memory, event loop), each labelled with the part of the platform it belongs to. */
export function createMetrics(part: string): Metrics {
  const registry = new Registry();
  registry.setDefaultLabels({ part });
  collectDefaultMetrics({ register: registry });
  return registry;
}

/** What a part is made of and whether each works: `check` throws with the cause when it does not. */
export type ReadinessChecks = Record<string, (signal: AbortSignal) => Promise<unknown>>;

const checkTimeoutMs = 2_000;

/** Runs all checks side by side; each has 2 seconds. A failed check names its cause. */
export async function checkReadiness(checks: ReadinessChecks): Promise<{ ready: boolean; checks: Record<string, string> }> {
  const states = await Promise.all(
    Object.entries(checks).map(async ([name, check]): Promise<[string, string]> => {
      const signal = AbortSignal.timeout(checkTimeoutMs);
      try {
        const late = new Promise<never>((_, reject) =>
          signal.addEventListener("abort", () => reject(new Error(`no answer within ${checkTimeoutMs} ms`))),
        );
        await Promise.race([check(signal), late]);
        return [name, "ok"];
      } catch (error) {
        return [name, error instanceof Error ? error.message || error.name : String(error)];
      }
    }),
  );
  return { ready: states.every(([, state]) => state === "ok"), checks: Object.fromEntries(states) };
}

/**
 * The internal listener of a part that has no other: `/healthz`, `/readyz`, `/metrics` (decided §2). `stuck` names what has not moved although it
 * should have, a line each: with any, `/healthz` answers 503 and the process is started anew.
 */
export function createMonitoringServer(metrics: Metrics, checks: ReadinessChecks, stuck: () => string[] = () => []): Server {
  return createServer((request, response) => {
    const answer = async (): Promise<void> => {
      if (request.url === "/healthz") {
        const lines = stuck();
        const body = lines.length === 0 ? { status: "ok" } : { status: "stuck", stuck: lines };
        return void response.writeHead(lines.length === 0 ? 200 : 503, { "content-type": "application/json" }).end(JSON.stringify(body));
      }
      if (request.url === "/readyz") {
        const state = await checkReadiness(checks);
        return void response.writeHead(state.ready ? 200 : 503, { "content-type": "application/json" }).end(JSON.stringify(state));
      }
      if (request.url === "/metrics") {
        const text = await metrics.metrics(); // before the head, which could not be taken back
        return void response.writeHead(200, { "content-type": metrics.contentType }).end(text);
      }
      response.writeHead(404).end();
    };
    answer().catch((error: unknown) => response.writeHead(500).end(String(error)));
  });
}
