import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { inject } from "vitest";
import type { Pod } from "../../../platform/kubernetes/objects.ts";
import { until } from "../../harness/wait.ts";
import { chartFolder } from "../chart.ts";
import { images } from "../images.ts";
import { kubectl, kubectlApply } from "../namespace.ts";
import { type ClusterClient, openClusterClient } from "./client.ts";

declare module "vitest" {
  export interface ProvidedContext {
    /** Namespace of the one release that the files of this folder share; the first of them installs it. */
    releaseNamespace: string;
  }
}

/** The name of the release, and of what is in it. */
export const releaseName = "kapstone";
export const domain = "kapstone.test";
/** Pulling images and starting six pods on a loaded machine. */
export const helmMs = 600_000;

/** Kapstone as its chart installs it, in a namespace of its own. */
export interface Release {
  namespace: string;
  client: ClusterClient;
  http: ClusterClient["http"];
  host(name: string): string;
  kubectl(...args: string[]): Promise<string>;
  apply(object: object): Promise<void>;
  /** Upgrades the release with what it is installed with and these arguments. Answers Helm's words. */
  upgrade(...args: string[]): Promise<string>;
  /** Pods of one part, by its `app.kubernetes.io/component` and more labels; those that end are left out. */
  pods(component: string, labels?: string): Promise<Pod[]>;
  /** Rows of a query on the platform's database, as its superuser. */
  query<T>(sql: string): Promise<T[]>;
  execute(sql: string): Promise<void>;
  close(): Promise<void>;
}

/** Values of a quickstart with two replicas where it matters, little requested, and no limit that a test would meet. */
const values = {
  domain,
  topologySpread: { whenUnsatisfiable: "" },
  images: { registry: images.registry, tag: images.tag },
  postgres: { storage: { size: "1Gi" }, resources: { requests: { cpu: "10m", memory: "64Mi" } } },
  s3: { storage: { size: "1Gi" }, resources: { requests: { cpu: "10m", memory: "32Mi" } } },
  api: {
    replicas: 2,
    resources: { requests: { cpu: "10m", memory: "128Mi" } },
    env: {
      KAPSTONE_REQUESTS_PER_MINUTE: "1000000",
      KAPSTONE_CALLS_PER_MINUTE: "1000000",
      KAPSTONE_LOGINS_PER_MINUTE: "1000000",
      KAPSTONE_SIGNUPS_PER_MINUTE: "1000000",
      KAPSTONE_MAILS_PER_HOUR: "1000000",
      KAPSTONE_RUNTIME_IDLE_SECONDS: "86400", // that a kap of one file is idle changes nothing under another
    },
  },
  operator: { replicas: 2, resources: { requests: { cpu: "10m", memory: "64Mi" } } },
  runtime: { poolSize: 2, resources: { requests: { cpu: "10m", memory: "96Mi" }, limits: { cpu: "1" } } },
  mailIngest: { resources: { requests: { cpu: "10m", memory: "64Mi" } } },
};

/** The shared release; installed by whoever asks first. Close it: it goes when the run ends. */
export async function openRelease(): Promise<Release> {
  const namespace = inject("releaseNamespace");
  const installed = await kubectl("get", "namespace", namespace, "--ignore-not-found", "-o", "name");
  if (installed === "") await install(namespace);
  const client = await openClusterClient(namespace, `http://${releaseName}-api`);
  const own = (...args: string[]): Promise<string> => kubectl("-n", namespace, ...args);
  const psql = (...args: string[]): Promise<string> => {
    const script = 'PGPASSWORD="$POSTGRES_PASSWORD" exec psql -h 127.0.0.1 -U postgres -d kapstone -v ON_ERROR_STOP=1 -qAt "$@"';
    return own("exec", `${releaseName}-postgres-0`, "--", "sh", "-c", script, "psql", ...args);
  };
  return {
    namespace,
    client,
    http: client.http,
    host: (name) => `${name}.${domain}`,
    kubectl: own,
    apply: (object) => kubectlApply(JSON.stringify(object), "-n", namespace),
    upgrade: (...args) =>
      runHelm("upgrade", releaseName, chartFolder, "--namespace", namespace, "--reuse-values", "--wait", "--timeout=9m", ...args),
    async pods(component, labels = "") {
      const selector = `app.kubernetes.io/component=${component}${labels === "" ? "" : `,${labels}`}`;
      const { items } = JSON.parse(await own("get", "pods", "-l", selector, "-o", "json")) as { items: Pod[] };
      return items.filter(({ metadata }) => metadata.deletionTimestamp === undefined);
    },
    async query<T>(sql: string) {
      return JSON.parse(await psql("-c", `set search_path = kapstone, public; select coalesce(json_agg(t), '[]') from (${sql}) t`)) as T[];
    },
    async execute(sql) {
      await psql("-c", `set search_path = kapstone, public; ${sql}`);
    },
    close: () => client.close(),
  };
}

/** Installs into a namespace that admits restricted pods only. What Helm said is kept in the release (`helm get notes`). */
async function install(namespace: string): Promise<void> {
  const labels = { "pod-security.kubernetes.io/enforce": "restricted" };
  await kubectlApply(JSON.stringify({ apiVersion: "v1", kind: "Namespace", metadata: { name: namespace, labels } }));
  const running = promisify(execFile)(
    "helm",
    ["install", releaseName, chartFolder, "--namespace", namespace, "--values", "-", "--wait", "--timeout=9m"],
    { timeout: helmMs },
  );
  running.child.stdin?.end(JSON.stringify(values));
  const startedAt = performance.now();
  await running;
  process.stdout.write(`installed in ${Math.round((performance.now() - startedAt) / 1_000)} s\n`);
  // A Service may refuse for a moment after its pods are Ready.
  const client = await openClusterClient(namespace, `http://${releaseName}-api`);
  try {
    const ask = { host: `api.${domain}`, path: "/healthz" };
    await until(async () => (await client.http.call(ask)).status === 200, { timeoutMs: 60_000, what: "the Service of the API" });
  } finally {
    await client.close();
  }
}

/** Runs helm for as long as an installation may take. */
export async function runHelm(...args: string[]): Promise<string> {
  return (await promisify(execFile)("helm", args, { timeout: helmMs, maxBuffer: 16 * 1_048_576 })).stdout;
}

/** Takes a release back as its user would, which must leave nothing that runs or heals, and then its namespace. */
export async function uninstall(namespace: string): Promise<void> {
  await runHelm("uninstall", releaseName, "--namespace", namespace, "--wait", "--timeout=5m");
  // Helm never takes back the pod of `helm test`, and the client is ours.
  const others = ["pod/test-client", `pod/${releaseName}-test`];
  const kinds = "kaps,pods,cronjobs,jobs,leases,deployments,statefulsets,services,networkpolicies,roles";
  await until(
    async () => {
      const left = (await kubectl("-n", namespace, "get", kinds, "-o", "name")).split("\n");
      const ours = left.filter((name) => name !== "" && !others.includes(name));
      if (ours.length > 0) throw new Error(`the uninstalled release left ${ours.join(", ")}`);
      return true;
    },
    { timeoutMs: 120_000, what: "the end of everything the release made" },
  );
  await kubectl("delete", "namespace", namespace, "--wait=false");
}
