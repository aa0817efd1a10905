import { onTestFinished, test } from "vitest";
import { startJobWorkers } from "#platform/jobs.ts";
import { createLogger } from "#platform/log.ts";
import { createMetrics } from "#platform/metrics.ts";
import { connectPostgres } from "#platform/postgres.ts";
import { createTestDatabase } from "../../test/harness/database.ts";
import { kubernetesAnswering } from "../../test/harness/kubernetes-api.ts";
import { networkTo } from "../../test/harness/network.ts";
import { until } from "../../test/harness/wait.ts";
import type { Deps } from "../deps.ts";
import { createAddresses } from "../http/hosts.ts";
import { ensureResync, projectionJobs } from "./kap-projection.ts";

const patience = { timeoutMs: 60_000 };

/** An API server without a single kap, which counts how often it is asked. */
async function emptyCluster() {
  const cluster = { rounds: 0, isWell: true };
  const kubernetes = await kubernetesAnswering((_request, response) => {
    cluster.rounds += 1;
    response.writeHead(cluster.isWell ? 200 : 500, { "content-type": "application/json" });
    response.end(JSON.stringify({ metadata: { resourceVersion: "1" }, items: [] }));
  });
  return { cluster, kubernetes };
}

test("kaps are compared with their resources for ever: through a round that cannot be put into the queue, and through ones that fail", async () => {
  const database = await createTestDatabase();
  onTestFinished(() => database.close());
  const network = await networkTo(database.url);
  onTestFinished(() => network.close());
  const { cluster, kubernetes } = await emptyCluster();
  const log = createLogger("test", { level: "silent" });
  const postgres = connectPostgres({ url: network.url, applicationName: "projection-test", max: 1, log, silenceMs: 3_000 });
  onTestFinished(() => postgres.close());
  const { knex } = database.postgres;
  const addresses = createAddresses({ domain: "localhost", scheme: "http", port: 8080 });
  const deps = { db: postgres.knex, log, metrics: createMetrics("test"), addresses } as Deps;
  const handlers = projectionJobs(deps, { kubernetes, release: "t", resyncSeconds: 1 });
  const workers = await startJobWorkers(database.postgres, handlers, { concurrency: 1, log });
  onTestFinished(() => workers.close());

  await ensureResync(knex);
  await until(() => cluster.rounds >= 2, patience);
  await until(() => {
    network.swallow();
    return knex("kapstone_jobs._private_jobs").whereNotNull("last_error").where({ key: "kaps.resync" }).first();
  }, patience);
  const stopped = cluster.rounds;
  await until(() => cluster.rounds >= stopped + 2, patience);

  cluster.isWell = false;
  const well = cluster.rounds;
  await until(() => cluster.rounds >= well + 3, patience);
  cluster.isWell = true;
  // One waits; those that failed are done with.
  await until(async () => (await knex("kapstone_jobs._private_jobs").count().first())?.count === 1, patience);
}, 300_000);
