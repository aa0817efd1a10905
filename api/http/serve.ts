import { isUtf8 } from "node:buffer";
import type { IncomingMessage, ServerResponse } from "node:http";
import { pipeline } from "node:stream/promises";
import express, { type Express } from "express";
import type { z } from "zod";
import type { Deps } from "../deps.ts";
import { checkKind, checkRights, unauthenticated } from "./access.ts";
import { checkDeclaredLength, endUnread, hasBody, mediaType, parseJson, readBody } from "./body.ts";
import type { Caller } from "./caller.ts";
import { isRepeated, presentedCredential, resolveCaller, sessionCookieName } from "./credentials.ts";
import { type EnvelopeName, envelopeOfPath, envelopes } from "./envelopes.ts";
import { clientAddress, type Host } from "./hosts.ts";
import { idempotencyKeyOf, once } from "./idempotency.ts";
import { checkRate, rateHeaders } from "./rate-limit.ts";
import { asRefusal, invalid, notFound, Refusal, refuse } from "./refusal.ts";
import { requestIdOf } from "./request-id.ts";
import { type NoteRequest, requestTimes } from "./request-times.ts";
import type { Context, Method, Reply, Route, Service } from "./route.ts";
import { inWorkspace } from "./workspace.ts";

const defaultBodyLimit = 10 * 1024 * 1024;
const noBody = Buffer.alloc(0);

/** A request after its host, id and address have been read. */
interface Arrival {
  host: Host;
  requestId: string;
  address: string;
}

/**
 * Mounts the routes of all services on express. Every route goes through the same steps, in the order in which refusals are decided
 * (decided §2): 404 and 405, 429 of the address, 400 for two credentials, 401, 429 of the credential, 404, 403, 415, 413, 400, 422, then the handler's own.
 */
export function createServiceApp(deps: Deps, services: readonly Service[]): Express {
  const app = express();
  app.disable("x-powered-by").disable("etag").set("case sensitive routing", true).set("strict routing", true);
  const note = requestTimes(deps.metrics);
  const byPath = new Map<string, { service: Service; routes: Map<Method, Route> }>();
  for (const service of services) {
    for (const route of service.routes) {
      const entry = byPath.get(route.path) ?? { service, routes: new Map() };
      if (entry.routes.has(route.method)) throw new Error(`two routes answer ${route.method} ${route.path}`);
      entry.routes.set(route.method, route);
      byPath.set(route.path, entry);
    }
  }
  for (const [path, entry] of [...byPath].sort(([a], [b]) => compareSpecificity(a, b))) {
    app.all(expressPath(path), (request, response) => answer(deps, entry.service, entry.routes, note, request, response));
  }
  app.use((request, response) => {
    const arrival = arrive(deps, request, response);
    refuseWith(deps, envelopeOfPath(request.path), notFound(`${request.method} ${request.path}`), arrival, request, response);
  });
  app.use((error: unknown, request: IncomingMessage & { path: string }, response: ServerResponse, _next: unknown) => {
    // Express itself refuses a path it cannot decode.
    const arrival = arrive(deps, request, response);
    const known = error instanceof Error && "status" in error && error.status === 400;
    refuseWith(
      deps,
      envelopeOfPath(request.path),
      known ? refuse("BAD_REQUEST", "the path is not valid percent-encoding") : error,
      arrival,
      request,
      response,
    );
  });
  return app;
}

/** `{id}` → `:id`, `{key*}` → `*key`. */
function expressPath(path: string): string {
  return path.replace(/\{(\w+)\*\}/g, "*$1").replace(/\{(\w+)\}/g, ":$1");
}

/** Literal segments win over parameters, parameters over wildcards. */
function compareSpecificity(a: string, b: string): number {
  const rank = (segment: string | undefined): number =>
    segment === undefined ? 3 : segment.endsWith("*}") ? 2 : segment.startsWith("{") ? 1 : 0;
  const left = a.split("/");
  const right = b.split("/");
  for (let i = 0; i < Math.max(left.length, right.length); i++) {
    const difference = rank(left[i]) - rank(right[i]);
    if (difference !== 0) return difference;
  }
  return 0;
}

