import pg from "pg";
import { runtimesChannel } from "#platform/kap-resource.ts";
import type { Logger } from "#platform/log.ts";

const idleMs = 30_000;
const deadlineMs = 5_000;

/**
 * Tells the operator of changes in the table of runtimes, off the path of calls and over a connection of its own. Notices of one moment become one
 * statement. One that is lost does no harm: the operator looks by itself every two seconds.
 */
export function createRuntimeNotices(databaseUrl: string, log: Logger): { tell(discarded?: string): void; close(): Promise<void> } {
  const pool = new pg.Pool({
    connectionString: databaseUrl,
    application_name: "kapstone-runtime-notices",
    max: 1,
    idleTimeoutMillis: idleMs,
    connectionTimeoutMillis: deadlineMs,
    query_timeout: deadlineMs,
  });
  pool.on("error", () => undefined); // the next notice opens another connection
  const waiting = new Set<string>();
  let sending: Promise<void> | null = null;

  const send = async (): Promise<void> => {
    while (waiting.size > 0) {
      const payloads = [...waiting];
      waiting.clear();
      await pool.query("select pg_notify($1, payload) from unnest($2::text[]) as payload", [runtimesChannel, payloads]);
    }
  };
  return {
    tell(discarded) {
      waiting.add(discarded === undefined ? "" : JSON.stringify({ discard: discarded }));
      sending ??= send()
        .catch((error: unknown) => {
          waiting.clear();
          log.warn({ err: error }, "the operator was not told of a claim; it finds out by itself");
        })
        .finally(() => {
          sending = null;
        });
    },
    async close() {
      await sending;
      await pool.end();
    },
  };
}
