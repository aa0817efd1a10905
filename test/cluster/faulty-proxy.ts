import { randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { request } from "undici";
import { openConnection } from "../../platform/kubernetes/connection.ts";

/**
 * What can go wrong between a controller and its API server: it is gone (`away`), busy (`too-many`: 429), forgets versions (`gone`: 410), cuts each
 * watch inside an event (`cut`), keeps watches open and says nothing (`mute`), or loses events while all else goes on (`lossy`).
 */
export type Fault = "none" | "away" | "too-many" | "gone" | "cut" | "mute" | "lossy";

/** A proxy in front of the real API server that makes it misbehave. */
export interface FaultyProxy {
  /** Path of a kubeconfig that leads through it. */
  kubeconfig: string;
  /** Begins a fault. Watches that are open feel it too. */
  set(fault: Fault): void;
  /** Requests since the start, by what became of them. */
  counts: Record<"passed" | "refused" | "watches", number>;
  close(): Promise<void>;
}

/** Opens one on loopback; it uses the credentials of KUBECONFIG. */
export async function openFaultyProxy(): Promise<FaultyProxy> {
  const connection = await openConnection(process.env);
  const counts = { passed: 0, refused: 0, watches: 0 };
  const open = new Set<ServerResponse>();
  let fault: Fault = "none";

  async function answer(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const isWatch = incoming.url?.includes("watch=true") ?? false;
    if (fault === "away") {
      counts.refused += 1;
      incoming.destroy();
      return;
    }
    if (fault === "too-many") {
      counts.refused += 1;
      const status = { kind: "Status", code: 429, reason: "TooManyRequests", message: "too many requests" };
      response.writeHead(429, { "content-type": "application/json", "retry-after": "1" }).end(JSON.stringify(status));
      return;
    }
    if (fault === "gone" && isWatch) {
      counts.refused += 1;
      const status = { kind: "Status", code: 410, reason: "Expired", message: "too old resource version" };
      response.writeHead(200, { "content-type": "application/json" }).end(`${JSON.stringify({ type: "ERROR", object: status })}\n`);
      return;
    }
    counts.passed += 1;
    if (isWatch) counts.watches += 1;
    open.add(response);
    response.on("close", () => open.delete(response));
    const { headers, dispatcher } = await connection.authorize();
    const ended = new AbortController();
    response.on("close", () => ended.abort());
    const upstream = await request(connection.server + incoming.url, {
      method: incoming.method as "GET",
      dispatcher,
      signal: ended.signal,
      headers: {
        ...headers,
        accept: "application/json",
        ...(incoming.headers["content-type"] && { "content-type": incoming.headers["content-type"] }),
      },
      ...(incoming.method !== "GET" && { body: incoming }),
    });
    response.writeHead(upstream.statusCode, {
      "content-type": "application/json",
      ...(upstream.headers["retry-after"] && { "retry-after": String(upstream.headers["retry-after"]) }),
    });
    response.flushHeaders();
    for await (const chunk of upstream.body as AsyncIterable<Buffer>) {
      if (isWatch && (fault === "mute" || fault === "lossy")) continue;
      if (isWatch && fault === "cut") {
        response.write(chunk.subarray(0, Math.ceil(chunk.length / 2)), () => response.destroy());
        return;
      }
      response.write(chunk);
    }
    if (isWatch && fault === "mute") return; // not even its end
    response.end();
  }

  const server = createServer((incoming, response) => {
    answer(incoming, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const folder = await mkdtemp(join(tmpdir(), "kapstone-proxy-"));
  const kubeconfig = join(folder, `${randomBytes(4).toString("hex")}.json`);
  const address = server.address() as AddressInfo;
  await writeFile(
    kubeconfig,
    JSON.stringify({
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name: "c", cluster: { server: `http://127.0.0.1:${address.port}`, "insecure-skip-tls-verify": true } }],
      users: [{ name: "u", user: {} }],
      contexts: [{ name: "x", context: { cluster: "c", user: "u" } }],
      "current-context": "x",
    }),
  );
  return {
    kubeconfig,
    counts,
    set(next) {
      fault = next;
      if (next === "away") for (const response of open) response.destroy();
    },
    async close() {
      server.close();
      server.closeAllConnections();
      await connection.close();
      await rm(folder, { recursive: true });
    },
  };
}
