import type { IncomingMessage, ServerResponse } from "node:http";
import type { Readable } from "node:stream";
import type { z } from "zod";
import type { JobHandlers } from "#platform/jobs.ts";
import type { Deps } from "../deps.ts";
import type { Access } from "./access.ts";
import type { Caller } from "./caller.ts";
import type { EnvelopeName } from "./envelopes.ts";
import type { Host } from "./hosts.ts";
import type { Refusal } from "./refusal.ts";

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "HEAD";

/** A body that is not JSON: streamed to the handler as `request`, never buffered by the kit. */
export interface RawBody {
  raw: true;
  description: string;
  contentTypes: readonly string[];
}

export interface ResponseSpec {
  description: string;
  schema?: z.ZodType;
  contentType?: string;
}

/** What a handler returns. `body` is sent as JSON; `stream` as it is; neither means no content. */
export interface Reply {
  status: number;
  body?: unknown;
  stream?: Readable;
  headers?: Record<string, string | string[]>;
}

/** What a handler is given. `caller` is null only on open routes. */
export interface Context<P, Q, B, R, C extends Caller | null = Caller> {
  deps: Deps;
  caller: C;
  params: P;
  query: Q;
  body: B;
  /** What `load` found. */
  resource: R;
  host: Host;
  request: IncomingMessage;
  response: ServerResponse;
  requestId: string;
  /** The value of X-Service-Client, where the service asks for it; else null. */
  client: string | null;
  /** The calling address, behind configured proxies the first one they name. */
  address: string;
  /** Aborts when the caller goes away. */
  signal: AbortSignal;
}

type Shape = z.ZodType | undefined;
type Out<S extends Shape, D> = S extends z.ZodType<infer T> ? T : D;

type CallerOf<A extends Access> = A extends { open: true } ? null : Caller;

/** What `load` is given: everything known before the body is read. */
export type LoadContext<P, C extends Caller | null = Caller> = Omit<
  Context<P, unknown, unknown, unknown, C>,
  "resource" | "body" | "query"
>;

export interface RouteInput<P extends Shape, Q extends Shape, B extends Shape, R, A extends Access> {
  method: Method;
  /** OpenAPI form: `/v1/kaps/{id}`; `{key*}` takes the rest of the path. */
  path: string;
  summary: string;
  description?: string;
  access: A;
  params?: P;
  query?: Q;
  body?: B | undefined;
  rawBody?: RawBody;
  /** Whether a JSON body may be left out; `body` is then the schema's reading of `{}`. */
  bodyOptional?: boolean;
  /** Bytes; the service's default when absent. */
  bodyLimit?: number;
  responses: Record<number, ResponseSpec>;
  /** Finds what the path names, or refuses with 404. Runs before rights are checked and before the body is read (decided §2). */
  load?: (context: LoadContext<Out<P, Record<string, string>>, CallerOf<A>>) => Promise<R>;
  handler: (
    context: Context<Out<P, Record<string, string>>, Out<Q, Record<string, never>>, Out<B, undefined>, R, CallerOf<A>>,
  ) => Promise<Reply>;
  /** Dotted fields of the answer that are shown once and left out of an idempotent replay. */
  secretFields?: readonly string[];
  /** Date (YYYY-MM-DD) from which the route may be gone; sent as X-Service-Deprecated. */
  deprecatedUntil?: string;
  /** Rate limit other than the common one: name of a bucket of the configuration. */
  limit?: "login" | "signup" | "store" | "share";
}

/** A route as the kit keeps it: types erased, one list for dispatch, OpenAPI and the tests that walk the table. */
export interface Route {
  method: Method;
  path: string;
  summary: string;
  description: string | undefined;
  access: Access;
  params: z.ZodType | undefined;
  query: z.ZodType | undefined;
  body: z.ZodType | undefined;
  rawBody: RawBody | undefined;
  bodyOptional: boolean;
  bodyLimit: number | undefined;
  responses: Record<number, ResponseSpec>;
  load: ((context: Context<unknown, unknown, unknown, unknown, Caller | null>) => Promise<unknown>) | undefined;
  handler: (context: Context<unknown, unknown, unknown, unknown, Caller | null>) => Promise<Reply>;
  secretFields: readonly string[];
  deprecatedUntil: string | undefined;
  limit: "login" | "signup" | "store" | "share" | undefined;
}

/**
 * Declares a route: one schema validates, types and documents it. Handlers read who → may they → input → do → answer;
 * all but the last two are done by the kit from this declaration.
 */
export function route<
  const A extends Access,
  P extends Shape = undefined,
  Q extends Shape = undefined,
  B extends Shape = undefined,
  R = undefined,
>(input: RouteInput<P, Q, B, R, A>): Route {
  return {
    method: input.method,
    path: input.path,
    summary: input.summary,
    description: input.description,
    access: input.access,
    params: input.params,
    query: input.query,
    body: input.body,
    rawBody: input.rawBody,
    bodyOptional: input.bodyOptional ?? false,
    bodyLimit: input.bodyLimit,
    responses: input.responses,
    load: input.load as Route["load"],
    handler: input.handler as Route["handler"],
    secretFields: input.secretFields ?? [],
    deprecatedUntil: input.deprecatedUntil,
    limit: input.limit,
  };
}

/** A service: its routes, their envelope, the durable jobs it runs. */
export interface Service {
  name: string;
  envelope: EnvelopeName;
  /** A refusal as browsers are shown it (who accepts `text/html`), where the service's routes are pages. */
  refusalPage?: (refusal: Refusal) => { headers: Record<string, string>; text: string };
  routes: readonly Route[];
  /** Handlers of the service's durable jobs. */
  jobs?: (deps: Deps) => JobHandlers;
  /** Default body limit in bytes. */
  bodyLimit?: number;
  /** Every change needs X-Service-Client (kaps). */
  clientHeader?: boolean;
}
