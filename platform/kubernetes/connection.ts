import { readFile } from "node:fs/promises";
import { delimiter } from "node:path";
import { Agent, type Dispatcher } from "undici";

/** Where the API server is and how to be let in. */
export interface KubernetesConnection {
  /** Origin and path prefix, without a slash at the end. */
  server: string;
  /** Namespace of the credentials, where they name one. */
  namespace: string | undefined;
  /** What the next request is sent with: credentials may have been renewed since the last. */
  authorize(): Promise<{ headers: Record<string, string>; dispatcher: Dispatcher }>;
  close(): Promise<void>;
}

const accountFolder = "/var/run/secrets/kubernetes.io/serviceaccount";
/** The kubelet renews a pod's token long before it ends; client-go reads it as often. */
const tokenMs = 60_000;
/** One connection per request under way: HTTP/2 would put watches and writes on one, which a fault ends for all. */
const agentOptions: Agent.Options = { allowH2: false, connections: 32, headersTimeout: 0, bodyTimeout: 0, connectTimeout: 5_000 };

/**
 * The connection of this process: that of the pod it runs in, else the current context of `KUBECONFIG` or `~/.kube/config`. Throws when there
 * is neither.
 */
export function openConnection(env: Record<string, string | undefined>): Promise<KubernetesConnection> {
  const host = env.KUBERNETES_SERVICE_HOST;
  return host !== undefined && host !== "" && !env.KUBECONFIG
    ? inPod(host, env.KUBERNETES_SERVICE_PORT ?? "443")
    : fromKubeconfig(env.KUBECONFIG);
}

async function inPod(host: string, port: string): Promise<KubernetesConnection> {
  const ca = await readFile(`${accountFolder}/ca.crt`);
  const namespace = (await readFile(`${accountFolder}/namespace`, "utf8")).trim();
  const dispatcher = new Agent({ ...agentOptions, connect: { ca } });
  let token = "";
  let readAt = Number.NEGATIVE_INFINITY;
  return {
    server: `https://${host.includes(":") ? `[${host}]` : host}:${port}`,
    namespace,
    async authorize() {
      if (performance.now() - readAt > tokenMs) {
        token = (await readFile(`${accountFolder}/token`, "utf8")).trim();
        readAt = performance.now();
      }
      return { headers: { authorization: `Bearer ${token}` }, dispatcher };
    },
    close: () => dispatcher.destroy(),
  };
}

/**
 * For work from outside the cluster. The library knows every form of kubeconfig and login plugin; it is loaded here only, for its 80 MB and half
 * a second would be paid by every process of the cluster for reading three files. Its own dispatcher is made anew for each request, so ours is kept.
 */
async function fromKubeconfig(files: string | undefined): Promise<KubernetesConnection> {
  const { KubeConfig } = await import("@kubernetes/client-node/dist/config.js");
  const config = new KubeConfig();
  const [first, ...others] = (files ?? "").split(delimiter).filter((file) => file !== "");
  if (first === undefined) config.loadFromDefault();
  else config.loadFromFile(first);
  for (const file of others) {
    const more = new KubeConfig();
    more.loadFromFile(file);
    config.mergeConfig(more);
  }
  const server = config.getCurrentCluster()?.server;
  if (server === undefined) throw new Error("there is no Kubernetes to talk to: run in a pod with a service account, or set KUBECONFIG");
  let material = "";
  let dispatcher: Agent | undefined;
  return {
    server: server.replace(/\/$/, ""),
    namespace: config.getContextObject(config.getCurrentContext())?.namespace,
    async authorize() {
      const options: Parameters<typeof config.applyToHTTPSOptions>[0] = {};
      await config.applyToHTTPSOptions(options);
      const { ca, cert, key, passphrase, servername, rejectUnauthorized } = options;
      const connect = { ca, cert, key, passphrase, servername, rejectUnauthorized };
      const set = Object.fromEntries(Object.entries(connect).filter(([, value]) => value !== undefined));
      const next = JSON.stringify(set);
      if (!dispatcher || next !== material) {
        dispatcher?.close().catch(() => undefined); // requests under way end on it
        dispatcher = new Agent({ ...agentOptions, connect: set });
        material = next;
      }
      const headers = Object.fromEntries(Object.entries(options.headers ?? {}).map(([name, value]) => [name.toLowerCase(), String(value)]));
      if (options.auth) headers.authorization = `Basic ${Buffer.from(options.auth).toString("base64")}`;
      return { headers, dispatcher };
    },
    async close() {
      await dispatcher?.destroy();
    },
  };
}
