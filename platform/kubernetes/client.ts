import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { request } from "undici";
import { type KubernetesConnection, openConnection } from "./connection.ts";
import type { KubernetesObject } from "./objects.ts";

/** A kind of namespaced object the API server keeps. `T` is its type on the wire. */
export interface ApiResource<T extends KubernetesObject = KubernetesObject> {
  /** `v1` or `group/version`. */
  apiVersion: string;
  kind: string;
  plural: string;
  /** Never there: ties the type to the constant. */
  readonly example?: T;
}

/** An answer of the API server that is no success, or none at all (`status` 0). */
export class KubernetesError extends Error {
  override name = "KubernetesError";
  readonly status: number;
  /** The server's word for it: `NotFound`, `Conflict`, `AlreadyExists`, `Expired`, `TooManyRequests`, … */
  readonly reason: string;
  /** Milliseconds for which the server asks to be left alone, when it does. */
  readonly retryAfterMs: number | undefined;
  constructor(message: string, given: { status: number; reason?: string; retryAfterMs?: number | undefined; cause?: unknown }) {
    super(message, { cause: given.cause });
    this.status = given.status;
    this.reason = given.reason ?? "";
    this.retryAfterMs = given.retryAfterMs;
  }
}

/** Whether the object was not there. */
export const isNotFound = (error: unknown): boolean => error instanceof KubernetesError && error.status === 404;
/** Whether someone else changed the object first, or it exists already. */
export const isConflict = (error: unknown): boolean => error instanceof KubernetesError && error.status === 409;

export interface Page<T> {
  items: T[];
  resourceVersion: string;
  continue: string | undefined;
}

export interface Selection {
  labelSelector?: string | undefined;
  fieldSelector?: string | undefined;
}

export interface CallOptions {
  signal?: AbortSignal;
  /** For the answer to be whole, repetitions after 429 included; 15 s unless told. */
  deadlineMs?: number;
}

/** The API server, as seen from one namespace. Every call has a deadline; a 429 is waited out within it. Throws `KubernetesError`. */
export interface Kubernetes {
  namespace: string;
  server: string;
  get<T extends KubernetesObject>(resource: ApiResource<T>, name: string, options?: CallOptions): Promise<T>;
  /** One page of at most `limit` objects. */
  listPage<T extends KubernetesObject>(
    resource: ApiResource<T>,
    query: Selection & { limit?: number; continue?: string | undefined },
    options?: CallOptions,
  ): Promise<Page<T>>;
  /** The stream of a watch, line by line JSON; it ends by itself after `timeoutSeconds`. */
  openWatch(
    resource: ApiResource,
    query: Selection & { resourceVersion: string; timeoutSeconds: number },
    signal: AbortSignal,
  ): Promise<Readable>;
  create<T extends KubernetesObject>(resource: ApiResource<T>, object: T, options?: CallOptions): Promise<T>;
  /** Replaces the object; refused with 409 when `metadata.resourceVersion` is not the newest. */
  replace<T extends KubernetesObject>(resource: ApiResource<T>, object: T, options?: CallOptions): Promise<T>;
  /** Server-side apply: makes or changes the object so that the given fields are as given and owned by `fieldManager`. */
  apply<T extends KubernetesObject>(
    resource: ApiResource<T>,
    object: Partial<T> & KubernetesObject,
    options: CallOptions & { fieldManager: string; force?: boolean; subresource?: "status" },
  ): Promise<T>;
  /** JSON merge patch. With `metadata.resourceVersion` in it, refused with 409 when the object has changed. */
  mergePatch<T extends KubernetesObject>(resource: ApiResource<T>, name: string, patch: object, options?: CallOptions): Promise<T>;
  /** True when there was something to delete. Preconditions that do not hold are refused with 409. */
  delete(
    resource: ApiResource,
    name: string,
    options?: CallOptions & {
      preconditions?: { uid?: string | undefined; resourceVersion?: string | undefined };
      propagationPolicy?: "Background" | "Foreground" | "Orphan";
      gracePeriodSeconds?: number;
    },
  ): Promise<boolean>;
  /**
   * The same API server, with a check right before every request that changes something is sent, repetitions too; what the check throws is thrown
   * instead. Closing it closes the connection of both.
   */
  guarded(beforeWrite: () => void): Kubernetes;
  close(): Promise<void>;
}

export interface KubernetesOptions {
  /** The namespace of the release; where absent that of the pod's service account or of the kubeconfig's context. */
  namespace?: string | undefined;
  env?: Record<string, string | undefined>;
}

const deadlineMs = 15_000;
const maxPauseMs = 10_000;

/** Connects to the API server of this pod, or of `KUBECONFIG` outside a cluster. */
export async function connectKubernetes(options: KubernetesOptions = {}): Promise<Kubernetes> {
  const connection = await openConnection(options.env ?? process.env);
  return kubernetesOver(connection, options.namespace ?? connection.namespace ?? "default");
}

