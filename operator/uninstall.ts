import { setTimeout as delay } from "node:timers/promises";
import { readSettings } from "#platform/config.ts";
import { kapLabels, kapResource } from "#platform/kap-resource.ts";
import { type ApiResource, connectKubernetes, isNotFound, type Kubernetes } from "#platform/kubernetes/client.ts";
import type { KubernetesObject, Pod } from "#platform/kubernetes/objects.ts";
import { createLogger, type Logger } from "#platform/log.ts";
import { operatorSettings } from "./config.ts";
import { cronJobLabels, cronJobResource } from "./desired/cron-jobs.ts";
import { leaseResource } from "./lease.ts";

/**
 * What the chart runs before it is uninstalled: takes back what the platform made in the cluster by itself, so that nothing is left that waits for
 * an operator that is gone. First those who would heal it are ended. Data are not touched: PostgreSQL has them, and a later install goes on with them.
 */
const settings = { namespace: operatorSettings.namespace, release: operatorSettings.release, logLevel: operatorSettings.logLevel };

const deploymentResource: ApiResource = { apiVersion: "apps/v1", kind: "Deployment", plural: "deployments" };
const podResource: ApiResource<Pod> = { apiVersion: "v1", kind: "Pod", plural: "pods" };
/** Longer than the grace period of either. */
const endingMs = 90_000;

async function main(): Promise<void> {
  const { namespace, release, logLevel } = readSettings(settings, process.env);
  const log = createLogger("uninstall", { level: logLevel });
  const kubernetes = await connectKubernetes({ namespace });
  try {
    await endHealers(kubernetes, release, log);
    const cronJobs = await each(kubernetes, cronJobResource, selector(cronJobLabels(release)), ({ metadata }) =>
      kubernetes.delete(cronJobResource, metadata.name, { propagationPolicy: "Background" }),
    );
    const kaps = await each(kubernetes, kapResource, selector({ [kapLabels.instance]: release }), async ({ metadata }) => {
      await kubernetes.mergePatch(kapResource, metadata.name, { metadata: { finalizers: null } }).catch(unlessGone);
      await kubernetes.delete(kapResource, metadata.name);
    });
    const claimed = { [kapLabels.instance]: release, [kapLabels.component]: "runtime", [kapLabels.runtime]: "claimed" };
    const pods = await each(kubernetes, podResource, selector(claimed), ({ metadata }) => kubernetes.delete(podResource, metadata.name));
    // What `helm test` left is a hook's: Helm does not delete it either.
    const tests = { [kapLabels.instance]: release, [kapLabels.component]: "test" };
    await each(kubernetes, podResource, selector(tests), ({ metadata }) => kubernetes.delete(podResource, metadata.name));
    await kubernetes.delete(leaseResource, `${release}-operator`);
    log.info({ kaps, pods, cron_jobs: cronJobs }, "what the platform made in the cluster is taken back; its data stay");
  } finally {
    await kubernetes.close();
  }
}

/** Ends the API and the operator and waits for their pods, for a bounded time: what is left of them then can only put back what the next install finds. */
async function endHealers(kubernetes: Kubernetes, release: string, log: Logger): Promise<void> {
  const parts = ["api", "operator"];
  for (const part of parts)
    await kubernetes.mergePatch(deploymentResource, `${release}-${part}`, { spec: { replicas: 0 } }).catch(unlessGone);
  const labels = `${kapLabels.instance}=${release},${kapLabels.component} in (${parts.join(",")})`;
  const deadline = performance.now() + endingMs;
  while ((await kubernetes.listPage(podResource, { labelSelector: labels, limit: 1 })).items.length > 0) {
    if (performance.now() > deadline) return log.warn("the API or the operator has not ended yet: going on without");
    await delay(500);
  }
}

/** Does something with every object of a kind, page by page; returns how many there were. None where the kind itself is not there any more. */
async function each<T extends KubernetesObject>(
  kubernetes: Kubernetes,
  resource: ApiResource<T>,
  labelSelector: string,
  work: (object: T) => Promise<unknown>,
): Promise<number> {
  let count = 0;
  let next: string | undefined;
  do {
    const page = await kubernetes.listPage(resource, { labelSelector, limit: 200, continue: next }).catch((error: unknown) => {
      if (isNotFound(error)) return { items: [] as T[], continue: undefined };
      throw error;
    });
    for (const object of page.items) await work(object);
    count += page.items.length;
    next = page.continue;
  } while (next !== undefined);
  return count;
}

function selector(labels: Record<string, string>): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}=${value}`)
    .join(",");
}

function unlessGone(error: unknown): void {
  if (!isNotFound(error)) throw error;
}

process.on("SIGTERM", () => process.exit(143)); // as process 1 nothing else ends it; the next try begins anew
try {
  await main();
} catch (error) {
  process.stderr.write(`The cluster was not cleaned up: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
}
