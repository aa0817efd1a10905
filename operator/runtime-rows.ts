import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { runtimesChannel } from "#platform/kap-resource.ts";
import { endConnection } from "#platform/lasting-connection.ts";
import type { Logger } from "#platform/log.ts";

/** A row of `runtimes` that names a runtime: who serves which kap, as the gateways know it. */
export interface RuntimeRow {
  id: string;
  kapId: string;
  state: "ready" | "draining";
  control: string;
  /** Seconds from the claim of the slot until the runtime was ready, as first seen. */
  claimSeconds: number;
}

/** The table `runtimes` as it was a moment ago. */
export interface RuntimeRows {
  /** By control address. */
  rows: ReadonlyMap<string, RuntimeRow>;
  /** Milliseconds since it was last read. */
  ageMs: number;
  /** Control addresses that a gateway has given up. */
  discarded: ReadonlySet<string>;
}

export interface RuntimeRowsOptions {
  databaseUrl: string;
  log: Logger;
  signal: AbortSignal;
  /** After each look at the table: what is there now, and what was before. */
  onRead(now: ReadonlyMap<string, RuntimeRow>, before: ReadonlyMap<string, RuntimeRow> | undefined): void;
}

const lookMs = 2_000;
/** Notifications of one moment are answered by one look. */
const gatherMs = 20;
const reconnectMs = 1_000;
const discardedKept = 1_000;

/**
 * Follows the table `runtimes` over a connection of its own: a look on each notification of a gateway, and every 2 s should one be lost. While
 * PostgreSQL is away the last look stays, and a new connection is tried every second.
 */
export function followRuntimeRows(options: RuntimeRowsOptions): {
  current(): RuntimeRows | undefined;
  /** Fulfils after the first look. */
  read: Promise<void>;
  /** The address is another runtime's from now on. */
  forget(control: string): void;
  ended: Promise<void>;
} {
  const { log, signal } = options;
  const discarded = new Set<string>();
  let rows: ReadonlyMap<string, RuntimeRow> | undefined;
  let readAt = 0;
  const firstRead = Promise.withResolvers<void>();

  async function read(client: pg.Client): Promise<void> {
    const { rows: found } = await client.query<{
      id: string;
      kap_id: string;
      state: "ready" | "draining";
      control: string;
      seconds: number;
    }>(
      `select id, kap_id, state, control_address as control,
              greatest(0, extract(epoch from last_used_at - claimed_at))::float8 as seconds
       from kapstone.runtimes where state in ('ready', 'draining') and control_address is not null`,
    );
    const before = rows;
    rows = new Map(
      found.map(({ id, kap_id, state, control, seconds }) => [control, { id, kapId: kap_id, state, control, claimSeconds: seconds }]),
    );
    readAt = performance.now();
    firstRead.resolve();
    options.onRead(rows, before);
  }

  async function follow(): Promise<void> {
    const client = new pg.Client({
      connectionString: options.databaseUrl,
      application_name: "kapstone-operator-runtimes",
      keepAlive: true,
      connectionTimeoutMillis: 5_000,
      query_timeout: 5_000,
    });
    let wake = Promise.withResolvers<void>();
    let lost: Error | undefined;
    const lose = (error?: Error): void => {
      lost ??= error ?? new Error("the connection ended");
      wake.resolve();
    };
    client.on("error", lose);
    client.on("end", () => lose());
    client.on("notification", ({ payload }) => {
      noteDiscarded(payload, discarded);
      wake.resolve();
    });
    const stop = (): void => wake.resolve();
    signal.addEventListener("abort", stop);
    try {
      await client.connect();
      await client.query(`listen ${runtimesChannel}`);
      while (!signal.aborted) {
        wake = Promise.withResolvers();
        await read(client);
        if (lost) throw lost;
        await Promise.race([wake.promise, delay(lookMs, undefined, { signal })]);
        if (!signal.aborted) await delay(gatherMs);
        if (lost) throw lost;
      }
    } finally {
      signal.removeEventListener("abort", stop);
      await endConnection(client).catch(() => undefined);
    }
  }

  async function loop(): Promise<void> {
    while (!signal.aborted) {
      try {
        await follow();
      } catch (error) {
        if (signal.aborted) return;
        log.warn({ err: error }, "the table of runtimes cannot be followed; connecting anew");
        await delay(reconnectMs * (1 + Math.random()), undefined, { signal }).catch(() => undefined);
      }
    }
  }

  return {
    current: () => rows && { rows, ageMs: performance.now() - readAt, discarded },
    read: firstRead.promise,
    forget: (control) => void discarded.delete(control),
    ended: loop(),
  };
}

/** A gateway says `{"discard": "tcp:…"}` of a runtime that it gave up, and anything else of other changes. */
function noteDiscarded(payload: string | undefined, discarded: Set<string>): void {
  if (!payload?.startsWith("{")) return;
  try {
    const { discard } = JSON.parse(payload) as { discard?: unknown };
    if (typeof discard !== "string") return;
    discarded.add(discard);
    const [oldest] = discarded;
    if (discarded.size > discardedKept && oldest !== undefined) discarded.delete(oldest);
  } catch {
    // Not from a gateway; the look that follows tells what there is to know.
  }
}
