import type { EventLog } from "#platform/events.ts";
import type { Keyring } from "#platform/keyring.ts";
import type { Logger } from "#platform/log.ts";
import type { Metrics, ReadinessChecks } from "#platform/metrics.ts";
import type { ObjectStore } from "#platform/objects/store.ts";
import type { Db, Knex, Postgres } from "#platform/postgres.ts";
import type { ApiConfig } from "./config.ts";
import type { RuntimePool } from "./gateway/pool.ts";
import type { Addresses } from "./http/hosts.ts";
import type { Jwt } from "./http/jwt.ts";
import type { RateLimiter } from "./http/rate-limit.ts";
import type { OutgoingMail } from "./mail.ts";
import type { Builder } from "./services/kaps/build/builder.ts";

/** What every route and job may use: made once at start, passed down, never imported as a global. */
export interface Deps {
  config: ApiConfig;
  log: Logger;
  metrics: Metrics;
  postgres: Postgres;
  /** The general pool (also reachable as `postgres.knex`). */
  db: Knex;
  objects: ObjectStore;
  events: EventLog;
  keyring: Keyring;
  addresses: Addresses;
  jwt: Jwt;
  limiter: RateLimiter;
  mail: OutgoingMail;
  builder: Builder;
  pool: RuntimePool;
  /** Tells the desired state of kaps to whoever realises it: nothing to do on a laptop, `Kap` resources in a cluster. In the caller's transaction. */
  kapChanged(db: Db, kapId: string): Promise<void>;
  /** What readiness asks besides the parts that every deployment has: whatever the ports add, and whether this process is leaving. */
  checks: ReadinessChecks;
}
