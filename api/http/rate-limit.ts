import type pg from "pg";
import { refuse } from "./refusal.ts";

/** The state of a bucket after a request was counted, for the RateLimit headers. */
export interface RateState {
  allowed: boolean;
  limit: number;
  remaining: number;
  /** Seconds to the end of the window. */
  resetSeconds: number;
}

/** Counts requests per bucket and minute, right across all replicas. */
export interface RateLimiter {
  /** Counts one request of `bucket` (a credential, an address, an email) against `limit` a window (a minute unless told). */
  take(bucket: string, limit: number, windowSeconds?: number): Promise<RateState>;
  /** The state of a minute bucket this replica already knows to be spent, else null: a refusal that costs no statement. */
  spent(bucket: string): RateState | null;
}

interface Lease {
  windowStart: number;
  left: number;
  /** Taken by all replicas when this lease was granted. */
  taken: number;
  exhausted: boolean;
}

const blockShare = 20;
const maxBuckets = 100_000;

/**
 * Replicas lease blocks of a twentieth of the limit from PostgreSQL, so that the hot path writes nothing. The sum of all leases never exceeds
 * the limit, so no overshoot; a caller spread over n replicas may be refused up to (n - 1) blocks early. Limits below 20 are counted one by one.
 * Windows are fixed minutes: across a boundary up to twice the limit can pass within one minute.
 */
export function createRateLimiter(pool: pg.Pool, clock: () => number = Date.now): RateLimiter {
  const leases = new Map<string, Lease>();
  const pending = new Map<string, Promise<Lease>>();

  async function lease(bucket: string, limit: number, windowStart: number): Promise<Lease> {
    const block = Math.max(1, Math.floor(limit / blockShare));
    const { rows } = await pool.query<{ taken: number }>({
      name: "rate-lease",
      text: `insert into rate_windows (bucket, window_start, taken) values ($1, to_timestamp($2), $3)
             on conflict (bucket, window_start) do update set taken = rate_windows.taken + $3 returning taken`,
      values: [bucket, windowStart, block],
    });
    const before = (rows[0]?.taken ?? block) - block;
    const granted = Math.max(0, Math.min(block, limit - before));
    return { windowStart, left: granted, taken: before + granted, exhausted: granted === 0 };
  }

  return {
    spent(bucket) {
      const current = leases.get(bucket);
      const now = clock() / 1000;
      if (!current?.exhausted || current.windowStart !== Math.floor(now / 60) * 60) return null;
      return { allowed: false, limit: current.taken, remaining: 0, resetSeconds: Math.max(1, Math.ceil(current.windowStart + 60 - now)) };
    },
    async take(bucket, limit, windowSeconds = 60) {
      const now = clock() / 1000;
      const windowStart = Math.floor(now / windowSeconds) * windowSeconds;
      const resetSeconds = Math.max(1, Math.ceil(windowStart + windowSeconds - now));
      for (;;) {
        let current = leases.get(bucket);
        if (!current || current.windowStart !== windowStart || (current.left === 0 && !current.exhausted)) {
          const key = `${bucket} ${windowStart}`;
          let request = pending.get(key);
          if (!request) {
            request = lease(bucket, limit, windowStart).finally(() => pending.delete(key));
            pending.set(key, request);
            request.then(
              (granted) => {
                if (leases.size >= maxBuckets) leases.clear();
                leases.set(bucket, granted);
              },
              () => undefined,
            );
          }
          current = await request;
        }
        if (current.exhausted) return { allowed: false, limit, remaining: 0, resetSeconds };
        if (current.left > 0) {
          current.left -= 1;
          return { allowed: true, limit, remaining: Math.max(0, limit - current.taken + current.left), resetSeconds };
        }
      }
    },
  };
}

/** The `RateLimit-*` headers of a state. */
export function rateHeaders(state: RateState): Record<string, string> {
  return {
    "ratelimit-limit": String(state.limit),
    "ratelimit-remaining": String(state.remaining),
    "ratelimit-reset": String(state.resetSeconds),
  };
}

/** 429 with `Retry-After`. */
export function checkRate(state: RateState, what: string): void {
  if (state.allowed) return;
  throw refuse("RATE_LIMITED", `more than ${state.limit} ${what}: wait ${state.resetSeconds} s and try again`, {
    headers: { ...rateHeaders(state), "retry-after": String(state.resetSeconds) },
  });
}

/** Removes windows that are over. */
export async function sweepRateWindows(pool: pg.Pool): Promise<void> {
  await pool.query(`delete from rate_windows where window_start < now() - interval '2 hours'`);
}
