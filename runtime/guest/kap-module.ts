/** What `import { db, store, secrets } from "kap"` gives (decided §7.1). */
import { type Body, type BodyInit, completeBody, extractBody } from "./body.ts";
import { currentRunKey } from "./current-run.ts";
import { answeredBody, type HostHead, nextStreamId, sendStream } from "./fetch.ts";
import { callHost } from "./host.ts";
import { freeze, hasOwn, isArray, jsonParse, jsonStringify } from "./primordials.ts";
import { isResponse, moveBody, type Response, responseFromHost } from "./response.ts";
import { viewOf } from "./utf8.ts";

interface QueryResult {
  rows: Record<string, unknown>[];
  row_count: number;
}

/** A query's parameters in the form JSON can carry; the host turns them back. */
function wireParams(params: unknown): unknown[] {
  if (params === undefined || params === null) return [];
  if (!isArray(params)) throw new TypeError("The parameters of a query must be an array.");
  const wire: unknown[] = [];
  for (let index = 0; index < params.length; index++) wire[index] = wireParam(params[index]);
  return wire;
}

function wireParam(value: unknown): unknown {
  if (value === undefined || value === null || typeof value === "function" || typeof value === "symbol") return null;
  if (typeof value === "bigint") return `${value}`;
  if (typeof value === "number") return Number.isFinite(value) ? value : `${value}`;
  if (typeof value !== "object") return value;
  const bytes = viewOf(value);
  if (bytes !== null) return { $bytes: bytes.toBase64() };
  if (value instanceof Date) return value.toISOString();
  if (isArray(value)) return value.map(wireParam);
  // Any other object is a json parameter: plain data, which the host encodes by the type that the statement expects there.
  return jsonParse(jsonStringify(value) ?? "null");
}

const statement = (sql: unknown, params: unknown) => {
  if (typeof sql !== "string") throw new TypeError("The SQL must be a string.");
  return { sql, params: wireParams(params) };
};

const db = {
  /** Runs one statement with `$1`-style parameters. */
  async query(sql: string, params?: unknown[]): Promise<QueryResult> {
    const { text } = await callHost(currentRunKey(), "db.query", statement(sql, params));
    return jsonParse(text as string) as QueryResult;
  },

  /** Runs several statements in one transaction: all or none. */
  async batch(statements: { sql: string; params?: unknown[] }[]): Promise<QueryResult[]> {
    if (!isArray(statements)) throw new TypeError("db.batch needs an array of {sql, params}.");
    const { text } = await callHost(currentRunKey(), "db.batch", {
      statements: statements.map((one) => statement(one?.sql, one?.params)),
    });
    return jsonParse(text as string) as QueryResult[];
  },
};

const keyOf = (key: unknown): string => {
  if (typeof key !== "string" || key === "") throw new TypeError("A store key must be a string that is not empty.");
  return key;
};

interface StoredObject {
  key: string;
  size: number;
  etag?: string;
  content_type?: string;
  last_modified?: string;
}

const store = {
  /** The object as a Response, or null when there is none. */
  async get(key: string): Promise<Response | null> {
    const runKey = currentRunKey();
    const streamId = nextStreamId();
    const { text, bytes } = await callHost(runKey, "store.get", { key: keyOf(key), streamId });
    const head = jsonParse(text as string) as HostHead;
    if (head.status === 404) return null;
    return responseFromHost(
      head,
      answeredBody(head, bytes, { runKey, pull: "store.pull", cancel: "store.cancel", argument: { streamId }, signal: null }),
    );
  },

  /** Writes an object. Without `contentType` the body's own is kept, else it is application/octet-stream. */
  async put(key: string, value: BodyInit | Response, options: { contentType?: string } = {}): Promise<void> {
    const runKey = currentRunKey();
    const from = isResponse(value) ? moveBody(value) : ownType(extractBody(value ?? ""));
    const contentType = options?.contentType ?? from.type ?? undefined;
    const complete = completeBody(from.body);
    if (complete !== undefined || from.body.isEmpty) {
      const text = typeof complete === "string" ? complete : undefined;
      await callHost(
        runKey,
        "store.put",
        { key: keyOf(key), contentType, bodyKind: "full", text },
        typeof complete === "string" ? undefined : complete,
      );
      return;
    }
    const streamId = nextStreamId();
    const call = callHost(runKey, "store.put", { key: keyOf(key), contentType, bodyKind: "stream", streamId });
    await Promise.all([call, sendStream(runKey, "store", streamId, from.body)]);
  },

  /** Removes an object; one that is not there is no error. */
  async delete(key: string): Promise<void> {
    await callHost(currentRunKey(), "store.delete", { key: keyOf(key) });
  },

  /** Every object whose key begins with the prefix, in key order, over all pages. */
  async list(options: { prefix?: string } = {}): Promise<{ objects: StoredObject[] }> {
    const runKey = currentRunKey();
    const prefix = options?.prefix === undefined ? undefined : `${options.prefix}`;
    const objects: StoredObject[] = [];
    let cursor: string | undefined;
    do {
      const { text } = await callHost(runKey, "store.list", { prefix, cursor });
      const page = jsonParse(text as string) as { objects: StoredObject[]; next: string | null };
      for (const object of page.objects) objects.push(object);
      cursor = page.next ?? undefined;
    } while (cursor !== undefined);
    return { objects };
  },
};

const ownType = (body: Body) => ({ body, type: body.type });

let values: Record<string, string> = {};
/** The host sets the secrets anew: at load and whenever they change. */
export function setSecrets(json: string): void {
  values = jsonParse(json) as Record<string, string>;
}

const secrets = {
  /** The secret's value, or undefined when the kap has none of that name. */
  get(name: string): string | undefined {
    return hasOwn(values, name) ? values[name] : undefined;
  },
};

/** The module's namespace: frozen, so that one run cannot put a listener between another and its database. */
export const kapModule = freeze({ __proto__: null, db: freeze(db), store: freeze(store), secrets: freeze(secrets) });
