import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { readClaimKey } from "#platform/claim-keys.ts";
import { ConfigurationError } from "#platform/config.ts";
import { openEventLog } from "#platform/events.ts";
import { type JobHandlers, startJobWorkers } from "#platform/jobs.ts";
import { createKeyring } from "#platform/keyring.ts";
import type { Logger } from "#platform/log.ts";
import { createMetrics, type ReadinessChecks } from "#platform/metrics.ts";
import { fileSystemObjects } from "#platform/objects/files.ts";
import { s3Objects } from "#platform/objects/s3.ts";
import type { ObjectStore } from "#platform/objects/store.ts";
import { connectPostgres } from "#platform/postgres.ts";
import { createApp, createServices, internalRoutes, services } from "./app.ts";
import type { ApiConfig } from "./config.ts";
import type { Deps } from "./deps.ts";
import type { RuntimePool } from "./gateway/pool.ts";
import { closeDataPools } from "./gateway/runtime-client.ts";
import { startRuntimeSweep } from "./gateway/sweep.ts";
import { createAddresses } from "./http/hosts.ts";
import { createJwt } from "./http/jwt.ts";
import { createRateLimiter } from "./http/rate-limit.ts";
import { readinessChecks } from "./internal/health.ts";
import { createInternalServer } from "./internal/server.ts";
import { outboxMail, relayMail } from "./mail.ts";
import { ensureAuthSweep } from "./services/auth/sweep.ts";
import { closeKapConnections } from "./services/kap-data/kap-connection.ts";
import { createBuilder } from "./services/kaps/build/builder.ts";
import { startReseal } from "./services/secrets/service.ts";
import { drainRuns } from "./services/triggers/carry-out.ts";
import { closeMailReader } from "./services/triggers/mail/mail-run.ts";

/** What differs between a laptop and a cluster: who keeps the runtimes, and who realises the desired state of kaps. */
export interface ApiPorts {
  pool: RuntimePool;
  kapChanged: Deps["kapChanged"];
  /** Durable work that comes with them. */
  jobs?: (deps: Deps) => JobHandlers;
  /** What readiness asks of them. */
  checks?: ReadinessChecks;
}

/** A running API: where it listens, what its parts share, and the way to stop it. */
export interface Api {
  deps: Deps;
  port: number;
  internalPort: number;
  /** Readiness is refused from now on, and every answer ends its connection, so that callers go to others; calls that still come are served. */
  leave(): void;
  /** Takes no more requests, lets requests, jobs and runs under way finish (at most `drainMs` each). Runtimes can still report. */
  drain(drainMs: number): Promise<void>;
  /** Closes what is left: the internal listener, the pools. After the runtimes have reported. */
  close(): Promise<void>;
}

/** Starts the API: both listeners, the job workers and the sweeps. The schema must be there already. */
export async function startApi(given: ApiConfig, ports: ApiPorts, log: Logger): Promise<Api> {
  const config = { ...given };
  readClaimKey(config.claimKey); // refused now, not at the first claim
  const postgres = connectPostgres({ url: config.databaseUrl, applicationName: "kapstone-api", max: config.databaseConnections, log });
  const addresses = createAddresses({ domain: config.domain, scheme: config.scheme, port: config.publicPort ?? config.port });
  const keyring = createKeyring(config.keys.map((key) => Buffer.from(key, "base64")));
  const mailFrom = config.mailFrom ?? `Kapstone <no-reply@${addresses.mailDomain}>`;
  let isLeaving = false;
  const builder = createBuilder({ cacheDir: config.registryCacheDir ?? join(config.dataDir, "packages"), log });
  const deps: Deps = {
    config,
    log,
    metrics: createMetrics("api"),
    postgres,
    db: postgres.knex,
    objects: openObjects(config),
    events: openEventLog(postgres, log),
    keyring,
    addresses,
    jwt: createJwt({ postgres, keyring, issuer: addresses.api }),
    limiter: createRateLimiter(postgres.hot),
    mail: config.smtpUrl ? relayMail(config.smtpUrl, mailFrom) : outboxMail(join(config.dataDir, "outbox"), mailFrom),
    builder,
    pool: ports.pool,
    kapChanged: ports.kapChanged,
    checks: {
      ...ports.checks,
      leaving: async () => {
        if (isLeaving) throw new Error("this process is about to end");
      },
    },
  };
  const serviceApp = createServices(deps);
  const internal = createInternalServer(deps, { routes: internalRoutes, checks: readinessChecks(deps), services: serviceApp });
  const publicServer = createServer({ keepAliveTimeout: 65_000, requestTimeout: 0, noDelay: true }, createApp(deps, serviceApp));
  const internalPort = await listen(internal, config.internalHost, config.internalPort);
  config.internalUrl ??= `http://${config.internalHost}:${internalPort}`;
  const handlers = Object.assign({}, ...services.map((service) => service.jobs?.(deps) ?? {}), ports.jobs?.(deps));
  const jobs = await startJobWorkers(postgres, handlers, { concurrency: config.jobConcurrency, log });
  await startReseal(deps);
  await ensureAuthSweep(deps.db);
  const sweep = startRuntimeSweep(deps);
  const port = await listen(publicServer, config.host, config.port);
  const leave = (): void => {
    if (isLeaving) return;
    isLeaving = true;
    endConnections(publicServer);
  };
  return {
    deps,
    port,
    internalPort,
    leave,
    async drain(drainMs) {
      leave();
      sweep.stop();
      await closeServer(publicServer, drainMs);
      await jobs.close();
      await drainRuns(deps, drainMs);
    },
    async close() {
      endConnections(internal);
      await closeServer(internal, 1_000);
      await builder.close();
      await closeMailReader(deps);
      await closeDataPools();
      await closeKapConnections();
      await deps.events.close();
      await postgres.close();
    },
  };
}

function openObjects(config: ApiConfig): ObjectStore {
  if (config.objects === "files") return fileSystemObjects(join(config.dataDir, "objects"));
  const { s3Endpoint: endpoint, s3AccessKeyId: accessKeyId, s3SecretAccessKey: secretAccessKey } = config;
  if (!endpoint || !accessKeyId || !secretAccessKey) {
    throw new ConfigurationError(
      "KAPSTONE_OBJECTS is s3, which needs KAPSTONE_S3_ENDPOINT, KAPSTONE_S3_ACCESS_KEY_ID and KAPSTONE_S3_SECRET_ACCESS_KEY",
    );
  }
  return s3Objects({
    endpoint,
    region: config.s3Region,
    accessKeyId,
    secretAccessKey,
    forcePathStyle: true,
    bucketPrefix: config.s3BucketPrefix,
  });
}

function listen(server: Server, host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      server.off("error", reject);
      resolve((server.address() as AddressInfo).port);
    });
  });
}

/** Connections that are kept alive end with their next answer. */
function endConnections(server: Server): void {
  server.prependListener("request", (_request, response) => response.setHeader("connection", "close"));
}

function closeServer(server: Server, drainMs: number): Promise<void> {
  return new Promise((resolve) => {
    const cut = setTimeout(() => server.closeAllConnections(), drainMs);
    server.close(() => {
      clearTimeout(cut);
      resolve();
    });
    server.closeIdleConnections();
  });
}
