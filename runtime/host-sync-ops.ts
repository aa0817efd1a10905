/** Operations the guest waits for on the spot: randomness, encodings and addresses. */
import { randomBytes, randomUUID } from "node:crypto";

type SyncOp = (text: string, bytes: ArrayBuffer | undefined) => string | ArrayBuffer;

/** The longest address that is parsed, in UTF-16 units. */
const maxUrlLength = 1_048_576;
const urlParts = ["href", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"] as const;
type UrlPart = (typeof urlParts)[number];

/** An ArrayBuffer of its own: pooled Buffers must not cross. */
const exact = (bytes: Uint8Array): ArrayBuffer => new Uint8Array(bytes).buffer;

const listed = (url: URL): string =>
  JSON.stringify([
    url.href,
    url.protocol,
    url.username,
    url.password,
    url.hostname,
    url.port,
    url.pathname,
    url.search,
    url.hash,
    url.origin,
  ]);

function parsed(input: string, base?: string): string {
  if (input.length > maxUrlLength || (base?.length ?? 0) > maxUrlLength) return "";
  const url = URL.parse(input, base);
  return url === null ? "" : listed(url);
}

export const syncOps: Readonly<Record<string, SyncOp | undefined>> = Object.assign(Object.create(null), {
  /** `text`: how many bytes, at most 65,536. */
  random: (text) => exact(randomBytes(Math.min(65_536, Math.max(0, Number(text) | 0)))),
  uuid: () => randomUUID(),

  "utf8.encode": (text) => exact(Buffer.from(text, "utf8")),
  "utf8.decode": (_, bytes) => Buffer.from(bytes ?? new ArrayBuffer(0)).toString("utf8"),
  /** The name of the encoding a label stands for; empty when it is unknown. */
  "text.encoding": (label) => {
    try {
      return new TextDecoder(label).encoding;
    } catch {
      return "";
    }
  },
  /** `text`: JSON `[encoding, fatal]`. The byte order mark stays. */
  "text.decode": (text, bytes) => {
    const [encoding, fatal] = JSON.parse(text) as [string, boolean];
    return new TextDecoder(encoding, { fatal, ignoreBOM: true }).decode(bytes);
  },

  /** `text`: JSON `[input, base?]`. Answers the parts as a JSON list, empty when it is no address. */
  "url.parse": (text) => {
    const [input, base] = JSON.parse(text) as [string, string?];
    return parsed(input, base);
  },
  /** `text`: JSON `[href, part, value]`. */
  "url.set": (text) => {
    const [href, part, value] = JSON.parse(text) as [string, UrlPart, string];
    if (!urlParts.includes(part) || href.length > maxUrlLength || value.length > maxUrlLength) return "";
    const url = new URL(href);
    url[part] = value;
    return listed(url);
  },
} satisfies Record<string, SyncOp>);
