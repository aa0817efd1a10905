import { unlinkSync } from "node:fs";
import type { ListenOptions } from "node:net";

/** A listening address as settings write it: `unix:/path` or `tcp:HOST:PORT` (IPv6 in brackets). */
export type Address = { path: string } | { host: string; port: number };

/** @throws Error that names the two forms when the text is neither */
export function parseAddress(text: string): Address {
  if (text.startsWith("unix:") && text.length > 5) return { path: text.slice(5) };
  const tcp = /^tcp:(\[[0-9a-fA-F:.]+\]|[^:[\]]+):(\d{1,5})$/.exec(text);
  const port = Number(tcp?.[2]);
  if (!tcp?.[1] || port > 65_535) throw new Error(`${JSON.stringify(text)} is not an address: write unix:/path or tcp:HOST:PORT`);
  return { host: tcp[1].replace(/^\[|\]$/g, ""), port };
}

/** Removes the socket file a killed predecessor left; only this runtime uses its path. */
export function clearSocketFile(address: Address): void {
  if (!("path" in address)) return;
  try {
    unlinkSync(address.path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
}

export const listenOptions = (address: Address): ListenOptions => address;
