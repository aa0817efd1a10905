import { timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { pipeline } from "node:stream/promises";
import { checkReadiness, type ReadinessChecks } from "#platform/metrics.ts";
import type { Deps } from "../deps.ts";
import { runtimeTokenDigest } from "../gateway/claims.ts";
import { unauthenticated } from "../http/access.ts";
import { envelopes } from "../http/envelopes.ts";
import { asRefusal, notFound, refuse } from "../http/refusal.ts";
import { requestIdOf } from "../http/request-id.ts";
import type { InternalContext, InternalRoute } from "./internal-route.ts";

export interface InternalServerParts {
  routes: readonly InternalRoute[];
  checks: ReadinessChecks;
  /** Answers the routes under `/v1/kaps/` that a runtime reaches with its own token: its kap's file store. */
  services: (request: IncomingMessage, response: ServerResponse) => void;
}

/**
 * The internal listener: what runtimes, mail ingest and the schedule driver call, beside health and metrics. Every route asks for its
 * own narrow token; nothing here is reachable from the public listener.
 */
export function createInternalServer(deps: Deps, { routes, checks, services }: InternalServerParts): Server {
  const apiHost = new URL(deps.addresses.api).host;
  const table = routes.map((route) => ({ route, pattern: new RegExp(`^${route.path.replace(/:(\w+)/g, "(?<$1>[^/]+)")}$`) }));
  // Longer than anybody who calls keeps a connection that rests: one that is closed under a request would look like a call that failed.
  return createServer({ keepAliveTimeout: 65_000 }, (request, response) => {
    if (request.url?.startsWith("/v1/kaps/")) {
      request.headers.host = apiHost; // inside the cluster the API has another name
      services(request, response);
      return;
    }
    serve(deps, table, checks, request, response).catch((error: unknown) => {
      const refusal = asRefusal(error);
      if (refusal.status >= 500) deps.log.error({ err: refusal.cause ?? refusal, path: request.url }, "an internal request failed");
      if (response.headersSent) response.destroy();
      else
        response
          .writeHead(refusal.status, {
            "content-type": "application/json",
            ...(request.complete ? {} : { connection: "close" }),
            ...refusal.options.headers,
          })
          .end(JSON.stringify(envelopes.nested(refusal)));
    });
  });
}

async function serve(
  deps: Deps,
  table: readonly { route: InternalRoute; pattern: RegExp }[],
  checks: ReadinessChecks,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const path = (request.url ?? "/").split("?", 1)[0] as string;
  if (path === "/healthz") return void response.writeHead(200, { "content-type": "application/json" }).end('{"status":"ok"}');
  if (path === "/readyz") {
    const state = await checkReadiness(checks);
    return void response.writeHead(state.ready ? 200 : 503, { "content-type": "application/json" }).end(JSON.stringify(state));
  }
  if (path === "/metrics")
    return void response.writeHead(200, { "content-type": deps.metrics.contentType }).end(await deps.metrics.metrics());
  response.setHeader("x-request-id", requestIdOf(request.headers["x-request-id"]));
  const found = table.filter(({ pattern }) => pattern.test(path));
  const entry = found.find(({ route }) => route.method === request.method);
  if (!entry) throw found.length > 0 ? refuse("METHOD_NOT_ALLOWED", `${request.method} is not a method of this path`) : notFound(path);
  const params = { ...(entry.pattern.exec(path)?.groups ?? {}) };
  const abort = new AbortController();
  response.once("close", () => {
    if (!response.writableFinished) abort.abort(new Error("the caller went away"));
  });
  const context: InternalContext = {
    deps,
    params,
    request,
    runtime: await authorise(deps, entry.route, params, request),
    signal: abort.signal,
  };
  const reply = await entry.route.handler(context);
  response.statusCode = reply.status;
  for (const [name, value] of Object.entries(reply.headers ?? {})) response.setHeader(name, value);
  if (reply.stream) return void (await pipeline(reply.stream, response).catch(() => response.destroy()));
  if (reply.body === undefined) return void response.end();
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(reply.body));
}

/** Checks the bearer token of a route. A runtime's token must be that of the runtime in the path; one that is no longer known hears 410 and ends itself. */
async function authorise(
  deps: Deps,
  route: InternalRoute,
  params: Record<string, string>,
  request: IncomingMessage,
): Promise<InternalContext["runtime"]> {
  const token = /^Bearer (\S+)$/.exec(request.headers.authorization ?? "")?.[1];
  if (token === undefined) throw unauthenticated("this route needs the bearer token of its part of the platform");
  if (route.token !== "runtime") {
    const expected = Buffer.from(route.token === "ingest" ? deps.config.ingestToken : deps.config.fireToken);
    const given = Buffer.from(token);
    if (given.length !== expected.length || !timingSafeEqual(given, expected))
      throw unauthenticated("this token is not the one of this part of the platform");
    return null;
  }
  const { rows } = await deps.postgres.hot.query<{ id: string; kap_id: string }>({
    name: "runtime-by-token",
    text: "select id, kap_id from runtimes where token_digest = $1",
    values: [runtimeTokenDigest(token)],
  });
  const runtime = rows[0];
  if (!runtime || runtime.id !== params.runtime_id) throw refuse("GONE", "this runtime no longer serves a kap: it must end");
  return runtime;
}
