import { z } from "zod";
import { outcomes } from "../runs/run.ts";
import { runSchema } from "../runs/run-schema.ts";

export const kapParams = z.object({ org_id: z.string(), id: z.string() });
export const triggerParams = kapParams.extend({ trigger_id: z.string() });

const filePath = z.string().min(1).max(1_024);

const schedule = {
  kind: z.literal("schedule"),
  file_path: filePath,
};

/** What makes a trigger. A schedule has either `cron` or `interval_seconds`. */
export const createTrigger = z.discriminatedUnion("kind", [
  z
    .strictObject({
      ...schedule,
      cron: z
        .string()
        .max(1_000)
        .optional()
        .meta({ description: "Five numeric fields in UTC: minute, hour, day of month, month, day of week" }),
      interval_seconds: z.int().min(1).max(31_622_400).optional().meta({ description: "Counted from the trigger's creation" }),
    })
    .refine((body) => (body.cron === undefined) !== (body.interval_seconds === undefined), {
      path: ["cron"],
      message: "a schedule needs either cron or interval_seconds, not both",
    }),
  z.strictObject({
    kind: z.literal("inbox"),
    file_path: filePath,
    auto_replies: z.boolean().default(false).meta({ description: "Whether automatic replies and bounces run the kap too" }),
  }),
  z.strictObject({ kind: z.literal("request"), file_path: filePath }),
]);

/** What changes the request trigger. */
export const changeRequestTrigger = z.strictObject({ kind: z.literal("request"), file_path: filePath, enabled: z.boolean() });

const actor = z.object({ kind: z.string(), id: z.string(), name: z.string() });
const time = z.iso.datetime();

export const triggerSchema = z
  .object({
    id: z.uuid(),
    kap_id: z.uuid(),
    kind: z.enum(["request", "schedule", "inbox"]),
    file_path: z.string(),
    enabled: z.boolean(),
    cron: z.string().nullable().optional(),
    interval_seconds: z.int().nullable().optional(),
    next_runs: z.array(time).optional().meta({ description: "The next five times of a schedule; empty while it is paused" }),
    auto_replies: z.boolean().optional(),
    next_run_at: time.nullable(),
    last_run_at: time.nullable(),
    last_outcome: z.enum(outcomes).nullable(),
    created_at: time,
    created_by: actor,
    paused_by: actor.nullable(),
    paused_at: time.nullable(),
  })
  .meta({ id: "KapTrigger" });

export const triggersAnswer = z.object({
  triggers: z.array(triggerSchema),
  mail_address: z.string().meta({ description: "The kap's inbox; mail is taken while it has an inbox trigger" }),
  limits: z.record(z.string(), z.number()),
});
export const triggerAnswer = z.object({ trigger: triggerSchema });
export const runNowAnswer = z.object({ run: runSchema });
