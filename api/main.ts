import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { printableSettings } from "#platform/config.ts";
import { connectKubernetes } from "#platform/kubernetes/client.ts";
import { createLogger } from "#platform/log.ts";
import { ensureResync, kapChanged, projectionJobs } from "./cluster/kap-projection.ts";
import { createPodPool } from "./cluster/pod-pool.ts";
import { createRuntimeNotices } from "./cluster/runtime-notices.ts";
import { clusterSettings, readClusterSettings } from "./cluster/settings.ts";
import { apiSettings, readApiConfig } from "./config.ts";
import type { Deps } from "./deps.ts";
import { startApi } from "./start.ts";

/**
 * After SIGTERM calls are still taken for this long, each answer ending its connection: by then proxies have let go of theirs. That no new ones come is
 * seen to before the signal, by the pod's preStop pause: endpoints forget a pod meanwhile.
 */
const lingerMs = 2_000;
/** In steps, so that only time in which this process ran counts: what came while the machine stood still is answered before connections are closed. */
const lingerStepMs = 100;

/** The API as a process of its own in a cluster: pods are its runtimes, `Kap` resources what it tells of kaps. */
const asked = Promise.race([once(process, "SIGTERM"), once(process, "SIGINT")]);
const started = await start().catch((error: unknown) => {
  process.stderr.write(`The API did not start: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
});
const [signal] = await asked;
await started.stop(String(signal));
process.exit(0);

async function start(): Promise<{ stop(signal: string): Promise<void> }> {
  const config = readApiConfig(process.env);
  const cluster = readClusterSettings(process.env);
  const log = createLogger("api", { level: config.logLevel });
  log.info({ settings: { ...printableSettings(apiSettings, config), ...printableSettings(clusterSettings, cluster) } }, "configuration");
  const { release, resyncSeconds } = cluster;
  const ending = new AbortController();
  const kubernetes = await connectKubernetes({ namespace: cluster.namespace });
  const notices = createRuntimeNotices(config.databaseUrl, log);
  const pool = createPodPool({ kubernetes, release, tell: notices.tell, signal: ending.signal, log });
  const jobs = (deps: Deps) => projectionJobs(deps, { kubernetes, release, resyncSeconds });
  const api = await startApi(config, { pool, kapChanged, jobs, checks: { kubernetes: pool.check } }, log);
  await ensureResync(api.deps.db);
  log.info({ port: api.port, internal_port: api.internalPort, boot_ms: Math.round(performance.now()) }, "the API listens");
  return {
    async stop(signal) {
      log.info({ signal }, "leaving: what is under way may end");
      api.leave();
      for (let rest = lingerMs; rest > 0; rest -= lingerStepMs) await delay(lingerStepMs);
      await api.drain(cluster.drainSeconds * 1_000);
      await api.close();
      ending.abort();
      await pool.ended;
      await Promise.all([notices.close(), kubernetes.close()]);
      log.info("ended");
    },
  };
}
