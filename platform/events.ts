import pg from "pg";
import { newId } from "./ids.ts";
import { endConnection, type Pulse, watchConnection } from "./lasting-connection.ts";
import type { Logger } from "./log.ts";
import type { Db, Postgres } from "./postgres.ts";

/** What a service publishes. `subject` narrows who reads it (an agent, a kap), `kind` is the event's public name. */
export interface NewEvent {
  org_id: string;
  kind: string;
  subject?: string;
  payload: object;
}

/** A published event. `position` numbers all events in the order their transactions committed, without gaps: it is the SSE id. */
export interface LoggedEvent {
  position: number;
  id: string;
  org_id: string;
  kind: string;
  subject: string | null;
  payload: Record<string, unknown>;
  created_at: Date;
}

/** Which events a reader wants: one org's, optionally of some subjects or kinds. */
export interface EventFilter {
  org_id: string;
  subjects?: string[];
  kinds?: string[];
}

/**
 * The log of events that SSE, webhooks and change streams read. A row gets its `position` only after its transaction has committed, by a
 * function that holds the counter's row while it numbers: so a reader that stands at position n never misses a row that a slow transaction
 * wrote before n and committed after (a sequence or a time-ordered id at insert would lose it).
 */
export interface EventLog {
  /** Writes an event in the caller's transaction. */
  publish(db: Db, event: NewEvent): Promise<void>;
  /** Events after a position, in order, at most `limit`. */
  read(filter: EventFilter, after: number, limit: number): Promise<LoggedEvent[]>;
  /** The newest position: where a reader without a past starts. */
  head(): Promise<number>;
  /** The oldest position still kept, or the next one when none is; what is asked for before it gets a gap. */
  oldest(): Promise<number>;
  /** Removes what is older than so many hours, always from the front, so that what is kept has no hole. Answers how many. */
  sweep(hours: number): Promise<number>;
  /** Calls `wake` whenever there may be something new. Returns the way to stop. */
  onChange(wake: () => void): () => void;
  close(): Promise<void>;
}

const channel = "kapstone_events";
const fallbackMs = 2_000;
const reconnectMs = 1_000;
const connectMs = 10_000;

/** Opens the event log of a process: one connection that listens, with a look every 2 s should a notification be lost. */
export function openEventLog(postgres: Pick<Postgres, "url" | "knex">, log: Logger, pulse?: Pulse): EventLog {
  const waiters = new Set<() => void>();
  const wakeAll = (): void => {
    for (const wake of [...waiters]) wake();
  };
  let closed = false;
  let listener: pg.Client | null = null;
  let reconnect: NodeJS.Timeout | undefined;
  const listen = async (): Promise<void> => {
    const client = new pg.Client({
      connectionString: postgres.url,
      application_name: "kapstone-events",
      keepAlive: true,
      connectionTimeoutMillis: connectMs,
    });
    const lost = (): void => {
      if (listener !== client) return;
      listener = null;
      endConnection(client).catch(() => undefined);
      if (!closed) reconnect = setTimeout(connect, reconnectMs);
    };
    client.on("error", lost);
    client.on("end", lost);
    client.on("notification", wakeAll);
    listener = client;
    try {
      await client.connect();
      watchConnection(client, pulse);
      await client.query(`listen ${channel}`);
      wakeAll();
    } catch (error) {
      if (!closed) log.warn({ err: error }, "the event log cannot listen; it looks every 2 s until it can");
      lost();
    }
  };
  const connect = (): void => {
    listen().catch((error: unknown) => log.error({ err: error }, "the event log's listener failed"));
  };
  connect();
  const fallback = setInterval(wakeAll, fallbackMs);
  return {
    async publish(db, event) {
      await db.raw(`insert into events (id, org_id, kind, subject, payload) values (?, ?, ?, ?, ?)`, [
        newId(),
        event.org_id,
        event.kind,
        event.subject ?? null,
        JSON.stringify(event.payload),
      ] as string[]);
      await db.raw(`select pg_notify('${channel}', '')`);
    },
    async read(filter, after, limit) {
      await postgres.knex.raw("select number_events()");
      const { rows } = await postgres.knex.raw<{ rows: LoggedEvent[] }>(
        `select position, id, org_id, kind, subject, payload, created_at from events
         where position > ? and org_id = ? and (?::text[] is null or subject = any(?::text[])) and (?::text[] is null or kind = any(?::text[]))
         order by position limit ?`,
        [
          after,
          filter.org_id,
          filter.subjects ?? null,
          filter.subjects ?? null,
          filter.kinds ?? null,
          filter.kinds ?? null,
          limit,
        ] as string[],
      );
      return rows;
    },
    async head() {
      const { rows } = await postgres.knex.raw<{ rows: { head: number }[] }>("select number_events() as head");
      return rows[0]?.head ?? 0;
    },
    async oldest() {
      const { rows } = await postgres.knex.raw<{ rows: { oldest: number }[] }>(
        "select coalesce(min(position), (select last_position + 1 from event_counter)) as oldest from events where position is not null",
      );
      return rows[0]?.oldest ?? 0;
    },
    async sweep(hours) {
      // Up to the first event that is still young: a slow transaction may have put an older one behind it, which goes with the next round.
      const { rowCount } = await postgres.knex.raw<{ rowCount: number }>(
        `with young as (select position from events where position is not null and created_at >= now() - make_interval(hours => :hours)
                        order by position limit 1)
         delete from events where position < coalesce((select position from young), (select last_position + 1 from event_counter))`,
        { hours } as never,
      );
      return rowCount;
    },
    onChange(wake) {
      waiters.add(wake);
      return () => waiters.delete(wake);
    },
    async close() {
      closed = true;
      clearInterval(fallback);
      clearTimeout(reconnect);
      const client = listener;
      listener = null;
      if (client) await endConnection(client).catch(() => undefined);
    },
  };
}
