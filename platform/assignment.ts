import * as z from "zod";
import { triggerKinds } from "./trigger-kind.ts";

const count = z.number().int().positive();

/** What a run may use (decided §7.2). It comes with every assignment: runtimes have no defaults of their own. */
const limits = z.object({
  memory_mb: count,
  request_wall_ms: count,
  background_wall_ms: count,
  request_cpu_ms: count,
  background_cpu_ms: count,
  request_body_bytes: count,
  response_body_bytes: count,
  concurrency: count,
  queue: z.number().int().nonnegative(),
  fetches: count,
  fetch_bytes: count,
  log_lines: count,
  log_line_bytes: count,
  db_statement_ms: count,
  db_rows: count,
  db_result_bytes: count,
  db_bytes: count,
  store_object_bytes: count,
});
export type KapLimits = z.infer<typeof limits>;

const trigger = z.object({ id: z.string(), kind: z.enum(triggerKinds), file_path: z.string() });
export type AssignedTrigger = z.infer<typeof trigger>;

/** TLS to PostgreSQL: what its certificate must be of: the CA (PEM, else a well-known one) and the host's name, the CA alone, or anything. */
const tls = z.object({ verify: z.enum(["full", "ca", "none"]), ca: z.string().optional() });
export type DatabaseTls = z.infer<typeof tls>;

const database = z.object({
  host: z.string(),
  port: z.number().int(),
  database: z.string(),
  user: z.string(),
  password: z.string(),
  schema: z.string(),
  /** Absent: in plain text. */
  tls: tls.optional(),
});

const size = z.number().int().nonnegative();
const program = z.object({ bundle_bytes: size, map_bytes: size, cache_bytes: size, sha256: z.string() });

const head = z.object({
  iat: z.number(),
  exp: z.number(),
  boot_id: z.string().optional(),
  runtime_id: z.string(),
  kap_id: z.string(),
  org_id: z.string(),
  slug: z.string(),
  name: z.string(),
  address: z.string(),
  revision: z.number().int().nonnegative(),
  version_id: z.string(),
  program,
  triggers: z.array(trigger),
  secrets: z.record(z.string(), z.string()),
  database,
  api: z.object({ url: z.url(), token: z.string() }),
  limits,
});
/** The signed part of an assignment: what a generic runtime needs to become one kap's, beside the program's bytes. Holds secrets, so it is never logged. */
export type AssignmentHead = z.infer<typeof head>;

/** The head's schema, and those within it: each compiles on its first use. */
export const assignmentSchemas = { head, limits, trigger, database, program };
