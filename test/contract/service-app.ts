import { generateKeyPairSync } from "node:crypto";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readApiConfig } from "../../api/config.ts";
import type { Deps } from "../../api/deps.ts";
import { createAddresses } from "../../api/http/hosts.ts";
import { createJwt } from "../../api/http/jwt.ts";
import { createRateLimiter } from "../../api/http/rate-limit.ts";
import type { Service } from "../../api/http/route.ts";
import { createServiceApp } from "../../api/http/serve.ts";
import { outboxMail } from "../../api/mail.ts";
import { openEventLog } from "../../platform/events.ts";
import { type JobWorkers, startJobWorkers } from "../../platform/jobs.ts";
import { createKeyring } from "../../platform/keyring.ts";
import { createLogger } from "../../platform/log.ts";
import { createMetrics } from "../../platform/metrics.ts";
import { fileSystemObjects } from "../../platform/objects/files.ts";
import { connectPostgres, type Postgres } from "../../platform/postgres.ts";
import { type Answer, type Call, openHttpClient } from "../harness/http.ts";

/** A mail as it was put into the outbox. */
export interface SentMail {
  to: string;
  subject: string;
  text: string;
}

/** Services over a real database and real HTTP, without runtimes: for what never runs a kap. */
export interface ServedServices {
  deps: Deps;
  port: number;
  /** A call to the api host unless `host` says another. */
  call(request: Omit<Call, "host"> & { host?: string }): Promise<Answer>;
  mails(): Promise<SentMail[]>;
  close(): Promise<void>;
}

/** What a test that starts no runtime must not touch. */
function absent<T extends object>(what: string): T {
  return new Proxy({} as T, {
    get: (_, property) => {
      throw new Error(`this test has no ${what} (asked for ${String(property)})`);
    },
  });
}

const claimKey = generateKeyPairSync("ed25519").privateKey.export({ format: "der", type: "pkcs8" }).toString("base64");

/** Serves services on a free port over a database. Limits are out of the way unless `env` sets them. */
export async function serveServices(
  services: readonly Service[],
  place: { databaseUrl: string; deploymentKey: string; env?: Record<string, string> | undefined },
): Promise<ServedServices> {
  const folder = await mkdtemp(join(tmpdir(), "kapstone-services-"));
  const config = readApiConfig({
    KAPSTONE_DATABASE_URL: place.databaseUrl,
    KAPSTONE_KEYS: place.deploymentKey,
    KAPSTONE_CLAIM_KEY: claimKey,
    KAPSTONE_INGEST_TOKEN: "ingest",
    KAPSTONE_FIRE_TOKEN: "fire",
    KAPSTONE_DATA_DIR: folder,
    KAPSTONE_LOGINS_PER_MINUTE: "1000000",
    KAPSTONE_SIGNUPS_PER_MINUTE: "1000000",
    KAPSTONE_REQUESTS_PER_MINUTE: "100000000",
    ...place.env,
  });
  const log = createLogger("test", { level: "error" });
  const postgres: Postgres = connectPostgres({ url: place.databaseUrl, applicationName: "kapstone-test-api", max: 6, log });
  const addresses = createAddresses({ domain: config.domain, scheme: config.scheme, port: config.port });
  const keyring = createKeyring(config.keys.map((key) => Buffer.from(key, "base64")));
  const outbox = join(folder, "outbox");
  const deps: Deps = {
    config,
    log,
    metrics: createMetrics("test"),
    postgres,
    db: postgres.knex,
    objects: fileSystemObjects(join(folder, "objects")),
    events: openEventLog(postgres, log),
    keyring,
    addresses,
    jwt: createJwt({ postgres, keyring, issuer: addresses.api }),
    limiter: createRateLimiter(postgres.hot),
    mail: outboxMail(outbox, "Kapstone <no-reply@mail.localhost>"),
    builder: absent("builder"),
    pool: absent("runtime pool"),
    kapChanged: async () => undefined,
    checks: {},
  };
  const jobs: JobWorkers = await startJobWorkers(postgres, Object.assign({}, ...services.map((service) => service.jobs?.(deps) ?? {})), {
    concurrency: 2,
    log,
  });
  const server = createServer(createServiceApp(deps, services));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const client = openHttpClient(`http://127.0.0.1:${port}`);
  return {
    deps,
    port,
    call: (request) => client.call({ host: `api.localhost:${config.port}`, ...request }),
    async mails() {
      const names = await readdir(outbox).catch(() => []);
      const texts = await Promise.all(
        names
          .filter((name) => name.endsWith(".eml"))
          .sort()
          .map((name) => readFile(join(outbox, name), "utf8")),
      );
      return texts.map((text) => {
        const [head = "", ...body] = text.split("\r\n\r\n");
        const header = (name: string): string => new RegExp(`^${name}: (.*)$`, "im").exec(head)?.[1] ?? "";
        const isQuoted = /quoted-printable/i.test(head);
        const plain = body.join("\r\n\r\n");
        return { to: header("To"), subject: header("Subject"), text: isQuoted ? plain.replace(/=\r\n/g, "").replace(/=3D/g, "=") : plain };
      });
    },
    async close() {
      await client.close();
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
      await jobs.close();
      await deps.events.close();
      await postgres.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
