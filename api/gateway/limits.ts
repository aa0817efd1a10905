import type { KapLimits } from "#platform/assignment.ts";
import type { ApiConfig } from "../config.ts";

const mebibyte = 1024 * 1024;

/** Body of a call to a kap, at most. */
export const requestBodyBytes = 2 * mebibyte;
/** An object in a kap's file store, at most. */
export const storeObjectBytes = 30 * mebibyte;
/** One statement of a kap's database, at most. */
export const statementLimits = { statementMs: 5_000, rows: 10_000, resultBytes: 8 * mebibyte } as const;

/** What a kap's database may hold (decided §7.2). */
export const databaseBytes = (config: ApiConfig): number => config.databaseQuotaMb * mebibyte;

/** The limits of a deployment: those that operators set, and the contract's own. */
export function kapLimits(config: ApiConfig): KapLimits {
  return {
    memory_mb: config.memoryMb,
    request_wall_ms: config.requestWallMs,
    background_wall_ms: config.backgroundWallMs,
    request_cpu_ms: config.requestCpuMs,
    background_cpu_ms: config.backgroundCpuMs,
    request_body_bytes: requestBodyBytes,
    response_body_bytes: 10 * mebibyte,
    concurrency: config.concurrency,
    queue: config.queue,
    fetches: 50,
    fetch_bytes: 10 * mebibyte,
    log_lines: 1_000,
    log_line_bytes: 8_192,
    db_statement_ms: statementLimits.statementMs,
    db_rows: statementLimits.rows,
    db_result_bytes: statementLimits.resultBytes,
    db_bytes: databaseBytes(config),
    store_object_bytes: storeObjectBytes,
  };
}