function arrive(deps: Deps, request: IncomingMessage, response: ServerResponse): Arrival {
  const requestId = requestIdOf(request.headers["x-request-id"]);
  response.setHeader("x-request-id", requestId);
  response.setHeader("x-content-type-options", "nosniff");
  return {
    host: deps.addresses.read(request.headers.host),
    requestId,
    address: clientAddress(request, deps.config.trustedProxies),
  };
}

async function answer(
  deps: Deps,
  service: Service,
  routes: Map<Method, Route>,
  note: NoteRequest,
  request: express.Request,
  response: express.Response,
): Promise<void> {
  const startedMs = performance.now();
  const arrival = arrive(deps, request, response);
  const method = request.method as Method;
  const route = routes.get(method) ?? (method === "HEAD" ? routes.get("GET") : undefined);
  let isStream = false;
  try {
    if (!route) {
      const allow = [...routes.keys(), ...(routes.has("GET") && !routes.has("HEAD") ? ["HEAD"] : [])].join(", ");
      throw refuse("METHOD_NOT_ALLOWED", `${request.method} is not a method of this path: it has ${allow}`, { headers: { allow } });
    }
    if (isRepeated(request, "host")) throw refuse("BAD_REQUEST", "the request names its host more than once: send one Host header");
    const { zone } = arrival.host;
    if (zone === "unknown") throw notFound(`the host ${request.headers.host ?? "(none)"}`);
    // What members publish is shown there: no session begins on it, and none is taken (decided §1, §7.3).
    if (zone === "share" && request.path.startsWith("/v1/")) throw notFound(`the API on ${request.headers.host}`);
    const reply = await perform(deps, service, route, arrival, request, response);
    isStream = reply.stream !== undefined || response.headersSent;
    await write(request, response, reply);
  } catch (error) {
    refuseWith(deps, service.envelope, error, arrival, request, response, service.refusalPage);
  }
  if (route && !isStream) note(route, response.statusCode, startedMs); // how long a stream lasts is the caller's affair
}

async function perform(
  deps: Deps,
  service: Service,
  route: Route,
  arrival: Arrival,
  request: express.Request,
  response: express.Response,
): Promise<Reply> {
  if (route.deprecatedUntil) response.setHeader("x-service-deprecated", route.deprecatedUntil);
  const identified = await identify(deps, route, arrival, request, response);
  checkOwnOrg(arrival.host, identified, request.params);
  const caller = identified && (await inWorkspace(deps.db, identified, request));
  const abort = new AbortController();
  response.once("close", () => {
    if (!response.writableFinished) abort.abort(new Error("the caller went away"));
  });
  const context: Context<unknown, unknown, unknown, unknown, Caller | null> = {
    deps,
    caller,
    params: parse(route.params, request.params, notFoundOnBadPath) ?? request.params,
    query: {},
    body: undefined,
    resource: undefined,
    host: arrival.host,
    request,
    response,
    requestId: arrival.requestId,
    client: null,
    address: arrival.address,
    signal: abort.signal,
  };
  if (route.load) context.resource = await route.load(context);
  if (caller) checkRights(route.access, caller);
  if (caller?.viaCookie) checkOrigin(deps, request);
  const body = await readInput(service, route, request);
  context.client = clientOf(service, request);
  if (route.body) context.body = parse(route.body, body.length === 0 && route.bodyOptional ? {} : parseJson(body));
  if (route.query) context.query = parse(route.query, queryOf(request));
  const key = request.method === "POST" && caller ? idempotencyKeyOf(request.headers["idempotency-key"]) : null;
  if (key === null || !caller) return route.handler(context);
  return once(deps.postgres, { credentialId: caller.credentialId, path: request.path, key, body }, route.secretFields, () =>
    route.handler(context),
  );
}

