/** What `import { db, store, secrets } from "kap"` gives (decided §7.1). */
import { type Body, type BodyInit, completeBody, extractBody } from "./body.ts";
import { currentRunKey } from "./current-run.ts";
import { answeredBody, type HostHead, nextStreamId, sendStream } from "./fetch.ts";
import { callHost } from "./host.ts";
import {
  bytesToBase64,
  dateToIso,
  freeze,
  hasOwn,
  isArray,
  jsonParse,
  jsonStringify,
  NativeDate,
  NativePromise,
  promiseThen,
  regExpExec,
} from "./primordials.ts";
import { isResponse, moveBody, type Response, responseFromHost } from "./response.ts";
import { viewOf } from "./utf8.ts";
import { RawJson, wireJson } from "./wire-json.ts";

interface QueryResult {
  rows: Record<string, unknown>[];
  row_count: number;
}

/** A query's parameters in the form JSON can carry; the host turns them back. */
function wireParams(params: unknown): RawJson {
  if (params === undefined || params === null) return new RawJson("[]");
  if (!isArray(params)) throw new TypeError("The parameters of a query must be an array.");
  return wireList(params, 0);
}

/** `position` is that of the parameter the list is part of; 0 for the list of all parameters. */
function wireList(values: readonly unknown[], position: number): RawJson {
  let json = "";
  for (let index = 0; index < values.length; index++)
    json += `${index === 0 ? "" : ","}${wireJson(wireParam(values[index], position === 0 ? index + 1 : position))}`;
  return new RawJson(`[${json}]`);
}

function wireParam(value: unknown, position: number): unknown {
  if (value === undefined || value === null) return null;
  if (typeof value === "function" || typeof value === "symbol")
    throw new TypeError(`The parameter $${position} is or holds a ${typeof value}, which has no form in SQL: pass a value, or null.`);
  if (typeof value === "bigint") return `${value}`;
  if (typeof value === "number") return value - value === 0 ? value : `${value}`;
  if (typeof value !== "object") return value;
  const bytes = viewOf(value);
  if (bytes !== null) return { $bytes: bytesToBase64(bytes) };
  if (value instanceof NativeDate) return dateToIso(value);
  if (isArray(value)) return wireList(value, position);
  // Any other object is a json parameter: plain data, which the host encodes by the type that the statement expects there.
  return new RawJson(jsonStringify(value) ?? "null");
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
    const list: unknown[] = [];
    for (let index = 0; index < statements.length; index++) list[index] = statement(statements[index]?.sql, statements[index]?.params);
    const { text } = await callHost(currentRunKey(), "db.batch", { statements: list });
    return jsonParse(text as string) as QueryResult[];
  },
};

const keyOf = (key: unknown): string => {
  if (typeof key !== "string" || key === "") throw new TypeError("A store key must be a string that is not empty.");
  return key;
};

/** A Content-Type that a header can carry. */
function typeOf(given: unknown): string | undefined {
  if (given === undefined || given === null) return undefined;
  const type = `${given as string}`;
  if (regExpExec(/^[\t\x20-\x7e\x80-\xff]*$/, type) === null)
    throw new TypeError("The contentType of a stored object cannot hold line breaks, control characters or characters beyond Latin-1.");
  return type;
}

/** Settles when both have, or fails with the first that does. */
function bothOf(one: Promise<unknown>, other: Promise<unknown>): Promise<void> {
  return new NativePromise<void>((resolve, reject) => {
    let left = 2;
    const settle = (): void => {
      if (--left === 0) resolve();
    };
    promiseThen(one, settle, reject);
    promiseThen(other, settle, reject);
  });
}

interface StoredObject {
  key: string;
  size: number;
  etag?: string;
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
    const contentType = typeOf(options?.contentType) ?? from.type ?? undefined;
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
    await bothOf(call, sendStream(runKey, "store", streamId, from.body));
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
      for (let index = 0; index < page.objects.length; index++) objects[objects.length] = page.objects[index] as StoredObject;
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
