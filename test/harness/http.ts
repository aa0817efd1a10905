import { Pool } from "undici";

/** A request of a test. `host` is the Host header; the connection goes to the platform under test whatever it says. */
export interface Call {
  host: string;
  method?: "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" | (string & {});
  /** Path with query, sent as it is. */
  path: string;
  headers?: Record<string, string | string[]>;
  /** A string or bytes are sent as they are; anything else as JSON with its content type. */
  body?: unknown;
  timeoutMs?: number;
}

export interface Answer {
  status: number;
  /** Names in lower case; several of one name joined by ", ". */
  headers: Record<string, string>;
  /** Every `set-cookie` apart. */
  setCookies: string[];
  bytes: Buffer;
  text: string;
  /** The body read as JSON. Throws with status and text when it is none. */
  json<T = Record<string, unknown>>(): T;
}

/** A client of one address on loopback, with connections kept alive. */
export interface HttpClient {
  call(request: Call): Promise<Answer>;
  close(): Promise<void>;
}

/** Opens a client to `origin` (`http://127.0.0.1:PORT`). Redirects are answers, nothing is decompressed, nothing is retried. */
export function openHttpClient(origin: string, options: { connections?: number } = {}): HttpClient {
  const pool = new Pool(origin, { connections: options.connections ?? 64, keepAliveTimeout: 4_000, keepAliveMaxTimeout: 4_000 });
  return {
    async call(call) {
      const { host, method = "GET", path, headers = {}, timeoutMs = 30_000 } = call;
      const { body, type } = writeBody(call.body);
      const response = await pool.request({
        method: method as "GET",
        path,
        headers: { ...type, ...headers, host },
        body,
        signal: AbortSignal.timeout(timeoutMs),
      });
      return readAnswer(call, response.statusCode, response.headers, Buffer.from(await response.body.arrayBuffer()));
    },
    close: () => pool.destroy(),
  };
}

/** A call's body as it is sent, and the header that says what it is. */
export function writeBody(body: unknown): { body: string | Uint8Array | null; type: Record<string, string> } {
  if (body === undefined) return { body: null, type: {} };
  if (typeof body === "string" || body instanceof Uint8Array) return { body, type: {} };
  return { body: JSON.stringify(body), type: { "content-type": "application/json" } };
}

/** What came back as an answer. */
export function readAnswer(
  { method = "GET", host, path }: Call,
  status: number,
  headers: Record<string, string | string[] | undefined>,
  bytes: Buffer,
): Answer {
  const text = bytes.toString("utf8");
  const cookies = headers["set-cookie"];
  return {
    status,
    headers: Object.fromEntries(
      Object.entries(headers).map(([name, value]) => [name.toLowerCase(), Array.isArray(value) ? value.join(", ") : (value ?? "")]),
    ),
    setCookies: cookies === undefined ? [] : [cookies].flat(),
    bytes,
    text,
    json<T>(): T {
      try {
        return JSON.parse(text) as T;
      } catch (cause) {
        throw new Error(`${method} ${host}${path} answered ${status} and no JSON: ${text.slice(0, 500)}`, { cause });
      }
    },
  };
}
