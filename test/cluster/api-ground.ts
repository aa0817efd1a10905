import { generateKeyPairSync, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { probePort } from "../../local/free-port.ts";
import { kapLabels } from "../../platform/kap-resource.ts";
import { createTestDatabase, type TestDatabase } from "../harness/database.ts";
import { type HttpClient, openHttpClient } from "../harness/http.ts";
import { until } from "../harness/wait.ts";
import { type GroundProcess, startGroundProcess } from "./ground-process.ts";
import { images } from "./images.ts";
import { createNamespace, type TestNamespace } from "./namespace.ts";

export const release = "t";

/** An API replica. */
export interface ApiReplica extends GroundProcess {
  http: HttpClient;
  host(name: string): string;
  port: number;
  readyz(): Promise<{ status: number; checks: Record<string, string> }>;
}

export interface ApiGround {
  namespace: TestNamespace;
  database: TestDatabase;
  /** Starts a replica; all of one ground have the same keys, database and domain. */
  startApi(env?: Record<string, string>): Promise<ApiReplica>;
  /** Deploys a pool of warm runtime pods and waits until so many are Ready. */
  deployPool(replicas: number): Promise<void>;
  close(): Promise<void>;
}

/**
 * A namespace, a database and any number of API replicas, without operator and Services. The runtime pods are real: this machine must reach pods by
 * their addresses, and they this machine (by `HOST_IP`, else by the address this machine has towards the API server).
 */
export async function openApiGround(): Promise<ApiGround> {
  const [namespace, database] = await Promise.all([createNamespace(), createTestDatabase()]);
  const address = process.env.HOST_IP ?? (await addressTowards(new URL(namespace.kubernetes.server)));
  const dataDir = await mkdtemp(join(tmpdir(), "kapstone-api-"));
  const keys = generateKeyPairSync("ed25519");
  const deploymentKey = randomBytes(32).toString("base64");
  const running: ApiReplica[] = [];
  let publicPort: number | undefined;
  return {
    namespace,
    database,
    async startApi(env = {}) {
      const [port, internalPort] = [await freePort(), await freePort()];
      publicPort ??= port;
      const { process: api } = await startGroundProcess("api/main.ts", "the API listens", {
        KAPSTONE_NAMESPACE: namespace.name,
        KAPSTONE_RELEASE: release,
        KAPSTONE_DATABASE_URL: database.url,
        KAPSTONE_KEYS: deploymentKey,
        KAPSTONE_CLAIM_KEY: keys.privateKey.export({ format: "der", type: "pkcs8" }).toString("base64"),
        KAPSTONE_INGEST_TOKEN: "ingest",
        KAPSTONE_FIRE_TOKEN: "fire",
        KAPSTONE_DATA_DIR: dataDir,
        KAPSTONE_PORT: String(port),
        KAPSTONE_PUBLIC_PORT: String(publicPort),
        KAPSTONE_INTERNAL_HOST: "0.0.0.0",
        KAPSTONE_INTERNAL_PORT: String(internalPort),
        KAPSTONE_INTERNAL_URL: `http://${address}:${internalPort}`,
        KAPSTONE_REQUESTS_PER_MINUTE: "1000000",
        KAPSTONE_CALLS_PER_MINUTE: "1000000",
        KAPSTONE_RESYNC_SECONDS: "2",
        ...env,
      });
      const http = openHttpClient(`http://127.0.0.1:${port}`);
      const replica: ApiReplica = {
        ...api,
        http,
        port,
        host: (name) => `${name}.localhost:${publicPort}`,
        async readyz() {
          const answer = await fetch(`http://127.0.0.1:${internalPort}/readyz`, { signal: AbortSignal.timeout(10_000) });
          return { status: answer.status, checks: ((await answer.json()) as { checks: Record<string, string> }).checks };
        },
        async stop() {
          const exitCode = await api.stop();
          await http.close();
          return exitCode;
        },
      };
      running.push(replica);
      return replica;
    },
    async deployPool(replicas) {
      const claimKey = keys.publicKey.export({ format: "der", type: "spki" }).toString("base64");
      await namespace.apply(poolDeployment(replicas, claimKey));
      await until(() => namespace.kubectl("rollout", "status", "deployment/pool", "--timeout=30s"), {
        timeoutMs: 240_000,
        what: "the pool",
      });
    },
    async close() {
      await Promise.all(running.map((replica) => replica.stop().catch(() => replica.child.kill("SIGKILL"))));
      await namespace.close();
      await database.close();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

function poolDeployment(replicas: number, claimKey: string): object {
  const labels = { [kapLabels.instance]: release, [kapLabels.component]: "runtime", [kapLabels.runtime]: "warm" };
  return {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name: "pool" },
    spec: {
      replicas,
      selector: { matchLabels: labels },
      template: {
        metadata: { labels },
        spec: {
          automountServiceAccountToken: false,
          enableServiceLinks: false,
          terminationGracePeriodSeconds: 5,
          securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: "RuntimeDefault" } },
          containers: [
            {
              name: "runtime",
              image: images.of("runtime"),
              env: [{ name: "KAPSTONE_CLAIM_PUBLIC_KEY", value: claimKey }],
              readinessProbe: { httpGet: { path: "/readyz", port: 9001 }, periodSeconds: 1 },
              securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } },
              volumeMounts: [{ name: "scratch", mountPath: "/tmp" }],
            },
          ],
          volumes: [{ name: "scratch", emptyDir: {} }],
        },
      },
    },
  };
}

async function freePort(): Promise<number> {
  const { port } = await probePort("127.0.0.1", 0);
  if (port === null) throw new Error("no free port");
  return port;
}

/** The address of this machine on the way to a server. */
async function addressTowards(server: URL): Promise<string> {
  const socket = connect({ host: server.hostname, port: Number(server.port || 443) });
  await once(socket, "connect");
  const address = socket.localAddress ?? "127.0.0.1";
  socket.destroy();
  return address;
}
