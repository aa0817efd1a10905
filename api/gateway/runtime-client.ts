import { Pool } from "undici";

/** A connection pool to one listener of a runtime: `unix:/path` or `tcp:host:port`. */
export function connectRuntime(address: string, options: { connections: number }): Pool {
  const settings = {
    connections: options.connections,
    pipelining: 1,
    connectTimeout: 2_000,
    headersTimeout: 0,
    bodyTimeout: 0,
    keepAliveTimeout: 60_000,
  };
  if (address.startsWith("unix:")) return new Pool("http://runtime", { ...settings, socketPath: address.slice("unix:".length) });
  if (address.startsWith("tcp:")) return new Pool(`http://${address.slice("tcp:".length)}`, settings);
  throw new Error(`${address} is not an address of a runtime: it must start with unix: or tcp:`);
}

const pools = new Map<string, Pool>();

/** The pool of a runtime's data listener; kept while the runtime is known. */
export function dataPool(address: string): Pool {
  let pool = pools.get(address);
  if (!pool) {
    pool = connectRuntime(address, { connections: 256 });
    pools.set(address, pool);
  }
  return pool;
}

/** Forgets a runtime: its idle connections are closed. */
export function forgetDataPool(address: string): void {
  const pool = pools.get(address);
  pools.delete(address);
  pool?.close().catch(() => undefined);
}

/** Closes all connections to runtimes. */
export async function closeDataPools(): Promise<void> {
  const all = [...pools.values()];
  pools.clear();
  await Promise.all(all.map((pool) => pool.destroy()));
}

/** One request to a runtime's control listener; answers status and parsed JSON. */
export async function control(
  address: string,
  method: "GET" | "POST",
  path: string,
  body: string | Buffer | undefined,
  timeoutMs: number,
): Promise<{ status: number; body: unknown }> {
  const pool = connectRuntime(address, { connections: 1 });
  try {
    const response = await pool.request({ method, path, ...(body === undefined ? {} : { body }), signal: AbortSignal.timeout(timeoutMs) });
    const text = await response.body.text();
    return { status: response.statusCode, body: text === "" ? null : JSON.parse(text) };
  } finally {
    await pool.destroy();
  }
}
