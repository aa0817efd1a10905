import pg from "pg";
import { DatabaseQuota } from "#platform/database-quota.ts";
import { checkStatement, loadSqlGuard, SqlRefusal } from "#platform/sql-guard.ts";
import { databaseRefusal, pastCatalogRace, runStatement, type SqlResult } from "#platform/sql-statement.ts";
import type { SqlParameter } from "#platform/sql-values.ts";
import type { Deps } from "../../deps.ts";
import { databaseBytes, statementLimits } from "../../gateway/limits.ts";
import { Refusal } from "../../http/refusal.ts";
import type { KapRow } from "../kaps/kap.ts";

const maxKaps = 200;
const limits = { rows: statementLimits.rows, bytes: statementLimits.resultBytes };

/** Pools of the kaps whose data this process reads and writes, least recently used first. Each logs in as the kap's own role. */
const pools = new Map<string, KapPool>();

interface KapPool {
  pool: pg.Pool;
  /** Measured in this process; the kap's runtime measures for itself. */
  quota: DatabaseQuota;
}

function poolOf(deps: Deps, kap: KapRow): KapPool {
  const key = `${kap.id} ${kap.role_password.subarray(-16).toString("hex")}`;
  const known = pools.get(key);
  pools.delete(key);
  const pool = known ?? openPool(deps, kap);
  pools.set(key, pool);
  if (pools.size > maxKaps) {
    const [oldest, evicted] = pools.entries().next().value ?? [];
    if (oldest !== undefined) pools.delete(oldest);
    evicted?.pool.end().catch(() => undefined);
  }
  return pool;
}

/** How to log in as the kap's own role. */
function loginOf(deps: Deps, kap: KapRow): pg.ClientConfig {
  const url = new URL(deps.config.databaseUrl);
  url.username = kap.role_name;
  url.password = encodeURIComponent(deps.keyring.open(kap.role_password, `kap-role:${kap.id}`));
  return {
    connectionString: url.href,
    connectionTimeoutMillis: 5_000,
    application_name: "kapstone-kap-data",
    options: `-c search_path=${kap.schema_name}`,
  };
}

/** A connection as the kap's role outside the pool, for what takes as long as its reader: a dump. The caller ends it. */
export async function openKapClient(deps: Deps, kap: KapRow): Promise<pg.Client> {
  const client = new pg.Client(loginOf(deps, kap));
  client.on("error", () => undefined);
  await client.connect();
  return client;
}

function openPool(deps: Deps, kap: KapRow): KapPool {
  const pool = new pg.Pool({
    ...loginOf(deps, kap),
    max: 3,
    idleTimeoutMillis: 10_000,
    query_timeout: statementLimits.statementMs + 2_000,
  });
  pool.on("error", () => undefined);
  pool.on("connect", (client) => client.on("error", () => undefined));
  const quota = new DatabaseQuota(kap.schema_name, databaseBytes(deps.config), (error) =>
    deps.log.warn({ err: error, kap_id: kap.id }, "the size of a kap's database could not be measured"),
  );
  return { pool, quota };
}

/** Ends the pools of all kaps; for the process's own end. */
export async function closeKapConnections(): Promise<void> {
  const all = [...pools.values()];
  pools.clear();
  await Promise.all(all.map(({ pool }) => pool.end()));
}

/** Work as the kap's own role, on a connection of its own. What PostgreSQL or the contract's SQL rules refuse becomes 422 with the rule's code. */
export async function asKap<T>(deps: Deps, kap: KapRow, work: (client: pg.PoolClient, from: KapPool) => Promise<T>): Promise<T> {
  await loadSqlGuard();
  const from = poolOf(deps, kap);
  const client = await from.pool.connect();
  let broken: Error | undefined;
  try {
    return await work(client, from);
  } catch (error) {
    const known = error instanceof SqlRefusal ? error : databaseRefusal(error);
    if (known instanceof SqlRefusal) throw new Refusal(known.status, known.code, known.message, { details: known.details, cause: error });
    broken = error instanceof Error ? error : new Error(String(error));
    throw error;
  } finally {
    client.release(broken);
  }
}

/**
 * Runs exactly one statement by the contract's SQL rules. `readOnly` runs it in a transaction that cannot write. A database that is over its size takes
 * nothing that could make it grow: 422 `QUOTA_EXCEEDED`.
 */
export async function runAsKap(
  deps: Deps,
  kap: KapRow,
  sql: string,
  params: SqlParameter[],
  options: { readOnly: boolean },
): Promise<SqlResult> {
  return asKap(deps, kap, async (client, { pool, quota }) => {
    const effect = checkStatement(sql);
    const mustRead = options.readOnly || (await quota.admit(effect, client));
    try {
      if (!mustRead) return await pastCatalogRace(() => runStatement(client, sql, params, limits));
      await client.query("begin read only");
      try {
        return await runStatement(client, sql, params, limits);
      } finally {
        await client.query("rollback");
      }
    } catch (error) {
      throw quota.shown(error, mustRead && !options.readOnly);
    } finally {
      quota.ran(effect, pool);
    }
  });
}
