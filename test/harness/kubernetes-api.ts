import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { connectKubernetes, type Kubernetes } from "#platform/kubernetes/client.ts";

/** A client of an API server on loopback that answers as `answer` does, in the namespace `there`; both end with the test that asks for them. */
export async function kubernetesAnswering(answer: RequestListener): Promise<Kubernetes> {
  const server = createServer(answer);
  await once(server.listen(0, "127.0.0.1"), "listening");
  const folder = await mkdtemp(join(tmpdir(), "kapstone-kubernetes-"));
  const file = join(folder, "config");
  const address = { server: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, "insecure-skip-tls-verify": true };
  const config = {
    clusters: [{ name: "it", cluster: address }],
    users: [{ name: "it", user: {} }],
    contexts: [{ name: "it", context: { cluster: "it", user: "it" } }],
    "current-context": "it",
  };
  await writeFile(file, JSON.stringify(config));
  const kubernetes = await connectKubernetes({ namespace: "there", env: { KUBECONFIG: file } });
  onTestFinished(async () => {
    await kubernetes.close();
    server.close();
    server.closeAllConnections();
    await rm(folder, { recursive: true });
  });
  return kubernetes;
}
