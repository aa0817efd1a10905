import { z } from "zod";
import { outcomes } from "#platform/run-outcome.ts";
import { triggerKinds } from "#platform/trigger-kind.ts";

const actor = z.object({ kind: z.string(), id: z.string(), name: z.string() });
const time = z.iso.datetime();

/** A run on the wire (decided §7.3). */
export const runSchema = z
  .object({
    id: z.uuid(),
    kap_id: z.uuid(),
    version_id: z.uuid().nullable(),
    trigger_id: z.uuid().nullable(),
    trigger_kind: z.enum(triggerKinds),
    status: z.enum(["queued", "running", "succeeded", "failed"]).meta({ description: "succeeded exactly when the outcome is ok" }),
    outcome: z.enum(outcomes).nullable(),
    what_to_do: z.string().meta({ description: "A sentence for a person: what to do about this run" }),
    detail: z.string().nullable().meta({ description: "What the program or the platform said, raw" }),
    message: z.string().meta({ description: "A sentence for a person: what happened" }),
    attempts: z.int(),
    due_at: time.nullable().meta({ description: "Of a schedule's run: the time it stands for; null for run-now" }),
    started_at: time,
    finished_at: time.nullable(),
    duration_ms: z.number().nullable(),
    cpu_ms: z.number().nullable(),
    http_status: z.int().nullable(),
    request_id: z.string().nullable(),
    caller: z.string().nullable(),
    method: z.string().nullable(),
    target: z.string().nullable(),
    phases: z.record(z.string(), z.number()).nullable().meta({ description: "Where the time went, in milliseconds" }),
    acknowledged_by: actor.nullable(),
    acknowledged_at: time.nullable(),
  })
  .meta({ id: "KapRun" });
