import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { Server as NetServer } from "node:net";
import { newId } from "#platform/ids.ts";
import { createServer } from "#platform/node-http.ts";
import { refuse } from "./answer.ts";
import type { Engine } from "./engine.ts";
import { inheritedFd } from "./link.ts";
import type { Arrival } from "./run.ts";

const ownPrefix = "x-kapstone-";
const runIdForm = /^[0-9a-f-]{36}$/;
const maxHeaderBytes = 64 * 1024;

/** Reads what the gateway says about a request and leaves what the program may see. */
export function readArrival(request: IncomingMessage): Arrival {
  const raw = request.rawHeaders;
  const arrival: Arrival = {
    runId: "",
    kapId: null,
    isDry: false,
    revision: 0,
    claimMs: 0,
    triggerId: null,
    user: null,
    scheme: "http",
    host: "localhost",
    headers: [],
    request,
  };
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const name = raw[at] as string;
    const value = raw[at + 1] as string;
    const first = name.charCodeAt(0) | 0x20;
    if (first === 0x78 && name.length > ownPrefix.length && name.slice(0, ownPrefix.length).toLowerCase() === ownPrefix) {
      readOwn(arrival, name.slice(ownPrefix.length).toLowerCase(), value);
      continue;
    }
    if ((first === 0x63 || first === 0x74 || first === 0x6b) && /^(?:connection|transfer-encoding|keep-alive)$/i.test(name)) continue;
    if (first === 0x68 && name.length === 4 && name.toLowerCase() === "host") arrival.host = value;
    arrival.headers.push(name, value);
  }
  if (!runIdForm.test(arrival.runId)) arrival.runId = newId();
  return arrival;
}

function readOwn(arrival: Arrival, name: string, value: string): void {
  if (name === "run") arrival.runId = value;
  else if (name === "kap") arrival.kapId = value;
  else if (name === "revision") arrival.revision = Number(value) || 0;
  else if (name === "claim") arrival.claimMs = Number(value) || 0;
  else if (name === "trigger") arrival.triggerId = value;
  else if (name === "dry-run") arrival.isDry = value === "1";
  else if (name === "scheme") arrival.scheme = value === "https" ? "https" : "http";
  else if (name === "user") {
    try {
      arrival.user = JSON.stringify(JSON.parse(Buffer.from(value, "base64url").toString("utf8")));
    } catch {
      arrival.user = null;
    }
  }
}

/** The HTTP server of the data address. It accepts on the socket the supervisor holds, so a successor goes on with the same backlog. */
export function createDataListener(current: () => Engine | undefined): Server {
  const server = createServer(
    // Nobody reads the body of a request that announces none: Node need not make it a stream.
    { keepAlive: true, maxHeaderSize: maxHeaderBytes, requireHostHeader: false, optimizeEmptyRequests: true },
    (request: IncomingMessage, response: ServerResponse) => {
      const engine = current();
      if (engine?.isLost) {
        response.shouldKeepAlive = false;
        return refuse(response, 503, "crashed", "The isolate was lost a moment ago; call again.");
      }
      if (!engine?.program) return refuse(response, 421, "unassigned", "This runtime serves no kap.");
      if (!server.listening) response.shouldKeepAlive = false;
      const arrival = readArrival(request);
      // An address is used again by another pod: a call that follows an old one must never reach another kap's program.
      if (arrival.kapId !== engine.program.head.kap.id) return refuse(response, 421, "unassigned", "This runtime serves another kap.");
      engine.arrive(arrival, response);
    },
  );
  // Only the gateway calls; a run's own wall clock ends what is slow.
  server.keepAliveTimeout = 0;
  server.headersTimeout = 0;
  server.requestTimeout = 0;
  return server;
}

/** Starts accepting. Calls back when the kernel hands connections to this process. */
export function accept(server: Server, accepting: () => void): void {
  server.listen({ fd: inheritedFd.listen }, accepting);
}

/** A caller may keep an unused connection that long (the gateway: a minute); after that nothing is on its way on it. */
const lingerMs = 65_000;

/** Takes no new connections. Each open one is closed by its next answer, or when it has been unused for long; then `closed` is called. */
export function retire(server: Server, closed: () => void): void {
  // The close of an HTTP server would cut idle connections at once, and the call that is on its way on one of them.
  NetServer.prototype.close.call(server, closed);
  setTimeout(() => server.closeIdleConnections(), lingerMs);
}
