import type { IncomingMessage } from "node:http";
import { BlockList, isIP, isIPv6 } from "node:net";

/** Where a request is addressed (decided §1). */
export type Host =
  | { zone: "api" }
  | { zone: "share" }
  | { zone: "org"; slug: string }
  | { zone: "kap"; slug: string }
  | { zone: "runtime" } // the bare runtime host, where only secret addresses are served
  | { zone: "unknown" };

/** Slugs no organisation and no kap may take (decided §1), and `import`, which is a route of its own beside the kaps. */
export const reservedSlugs: ReadonlySet<string> = new Set(["api", "share", "kaps", "mail", "www", "admin", "import"]);

/** Lowercase letters, digits and `-`; a letter first, a letter or digit last; 3 to 63 characters. */
export const slugPattern = /^[a-z][a-z0-9-]{1,61}[a-z0-9]$/;

/** The outward addresses of a deployment, made once from its domain, scheme and public port. */
export interface Addresses {
  domain: string;
  scheme: "http" | "https";
  /** `:8080`, or empty where the port is the scheme's own. */
  portSuffix: string;
  api: string;
  share: string;
  runtime: string;
  mailDomain: string;
  org(slug: string): string;
  kap(slug: string): string;
  read(hostHeader: string | undefined): Host;
}

const directHosts: ReadonlySet<string> = new Set(["127.0.0.1", "[::1]", "localhost"]);

/** The addresses of a deployment. `port` is the one browsers use, which a proxy in front may make another than the listener's. */
export function createAddresses(options: { domain: string; scheme: "http" | "https"; port: number }): Addresses {
  const { domain, scheme, port } = options;
  const portSuffix = port === (scheme === "https" ? 443 : 80) ? "" : `:${port}`;
  const at = (name: string): string => `${scheme}://${name}${portSuffix}`;
  const kapSuffix = `.kaps.${domain}`;
  const orgSuffix = `.${domain}`;
  return {
    domain,
    scheme,
    portSuffix,
    api: at(`api.${domain}`),
    share: at(`share.${domain}`),
    runtime: at(`kaps.${domain}`),
    mailDomain: `mail.${domain}`,
    org: (slug) => at(`${slug}.${domain}`),
    kap: (slug) => at(`${slug}.kaps.${domain}`),
    read(hostHeader) {
      if (hostHeader === undefined) return { zone: "unknown" };
      const colon = hostHeader.lastIndexOf(":");
      const name = (colon > hostHeader.lastIndexOf("]") ? hostHeader.slice(0, colon) : hostHeader).toLowerCase();
      if (name === domain || name === `api.${domain}` || directHosts.has(name)) return { zone: "api" };
      if (name.endsWith(kapSuffix)) {
        const slug = name.slice(0, -kapSuffix.length);
        return slugPattern.test(slug) ? { zone: "kap", slug } : { zone: "unknown" };
      }
      if (name === `kaps.${domain}`) return { zone: "runtime" };
      if (name === `share.${domain}`) return { zone: "share" };
      if (name.endsWith(orgSuffix)) {
        const slug = name.slice(0, -orgSuffix.length);
        return slugPattern.test(slug) && !reservedSlugs.has(slug) ? { zone: "org", slug } : { zone: "unknown" };
      }
      return { zone: "unknown" };
    },
  };
}

/**
 * The address a request comes from: the socket's, or, when that is a configured proxy, the newest entry of X-Forwarded-For that is not one
 * (decided §2: the header counts only from configured proxies).
 */
export function clientAddress(request: IncomingMessage, trustedProxies: readonly string[]): string {
  let address = plainAddress(request.socket.remoteAddress ?? "");
  if (trustedProxies.length === 0) return address;
  const isProxy = proxiesOf(trustedProxies);
  if (!isProxy(address)) return address;
  const forwarded = request.headers["x-forwarded-for"];
  const hops = (Array.isArray(forwarded) ? forwarded.join(",") : (forwarded ?? "")).split(",").map((hop) => plainAddress(hop.trim()));
  while (isProxy(address)) {
    const next = hops.pop();
    if (next === undefined || next === "") break;
    address = next;
  }
  return address;
}

const proxyLists = new WeakMap<readonly string[], (address: string) => boolean>();

/** Tells whether an address is one of the configured proxies. The list is read once. */
function proxiesOf(entries: readonly string[]): (address: string) => boolean {
  const known = proxyLists.get(entries);
  if (known) return known;
  const list = new BlockList();
  for (const entry of entries) {
    const [address = "", prefix] = entry.split("/", 2);
    const family = isIPv6(address) ? "ipv6" : "ipv4";
    list.addSubnet(address, prefix === undefined ? (family === "ipv6" ? 128 : 32) : Number(prefix), family);
  }
  const isProxy = (address: string): boolean => isIP(address) !== 0 && list.check(address, isIPv6(address) ? "ipv6" : "ipv4");
  proxyLists.set(entries, isProxy);
  return isProxy;
}

function plainAddress(address: string): string {
  return address.startsWith("::ffff:") ? address.slice(7) : address;
}