function kubernetesOver(connection: KubernetesConnection, namespace: string, beforeWrite?: () => void): Kubernetes {
  const pathOf = ({ apiVersion, plural }: ApiResource, name?: string, subresource?: string): string =>
    [
      apiVersion.includes("/") ? "/apis" : "/api",
      apiVersion,
      "namespaces",
      namespace,
      plural,
      name && encodeURIComponent(name),
      subresource,
    ]
      .filter((part) => part !== undefined)
      .join("/");
  const call = <T>(method: Method, path: string, given: Sent = {}): Promise<T> => send<T>(connection, method, path, given, beforeWrite);
  return {
    namespace,
    server: connection.server,
    get: (resource, name, given) => call("GET", pathOf(resource, name), { ...given }),
    async listPage<T>(resource: ApiResource, query: object, given?: CallOptions) {
      const page = await call<{ items?: T[]; metadata: { resourceVersion: string; continue?: string } }>("GET", pathOf(resource), {
        ...given,
        query,
      });
      return { items: page.items ?? [], resourceVersion: page.metadata.resourceVersion, continue: page.metadata.continue || undefined };
    },
    async openWatch(resource, query, signal) {
      const path = withQuery(pathOf(resource), { ...query, watch: true, allowWatchBookmarks: true });
      const { statusCode, headers, body } = await open(connection, "GET", path, undefined, undefined, signal);
      if (statusCode === 200) return body;
      throw failure("GET", path, statusCode, headers, await body.text());
    },
    create: (resource, object, given) => call("POST", pathOf(resource), { ...given, body: typed(resource, object) }),
    replace: (resource, object, given) => call("PUT", pathOf(resource, object.metadata.name), { ...given, body: typed(resource, object) }),
    apply: (resource, object, { fieldManager, force = true, subresource, ...given }) =>
      call("PATCH", pathOf(resource, object.metadata.name, subresource), {
        ...given,
        query: { fieldManager, force },
        body: typed(resource, object),
        contentType: "application/apply-patch+yaml",
      }),
    mergePatch: (resource, name, patch, given) =>
      call("PATCH", pathOf(resource, name), { ...given, body: patch, contentType: "application/merge-patch+json" }),
    delete: async (resource, name, { preconditions, propagationPolicy, gracePeriodSeconds, ...given } = {}) =>
      await call("DELETE", pathOf(resource, name), {
        ...given,
        body: { apiVersion: "v1", kind: "DeleteOptions", preconditions, propagationPolicy, gracePeriodSeconds },
      }).then(
        () => true,
        (error: unknown) => {
          if (isNotFound(error)) return false;
          throw error;
        },
      ),
    guarded: (check) => kubernetesOver(connection, namespace, check),
    close: () => connection.close(),
  };
}

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
interface Sent extends CallOptions {
  query?: object;
  body?: object;
  contentType?: string;
}

/** One call: sent, and sent again after the pause a 429 asks for, as long as the deadline is not reached. */
async function send<T>(connection: KubernetesConnection, method: Method, path: string, given: Sent, beforeWrite?: () => void): Promise<T> {
  const deadline = performance.now() + (given.deadlineMs ?? deadlineMs);
  const late = AbortSignal.timeout(given.deadlineMs ?? deadlineMs);
  const signal = given.signal ? AbortSignal.any([given.signal, late]) : late;
  const target = withQuery(path, given.query ?? {});
  for (;;) {
    const { statusCode, headers, text } = await exchange(connection, method, target, given, signal, beforeWrite);
    if (statusCode >= 200 && statusCode < 300) return JSON.parse(text) as T;
    const error = failure(method, target, statusCode, headers, text);
    const pauseMs = Math.min(maxPauseMs, error.retryAfterMs ?? 1_000) * (1 + Math.random() / 4);
    if (statusCode !== 429 || performance.now() + pauseMs >= deadline) throw error;
    await delay(pauseMs, undefined, { signal });
  }
}

async function exchange(
  connection: KubernetesConnection,
  method: Method,
  target: string,
  given: Sent,
  signal: AbortSignal,
  beforeWrite?: () => void,
): Promise<{ statusCode: number; headers: Headers; text: string }> {
  const payload = given.body === undefined ? undefined : JSON.stringify(given.body);
  const { statusCode, headers, body } = await open(connection, method, target, payload, given.contentType, signal, beforeWrite);
  try {
    return { statusCode, headers, text: await body.text() };
  } catch (cause) {
    throw unanswered(method, target, cause);
  }
}

type Headers = Record<string, string | string[] | undefined>;

async function open(
  connection: KubernetesConnection,
  method: Method,
  target: string,
  payload: string | undefined,
  contentType: string | undefined,
  signal: AbortSignal,
  beforeWrite?: () => void,
) {
  const { headers, dispatcher } = await connection.authorize();
  if (method !== "GET") beforeWrite?.();
  try {
    return await request(connection.server + target, {
      method,
      dispatcher,
      signal,
      headers: {
        ...headers,
        accept: "application/json",
        "user-agent": "kapstone",
        ...(payload === undefined ? {} : { "content-type": contentType ?? "application/json" }),
      },
      ...(payload === undefined ? {} : { body: payload }),
    });
  } catch (cause) {
    throw unanswered(method, target, cause);
  }
}

function unanswered(method: Method, target: string, cause: unknown): KubernetesError {
  return new KubernetesError(`${method} ${target} got no answer: ${cause instanceof Error ? cause.message : String(cause)}`, {
    status: 0,
    cause,
  });
}

function failure(method: Method, target: string, status: number, headers: Headers, text: string): KubernetesError {
  const said = readStatus(text);
  const after = Number(headers["retry-after"]);
  return new KubernetesError(`${method} ${target} answered ${status}: ${said.message ?? text.slice(0, 300)}`, {
    status,
    reason: said.reason ?? "",
    retryAfterMs: headers["retry-after"] !== undefined && Number.isFinite(after) ? after * 1_000 : undefined,
  });
}

function readStatus(text: string): { message?: string; reason?: string } {
  try {
    return JSON.parse(text) as { message?: string; reason?: string };
  } catch {
    return {}; // a proxy's words
  }
}

function withQuery(path: string, query: object): string {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  return pairs.length === 0 ? path : `${path}?${new URLSearchParams(pairs.map(([name, value]) => [name, String(value)]))}`;
}

function typed({ apiVersion, kind }: ApiResource, object: object): object {
  return { apiVersion, kind, ...object };
}
