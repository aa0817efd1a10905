import type { Deps } from "../deps.ts";
import { control } from "./runtime-client.ts";

/**
 * Asks every live runtime of the given kaps to take up the present revision now, and waits for each to confirm. Returns the kaps for which
 * one did not confirm in time: their next request refreshes it before it serves (the gateway sends the revision with every call), so nothing
 * stale is ever served; only `refresh_pending` stays true.
 */
export async function refreshRuntimes(deps: Deps, kapIds: readonly string[], deadlineMs: number): Promise<string[]> {
  if (kapIds.length === 0) return [];
  const { rows } = await deps.postgres.hot.query<{ kap_id: string; control_address: string }>(
    `select kap_id, control_address from runtimes where kap_id = any($1) and state = 'ready' and control_address is not null`,
    [kapIds],
  );
  const pending = await Promise.all(
    rows.map(async (row) => {
      try {
        const outcome = await control(row.control_address, "POST", "/refresh", "", deadlineMs);
        return outcome.status === 200 ? null : row.kap_id;
      } catch {
        return row.kap_id;
      }
    }),
  );
  return [...new Set(pending.filter((kapId) => kapId !== null))];
}
