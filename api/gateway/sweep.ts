import type { Deps } from "../deps.ts";
import { sweepIdempotencyKeys } from "../http/idempotency.ts";
import { sweepRateWindows } from "../http/rate-limit.ts";
import { crashRunsOf } from "../services/runs/crash.ts";
import { abandonRuntime, releaseRuntimes } from "./claims.ts";
import { control } from "./runtime-client.ts";

const sweepMs = 5_000;
/** Shorter than the pace at which an idle runtime says that it lives (60 s), so that it is looked at, and released, all the same. */
const silentSeconds = 20;
const drainMs = 30_000;
/** After this long without a call a kap gives back what it has beyond its first runtime, if not sooner. */
const furtherIdleSeconds = 60;

interface SweptRuntime {
  id: string;
  kap_id: string;
  slot: number;
  data_address: string;
  control_address: string;
}

/**
 * Looks after the runtimes of the deployment every five seconds: one that has been silent is asked how it is; one that does not answer, or is not
 * the one that was claimed, is given up and its open runs are marked crashed; one that has been idle is released. Any replica may do it: rows are
 * taken with `skip locked`.
 */
export function startRuntimeSweep(deps: Deps): { stop(): void } {
  let running = false;
  const timer = setInterval(() => {
    if (running) return;
    running = true;
    sweep(deps)
      .catch((error: unknown) => deps.log.warn({ err: error }, "the sweep of runtimes failed"))
      .finally(() => {
        running = false;
      });
  }, sweepMs);
  return { stop: () => clearInterval(timer) };
}

/** One round. Exported so that a test can make it happen now. */
export async function sweep(deps: Deps): Promise<void> {
  const { rows } = await deps.postgres.hot.query<SweptRuntime>(
    `update runtimes set last_report_at = now() where id in (
       select id from runtimes where state = 'ready' and last_report_at < now() - make_interval(secs => $1) for update skip locked)
     returning id, kap_id, slot, data_address, control_address`,
    [Math.min(silentSeconds, deps.config.runtimeIdleSeconds)],
  );
  await Promise.all(rows.map((row) => look(deps, row)));
  await deps.postgres.hot.query(
    `delete from runtimes where state in ('claiming', 'draining') and claim_until < now() - interval '1 minute'`,
  );
  await deps.postgres.hot.query(`delete from endpoint_signatures where expires_at < now()`);
  await sweepRateWindows(deps.postgres.hot);
  await sweepIdempotencyKeys(deps.db);
}

async function look(deps: Deps, row: SweptRuntime): Promise<void> {
  const runtime = { id: row.id, data: row.data_address, control: row.control_address };
  const state = await control(row.control_address, "GET", "/state", undefined, 3_000).catch(() => null);
  const body = state?.body as { kap_id?: string; state?: string; idle_since?: string | null } | null | undefined;
  if (state?.status !== 200 || body?.kap_id !== row.kap_id) {
    if (await abandonRuntime(deps, runtime)) await crashRunsOf(deps.postgres, row.id, "the runtime went away");
    return;
  }
  const idleSince = body.idle_since ? Date.parse(body.idle_since) : Number.NaN;
  const { runtimeIdleSeconds } = deps.config;
  const patienceSeconds = row.slot === 0 ? runtimeIdleSeconds : Math.min(runtimeIdleSeconds, furtherIdleSeconds);
  if (Date.now() - idleSince > patienceSeconds * 1_000) await releaseRuntimes(deps, row.kap_id, drainMs, row.id);
}