/** Rate limits, then the credential. Open routes and callers without a credential are counted by their address. */
async function identify(
  deps: Deps,
  route: Route,
  arrival: Arrival,
  request: express.Request,
  response: express.Response,
): Promise<Caller | null> {
  const addressBucket = `address:${arrival.address}`;
  const perMinute = deps.config.requestsPerMinute;
  const countAddress = async (): Promise<void> => {
    const state = await deps.limiter.take(addressBucket, perMinute);
    setHeaders(response, rateHeaders(state));
    checkRate(state, "requests a minute from this address");
  };
  if (route.access.open) {
    await countAddress();
    await countSignIn(deps, route, arrival);
    return null;
  }
  const spent = deps.limiter.spent(addressBucket);
  if (spent) checkRate(spent, "failed or anonymous requests a minute from this address");
  const presented = presentedCredential(request, sessionCookieName(deps.addresses.scheme));
  if (!presented) {
    await countAddress();
    throw unauthenticated();
  }
  const limit = route.limit === "store" ? deps.config.callsPerMinute : perMinute;
  const bucket = `credential:${route.limit === "store" ? "store:" : ""}${presented.digest.toString("base64url")}`;
  const facts = { address: arrival.address, userAgent: request.headers["user-agent"] ?? null, requestId: arrival.requestId };
  let caller: Caller;
  try {
    caller = await resolveCaller(deps, presented, facts);
    checkKind(route.access, caller);
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) await countAddress();
    throw error;
  }
  const state = await deps.limiter.take(bucket, limit);
  setHeaders(response, rateHeaders(state));
  checkRate(state, "requests a minute with this credential");
  return caller;
}

/** Sign-ins and signups have limits of their own per address (decided §3, §5): each costs a password hash. */
async function countSignIn(deps: Deps, route: Route, arrival: Arrival): Promise<void> {
  if (route.limit !== "login" && route.limit !== "signup") return;
  const limit = route.limit === "login" ? deps.config.loginsPerMinute : deps.config.signupsPerMinute;
  checkRate(await deps.limiter.take(`${route.limit}:${arrival.address}`, limit), `${route.limit}s a minute from this address`);
}

/**
 * An organisation named by the host or the path must be the caller's; any other is 404, existing or not. A credential of a test organisation
 * also answers to the name of the live one it is paired with: the addresses stay, the data differ.
 */
function checkOwnOrg(host: Host, caller: Caller | null, params: Record<string, string | string[]>): void {
  if (!caller) return;
  const { org } = caller;
  const own = new Set([org.id, org.slug, org.live.id, org.live.slug]);
  if (host.zone === "org" && !own.has(host.slug)) throw notFound(`the organisation ${host.slug}`);
  for (const name of ["org_id", "org"]) {
    const value = params[name];
    if (value !== undefined && !own.has(String(value))) throw notFound(`the organisation ${String(value)}`);
  }
}

/** A change made with the session cookie must come from a page of the same host: browsers send cookies unasked, but never a false Origin. */
function checkOrigin(deps: Deps, request: express.Request): void {
  if (request.method === "GET" || request.method === "HEAD") return;
  const expected = `${deps.addresses.scheme}://${request.headers.host}`;
  if (request.headers.origin !== expected) {
    throw new Refusal(403, "ORIGIN_MISMATCH", `a change made with the session cookie needs the header Origin: ${expected}`);
  }
}

/** X-Service-Client of a change: 1 to 128 bytes (spec 3 §5 B). Node reads headers as Latin-1; a name is told as UTF-8 where it is. */
function clientOf(service: Service, request: express.Request): string | null {
  const value = request.headers["x-service-client"];
  const bytes = Buffer.from(Array.isArray(value) ? value.join(",") : (value ?? ""), "latin1");
  const name = bytes.length === 0 ? null : bytes.toString(isUtf8(bytes) ? "utf8" : "latin1");
  if (!service.clientHeader || request.method === "GET" || request.method === "HEAD") return name;
  if (name === null || bytes.length > 128) {
    throw new Refusal(
      400,
      "CLIENT_HEADER_REQUIRED",
      "every change needs the header X-Service-Client: the name of your client, 1 to 128 bytes",
    );
  }
  return name;
}

