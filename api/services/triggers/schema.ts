import { z } from "zod";
import { outcomes } from "#platform/run-outcome.ts";
import { triggerKinds } from "#platform/trigger-kind.ts";
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
    kind: z.enum(triggerKinds),
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

const headerName = z.string().regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$/, "is not a header name");
const headerValue = z
  .string()
  .max(8_192)
  .regex(/^[\t\x20-\x7e\x80-\xff]*$/, "is not a header value");
/** Fields that the connection or the platform sets. */
const ownHeader =
  /^(?:host|connection|content-length|transfer-encoding|keep-alive|te|trailer|upgrade|expect|proxy-.*|x-kapstone-.*|x-kap-caller)$/i;

/** What a dry run is given: the fields of the trigger's kind, no others. */
export const dryRunBody = z
  .strictObject({
    mail: z.string().min(1).optional().meta({ description: "Inbox: the raw mail (RFC 5322) as text; its line ends become CRLF" }),
    mail_base64: z.string().min(1).optional().meta({ description: "Inbox: the raw mail as bytes, in base64" }),
    envelope: z
      .strictObject({ from: z.string().max(1_000), remote_address: z.union([z.ipv4(), z.ipv6()]), helo: z.string().max(1_000) })
      .partial()
      .optional()
      .meta({ description: "Inbox: who sent it, for SPF and DMARC; you, from 127.0.0.1, when absent. An empty `from` is a bounce" }),
    scheduled_at: z.iso
      .datetime({ offset: true })
      .optional()
      .meta({ description: "Schedule: the time the run stands for; now when absent" }),
    method: z
      .enum(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
      .optional()
      .meta({ description: "Request: GET when absent" }),
    path: z
      .string()
      .max(8_192)
      .regex(/^\/[\x21\x22\x24-\x7e]*$/, "must start with / and be ASCII without spaces: encode the rest")
      .refine((path) => !path.startsWith("/__kaps/"), "paths below /__kaps/ belong to the platform")
      .optional()
      .meta({ description: "Request: path and query; / when absent" }),
    headers: z
      .record(
        headerName.refine((name) => !ownHeader.test(name), "is set by the platform"),
        z.union([headerValue, z.array(headerValue).max(20)]),
      )
      .refine((headers) => Object.keys(headers).length <= 100, "at most 100 headers")
      .optional()
      .meta({ description: "Request: as the program is to see them" }),
    body: z.string().optional().meta({ description: "Request: the body as text" }),
    body_base64: z.string().optional().meta({ description: "Request: the body as bytes, in base64" }),
  })
  .meta({ id: "KapDryRun" });

const toldError = z.string().nullable().meta({ description: "What the program was told; null where it went well" });
const effect = z.discriminatedUnion("kind", [
  z.object({
    kind: z.literal("db"),
    sql: z.string(),
    row_count: z.int().nullable(),
    batch: z.int().nullable().meta({ description: "The number of the db.batch it stood in" }),
    error: toldError,
  }),
  z.object({
    kind: z.literal("store.put"),
    key: z.string(),
    existed: z.boolean().nullable(),
    bytes: z.int().nullable(),
    content_type: z.string().nullable(),
    error: toldError,
  }),
  z.object({ kind: z.literal("store.delete"), key: z.string(), existed: z.boolean().nullable(), error: toldError }),
  z.object({ kind: z.literal("fetch"), method: z.string(), url: z.string() }).meta({ description: "Refused, and not sent" }),
  z.object({ kind: z.literal("wait-until") }),
]);

export const dryRunAnswer = z
  .object({
    outcome: z.enum(outcomes),
    detail: z.string().nullable(),
    what_to_do: z.string(),
    http: z
      .object({
        status: z.int(),
        headers: z.array(z.tuple([z.string(), z.string()])),
        body: z.string().nullable(),
        body_base64: z.string().nullable().meta({ description: "In place of `body` where that is no UTF-8 text" }),
      })
      .nullable()
      .meta({ description: "Of a request: what its caller would have been answered" }),
    effects: z.array(effect).meta({ description: "What the program did or tried, in its order; at most 1,000" }),
    effects_dropped: z.int(),
    lines: z.array(z.object({ n: z.int(), at: time, level: z.string(), text: z.string() })),
    duration_ms: z.number(),
    cpu_ms: z.number(),
  })
  .meta({ id: "KapDryRunReport" });
