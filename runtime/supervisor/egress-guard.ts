import { type LookupAddress, lookup as systemLookup } from "node:dns";
import { BlockList, isIP, type LookupFunction } from "node:net";
import ipaddr from "ipaddr.js";

/** An address a program may not reach. The message names the host as the program wrote it, never where it resolved to. */
export class EgressRefused extends Error {
  override name = "TypeError";
  constructor(host: string) {
    super(`fetch to ${host} is refused: a kap reaches public addresses only.`);
  }
}

/** Of IPv6 only what is handed out as public unicast; all else (local, mapped, NAT64, 6to4, Teredo, documentation, multicast) is refused. */
const publicV6 = new BlockList();
publicV6.addSubnet("2000::", 3, "ipv6");
const notPublicV6 = new BlockList();
for (const [net, bits] of [
  ["2001::", 23],
  ["2001:db8::", 32],
  ["2002::", 16],
  ["3fff::", 20],
] as const)
  notPublicV6.addSubnet(net, bits, "ipv6");

/** Whether an address is public unicast. IPv4 in IPv6 clothing is never: a public IPv4 address can be named as what it is. */
export function isPublicAddress(address: string): boolean {
  if (isIP(address) === 0) return false;
  const parsed = ipaddr.parse(address);
  if (parsed.kind() === "ipv6")
    return publicV6.check(address, "ipv6") && !notPublicV6.check(address, "ipv6") && parsed.range() === "unicast";
  // 192.88.99.0/24 was 6to4's relay; 0/8, 240/4 and broadcast are named ranges of their own.
  return parsed.range() === "unicast" && !address.startsWith("192.88.99.");
}

/** `host:port` pairs that may be reached although private: the deployment's list. Host as written by the program, lower case. */
export type AllowedHosts = ReadonlySet<string>;

export const allowedHosts = (entries: string[]): AllowedHosts => new Set(entries.map((entry) => entry.toLowerCase()));

/** Resolves a name to all its addresses. */
export type Resolver = (host: string) => Promise<LookupAddress[]>;

const resolveBySystem: Resolver = (host) =>
  new Promise((resolve, reject) =>
    systemLookup(host, { all: true, verbatim: true }, (error, found) => (error ? reject(error) : resolve(found))),
  );

/**
 * A lookup for connecting sockets that lets only public addresses through. It runs when the socket connects, on the addresses it will use,
 * so a name that changes its mind between check and use gains nothing.
 */
export function guardedLookup(port: number, allowed: AllowedHosts, resolve: Resolver = resolveBySystem): LookupFunction {
  return (host, options, callback) => {
    const isAllowed = allowed.has(`${host.toLowerCase()}:${port}`);
    resolve(host).then(
      (found) => {
        const usable = isAllowed ? found : found.filter(({ address }) => isPublicAddress(address));
        const first = usable[0];
        // One private address among public ones is a trick, not a mistake of the program.
        if (!first || usable.length < found.length) return callback(new EgressRefused(host), "", 4);
        if (options.all) callback(null, usable);
        else callback(null, first.address, first.family);
      },
      (error: NodeJS.ErrnoException) => callback(error, "", 4),
    );
  };
}

/**
 * Refuses what needs no connection to be refused: other schemes, credentials in the address, a literal private address in any spelling
 * (the WHATWG URL parser has already turned decimal, octal and hexadecimal forms into dotted ones).
 * @throws EgressRefused, TypeError
 */
export function checkTarget(url: URL, allowed: AllowedHosts): void {
  if (url.protocol !== "http:" && url.protocol !== "https:")
    throw new TypeError(`fetch cannot use ${url.protocol} addresses: use http: or https:.`);
  if (url.username !== "" || url.password !== "")
    throw new TypeError("fetch refuses credentials in an address: use the Authorization header.");
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const port = url.port === "" ? (url.protocol === "https:" ? 443 : 80) : Number(url.port);
  if (allowed.has(`${host.toLowerCase()}:${port}`)) return;
  if (isIP(host) !== 0 && !isPublicAddress(host)) throw new EgressRefused(url.hostname);
  if (/(?:^|\.)localhost\.?$|\.(?:internal|local)\.?$/i.test(host)) throw new EgressRefused(url.hostname);
}
