import type { Readable } from "node:stream";
import { KubernetesError } from "./client.ts";
import type { KubernetesObject } from "./objects.ts";

export interface WatchEvent<T> {
  type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK";
  object: T;
}

/** etcd keeps no object larger than about 1.5 MiB. */
const maxLineBytes = 8 * 1_048_576;
const newline = 0x0a;

/**
 * The events of a watch's stream. An `ERROR` event is thrown as `KubernetesError` with its status. A stream that ends inside a line, or brings one
 * that is no event, throws: what was in it is not known.
 */
export async function* readWatchEvents<T extends KubernetesObject>(stream: Readable): AsyncGenerator<WatchEvent<T>> {
  let held: Buffer[] = [];
  let heldBytes = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    let from = 0;
    for (let at = chunk.indexOf(newline); at !== -1; at = chunk.indexOf(newline, from)) {
      const line = Buffer.concat([...held, chunk.subarray(from, at)]).toString("utf8");
      held = [];
      heldBytes = 0;
      from = at + 1;
      if (line !== "") yield parseEvent<T>(line);
    }
    if (from < chunk.length) {
      held.push(chunk.subarray(from));
      heldBytes += chunk.length - from;
    }
    if (heldBytes > maxLineBytes) throw new KubernetesError("the watch brought an event larger than 8 MiB", { status: 0 });
  }
  if (heldBytes > 0) throw new KubernetesError("the watch broke off inside an event", { status: 0 });
}

function parseEvent<T extends KubernetesObject>(line: string): WatchEvent<T> {
  let event: { type: string; object: T & { code?: number; reason?: string; message?: string; details?: { retryAfterSeconds?: number } } };
  try {
    event = JSON.parse(line) as typeof event;
  } catch (cause) {
    throw new KubernetesError("the watch brought something that is no event", { status: 0, cause });
  }
  const { type, object } = event;
  if (type === "ERROR") {
    const seconds = object.details?.retryAfterSeconds;
    throw new KubernetesError(`the watch ended: ${object.message ?? object.reason ?? "no reason given"}`, {
      status: object.code ?? 500,
      reason: object.reason ?? "",
      retryAfterMs: seconds === undefined ? undefined : seconds * 1_000,
    });
  }
  if (type !== "ADDED" && type !== "MODIFIED" && type !== "DELETED" && type !== "BOOKMARK") {
    throw new KubernetesError(`the watch brought an event of the unknown type ${JSON.stringify(type)}`, { status: 0 });
  }
  return { type, object };
}
