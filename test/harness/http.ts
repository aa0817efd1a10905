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
    async call({ host, method = "GET", path, headers = {}, body, timeoutMs = 30_000 }) {
      const isRaw = typeof body === "string" || body instanceof Uint8Array;
      const hasJson = body !== undefined && !isRaw;
      const response = await pool.request({
        method: method as "GET",
        path,
        headers: { ...(hasJson ? { "content-type": "application/json" } : {}), ...headers, host },
        body: body === undefined ? null : isRaw ? body : JSON.stringify(body),
        signal: AbortSignal.timeout(timeoutMs),
      });
      const bytes = Buffer.from(await response.body.arrayBuffer());
      const text = bytes.toString("utf8");
      const cookies = response.headers["set-cookie"];
      return {
        status: response.statusCode,
        headers: Object.fromEntries(
          Object.entries(response.headers).map(([name, value]) => [
            name.toLowerCase(),
            Array.isArray(value) ? value.join(", ") : (value ?? ""),
          ]),
        ),
        setCookies: cookies === undefined ? [] : [cookies].flat(),
        bytes,
        text,
        json<T>(): T {
          try {
            return JSON.parse(text) as T;
          } catch (cause) {
            throw new Error(`${method} ${host}${path} answered ${response.statusCode} and no JSON: ${text.slice(0, 500)}`, { cause });
          }
        },
      };
    },
    close: () => pool.destroy(),
  };
}
