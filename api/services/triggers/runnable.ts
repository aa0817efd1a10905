import type { KapRow } from "../kaps/kap.ts";

/** What decides whether a queued run may still be carried out. */
export interface Runnable extends Pick<KapRow, "slug" | "state" | "disabled"> {
  trigger_deleted_at: Date | null;
}

/** Why a queued run is not carried out after all: its kap or trigger is no longer to run anything. Null when it may. */
export function refusalToRun(run: Runnable): { outcome: "refused"; detail: string } | null {
  if (run.state === "deleted") return { outcome: "refused", detail: `the kap ${run.slug} was deleted before the run began` };
  if (run.state === "disabled" && run.disabled) {
    const { by, at, reason } = run.disabled;
    return { outcome: "refused", detail: `the kap ${run.slug} was disabled by ${by.name} at ${at}: ${reason}` };
  }
  if (run.trigger_deleted_at !== null) return { outcome: "refused", detail: "the trigger was deleted before the run began" };
  return null;
}
