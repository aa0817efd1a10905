import type { Outcome } from "#platform/run-outcome.ts";
import type { TriggerKind } from "#platform/trigger-kind.ts";
import type { Actor } from "../../http/caller.ts";

/** `succeeded` exactly when the outcome is `ok`, `failed` with every other outcome. */
export type RunStatus = "queued" | "running" | "succeeded" | "failed";

/** A run as PostgreSQL keeps it. */
export interface RunRow {
  id: string;
  kap_id: string;
  org_id: string;
  version_id: string | null;
  trigger_id: string | null;
  trigger_kind: TriggerKind;
  status: RunStatus;
  outcome: Outcome | null;
  detail: string | null;
  message: string | null;
  attempts: number;
  due_at: Date | null;
  started_at: Date;
  finished_at: Date | null;
  duration_ms: number | null;
  cpu_ms: number | null;
  http_status: number | null;
  request_id: string | null;
  caller: string | null;
  method: string | null;
  target: string | null;
  runtime_id: string | null;
  phases: Record<string, number> | null;
  acknowledged_by: Actor | null;
  acknowledged_at: Date | null;
}
