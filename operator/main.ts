import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { hostname } from "node:os";
import { ConfigurationError, printableSettings } from "#platform/config.ts";
import { platformDatabase } from "#platform/kap-database.ts";
import { createKeyring } from "#platform/keyring.ts";
import { connectKubernetes } from "#platform/kubernetes/client.ts";
import { createLogger } from "#platform/log.ts";
import { createMetrics, createMonitoringServer } from "#platform/metrics.ts";
import { s3Objects } from "#platform/objects/s3.ts";
import { connectPostgres } from "#platform/postgres.ts";
import { createBuckets } from "./buckets.ts";
import { type OperatorSettings, operatorSettings, readOperatorSettings } from "./config.ts";
import { createKapDatabases } from "./kap-databases.ts";
import { createOperatorMetrics } from "./metrics.ts";
import { type Operator, startOperator } from "./operator.ts";

/** The operator's process. SIGTERM and SIGINT let the work under way end and hand the lease over. */
async function main(): Promise<void> {
  const settings = readOperatorSettings(process.env);
  const log = createLogger("operator", { level: settings.logLevel });
  log.info({ settings: printableSettings(operatorSettings, settings) }, "configuration");
  const kubernetes = await connectKubernetes({ namespace: settings.namespace });
  const postgres = connectPostgres({ url: settings.databaseUrl, applicationName: "kapstone-operator", max: 4, log });
  const keyring = createKeyring(settings.keys.map((key) => Buffer.from(key, "base64")));
  const objects = openObjects(settings);
  const registry = createMetrics("operator");
  let operator: Operator | undefined;
  const metrics = createOperatorMetrics(registry, () => operator?.controller()?.state());
  operator = startOperator({
    kubernetes,
    db: postgres.knex,
    databaseUrl: settings.databaseUrl,
    databases: createKapDatabases(postgres.knex, { keyring, databaseName: platformDatabase(settings.databaseUrl) }),
    buckets: createBuckets(objects),
    metrics,
    firePod: {
      release: settings.release,
      image: settings.fireImage,
      url: settings.fireUrl,
      secretName: settings.fireSecret ?? `${settings.release}-fire`,
      overrides: settings.firePod ?? {},
    },
    // A process that is started anew in the same pod is another: the old one may still have a write on its way.
    identity: `${settings.identity ?? hostname()}_${randomBytes(4).toString("hex")}`,
    workers: settings.workers,
    log,
    leaseName: `${settings.release}-operator`,
    leaseSeconds: settings.leaseSeconds,
  });
  const running = operator;
  const checks = { kubernetes: running.checkKubernetes, database: () => postgres.knex.raw("select 1") };
  const monitoring = createMonitoringServer(registry, checks, running.stuck);
  await once(monitoring.listen(settings.monitoringPort, settings.monitoringHost), "listening");
  log.info({ monitoring: monitoring.address(), server: kubernetes.server, namespace: kubernetes.namespace }, "the operator is up");

  const [signal] = await Promise.race([once(process, "SIGTERM"), once(process, "SIGINT")]);
  log.info({ signal }, "stopping: work under way may end");
  await running.stop();
  monitoring.close();
  monitoring.closeAllConnections();
  await kubernetes.close();
  await postgres.close();
  objects?.close();
  log.info("stopped");
}

function openObjects(settings: OperatorSettings): ReturnType<typeof s3Objects> | null {
  if (settings.objects === "files") return null;
  const { s3Endpoint: endpoint, s3AccessKeyId: accessKeyId, s3SecretAccessKey: secretAccessKey } = settings;
  if (!endpoint || !accessKeyId || !secretAccessKey) {
    throw new ConfigurationError(
      "KAPSTONE_OBJECTS is s3, which needs KAPSTONE_S3_ENDPOINT, KAPSTONE_S3_ACCESS_KEY_ID and KAPSTONE_S3_SECRET_ACCESS_KEY",
    );
  }
  const { s3Region: region, s3BucketPrefix: bucketPrefix } = settings;
  return s3Objects({ endpoint, region, accessKeyId, secretAccessKey, forcePathStyle: true, bucketPrefix });
}

try {
  await main();
} catch (error) {
  process.stderr.write(`The operator did not start: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
}
