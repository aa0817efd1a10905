import { z } from "zod";
import { isId } from "#platform/ids.ts";
import { instant } from "../../http/fields.ts";
import { cursorQuery, limitQuery } from "../../http/page.ts";
import { runSchema } from "./run-schema.ts";

export const kapParams = z.object({ org_id: z.string(), id: z.string() });
export const bareKapParams = z.object({ id: z.string() });
export const runParams = kapParams.extend({ run_id: z.string() });
export const orgParams = z.object({ org_id: z.string() });

/** 20 by default, 100 at most (spec 3 §8). */
export const runsQuery = z.object({
  limit: limitQuery(20, 100),
  cursor: cursorQuery,
  failed_since: instant.optional().meta({ description: "Only runs that failed at or after this time" }),
});

/** Up to 100 newest rows (spec 3 §4 B). */
export const triggerRunsQuery = z.object({
  before: z.string().refine(isId, "must be the id of a run: use the next_cursor of the last page").optional(),
  limit: limitQuery(100, 100),
});

/** Up to 200 rows (spec 3 §8). */
export const logQuery = z.object({ after: z.string().max(1_000).optional(), limit: limitQuery(200, 200) });

const time = z.iso.datetime();
const expiry = z.object({ expired: z.literal(true), expired_at: time });
export const triggerRunSchema = runSchema
  .extend({
    payload: z
      .union([expiry, z.record(z.string(), z.unknown())])
      .nullable()
      .meta({
        description:
          "What the run was given, parsed; after the retention time {expired: true, expired_at}. Null until a mail has been read",
      }),
  })
  .meta({ id: "KapTriggerRun" });

const state = { status: z.enum(["active", "disabled", "deleted"]).meta({ description: "State of the kap" }), message: z.string() };
const page = { next_cursor: z.string().nullable(), has_more: z.boolean() };
export const runsAnswer = z.object({ runs: z.array(runSchema), ...page, ...state });
export const triggerRunsAnswer = z.object({ runs: z.array(triggerRunSchema), ...page });
export const runAnswer = z.object({ run: triggerRunSchema });
export const logAnswer = z.object({
  lines: z.array(z.object({ at: time, run_id: z.uuid(), level: z.string(), text: z.string() })),
  ...page,
  ...state,
});
export const usageAnswer = z.object({
  usage: z.array(
    z.object({
      kap_id: z.uuid(),
      day: z.iso.date(),
      runs: z.int(),
      failed_runs: z.int(),
      cpu_ms: z.number(),
      duration_ms: z.number(),
      db_ms: z.number(),
      db_bytes: z.int(),
      store_bytes: z.int(),
      mail_messages: z.int(),
      egress_bytes: z.int(),
    }),
  ),
  enforced: z.literal(false),
});
