import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { kapResource } from "../../platform/kap-resource.ts";
import { connectKubernetes, type Kubernetes } from "../../platform/kubernetes/client.ts";

const execute = promisify(execFile);
const root = new URL("../../", import.meta.url).pathname;

/** Runs `kubectl` with the cluster of KUBECONFIG and answers what it printed. */
export async function kubectl(...args: string[]): Promise<string> {
  const { stdout } = await execute("kubectl", ["--request-timeout=20s", ...args], { timeout: 90_000, maxBuffer: 64 * 1_048_576 });
  return stdout;
}

/** Sends an object's text to `kubectl apply`, server-side. */
export async function kubectlApply(text: string, ...args: string[]): Promise<void> {
  const running = execute("kubectl", ["apply", "--server-side", "--force-conflicts", "--field-manager=tests", ...args, "-f", "-"], {
    timeout: 90_000,
  });
  running.child.stdin?.end(text);
  await running;
}

/** A namespace of one test file. */
export interface TestNamespace {
  name: string;
  kubernetes: Kubernetes;
  kubectl(...args: string[]): Promise<string>;
  apply(object: object): Promise<void>;
  close(): Promise<void>;
}

/** Makes a namespace that enforces the restricted Pod Security Standard, with the chart's `Kap` definition in the cluster. */
export async function createNamespace(): Promise<TestNamespace> {
  const name = `k-test-${randomBytes(4).toString("hex")}`;
  await installKapDefinition();
  const labels = { "pod-security.kubernetes.io/enforce": "restricted" };
  await kubectlApply(JSON.stringify({ apiVersion: "v1", kind: "Namespace", metadata: { name, labels } }));
  const kubernetes = await connectKubernetes({ namespace: name });
  return {
    name,
    kubernetes,
    kubectl: (...args) => kubectl("-n", name, ...args),
    apply: (object) => kubectlApply(JSON.stringify(object), "-n", name),
    async close() {
      // Nobody is left who would take the finalizers off.
      const { items } = await kubernetes.listPage(kapResource, { limit: 1_000 });
      while (items.length > 0) {
        await Promise.all(
          items.splice(0, 10).map(async ({ metadata: { name: kap } }) => {
            await kubernetes.mergePatch(kapResource, kap, { metadata: { finalizers: null } });
            await kubernetes.delete(kapResource, kap);
          }),
        );
      }
      await kubernetes.close();
      await kubectl("delete", "namespace", name, "--wait=false");
    },
  };
}

/** The definition as the chart has it, without what is Helm's. */
async function installKapDefinition(): Promise<void> {
  const template = await readFile(`${root}charts/kapstone/templates/crd.yaml`, "utf8");
  await kubectlApply(template.replace(/\{\{-?[\s\S]*?\}\}\n?/g, ""));
  await kubectl("wait", "--for=condition=Established", "crd/kaps.kapstone.dev", "--timeout=30s");
}