async function readInput(service: Service, route: Route, request: express.Request): Promise<Buffer> {
  const limit = route.bodyLimit ?? service.bodyLimit ?? defaultBodyLimit;
  if (route.rawBody) {
    const accepted = route.rawBody.contentTypes;
    if (!accepted.includes("*/*") && !accepted.includes(mediaType(request))) {
      throw refuse("UNSUPPORTED_MEDIA_TYPE", `the body must be ${accepted.join(" or ")}: set Content-Type so`);
    }
    checkDeclaredLength(request, limit);
    return noBody;
  }
  if (!route.body) {
    // What is sent although nothing is expected is read away, so that the connection can be used again.
    if (hasBody(request)) await readBody(request, limit);
    return noBody;
  }
  if (!hasBody(request) && route.bodyOptional) return noBody;
  const type = mediaType(request);
  if (type !== "application/json" && !/^application\/[\w.+-]+\+json$/.test(type)) {
    throw refuse("UNSUPPORTED_MEDIA_TYPE", "the body must be JSON: set Content-Type: application/json");
  }
  return readBody(request, limit);
}

/** The query as express reads it. What is no UTF-8 is 400, as in a path: express would put the same mark in its place, and different keys would become one. */
function queryOf(request: express.Request): unknown {
  const start = request.url.indexOf("?");
  if (start !== -1) {
    try {
      decodeURIComponent(request.url.slice(start + 1));
    } catch {
      throw refuse("BAD_REQUEST", "the query is not valid percent-encoding");
    }
  }
  return request.query;
}

function notFoundOnBadPath(error: z.ZodError): never {
  throw notFound(`the path's ${error.issues[0]?.path.join(".") ?? "parameter"}`);
}

/** Validates by a schema; refuses with 422 and a line per field, unknown fields named. */
function parse(schema: z.ZodType | undefined, value: unknown, onError: (error: z.ZodError) => never = refuseIssues): unknown {
  if (!schema) return undefined;
  const result = schema.safeParse(value);
  return result.success ? result.data : onError(result.error);
}

function refuseIssues(error: z.ZodError): never {
  throw invalid(
    ...error.issues.flatMap((issue) =>
      issue.code === "unrecognized_keys"
        ? issue.keys.map((key) => ({ path: [...issue.path, key].join("."), message: "is not a field of this request: remove it" }))
        : [{ path: issue.path.join("."), message: issue.message }],
    ),
  );
}

function setHeaders(response: ServerResponse, headers: Record<string, string | string[]>): void {
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
}

async function write(request: IncomingMessage, response: ServerResponse, reply: Reply): Promise<void> {
  if (response.writableEnded || response.headersSent) return; // the handler streamed its own answer (SSE)
  response.statusCode = reply.status;
  if (reply.headers) setHeaders(response, reply.headers);
  if (reply.stream) {
    if (request.method === "HEAD") {
      reply.stream.destroy();
      response.end();
    } else await pipeline(reply.stream, response).catch(() => response.destroy());
    return;
  }
  if (reply.body === undefined) {
    response.end();
    return;
  }
  const text = JSON.stringify(reply.body);
  if (!response.hasHeader("content-type")) response.setHeader("content-type", "application/json; charset=utf-8");
  response.setHeader("content-length", Buffer.byteLength(text));
  response.end(request.method === "HEAD" ? undefined : text);
}

function refuseWith(
  deps: Deps,
  envelope: EnvelopeName,
  error: unknown,
  arrival: Arrival,
  request: IncomingMessage,
  response: ServerResponse,
  pageOf?: Service["refusalPage"],
): void {
  const refusal = asRefusal(error);
  if (refusal.status >= 500) {
    deps.log.error(
      { err: refusal.cause ?? refusal, request_id: arrival.requestId, method: request.method, path: request.url?.split("?", 1)[0] },
      refusal.options.internal ?? "a request failed",
    );
  }
  if (response.headersSent) {
    response.destroy();
    return;
  }
  setHeaders(response, refusal.options.headers ?? {});
  const page = pageOf && /\btext\/html\b/i.test(request.headers.accept ?? "") ? pageOf(refusal) : null;
  const text = page?.text ?? JSON.stringify(envelopes[envelope](refusal));
  response.statusCode = refusal.status;
  setHeaders(response, page?.headers ?? { "content-type": "application/json; charset=utf-8" });
  response.setHeader("content-length", Buffer.byteLength(text));
  if (request.method === "HEAD") response.end();
  else if (request.readableEnded || !hasBody(request)) response.end(text);
  else endUnread(request, response, text);
}
