import { createHash, randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { newId } from "#platform/ids.ts";
import type { Deps } from "../deps.ts";
import { Refusal } from "../http/refusal.ts";
import { composeAssignment, signAssignment } from "./assignment.ts";
import { control, forgetDataPool } from "./runtime-client.ts";

/** The runtime that serves a kap. */
export interface ReadyRuntime {
  id: string;
  data: string;
  control: string;
}

const claimSeconds = 15;
/** Seconds for which a drained runtime may still report. */
const drainedSeconds = 60;
const claimRequestMs = 5_000;
const waitMs = 10_000;

/** The digest under which a runtime's bearer token is kept. */
export function runtimeTokenDigest(token: string): Buffer {
  return createHash("sha256").update(token).digest();
}

/** Claims in flight in this process: one per kap. Across replicas the primary key (kap, slot) decides. */
const inFlight = new WeakMap<Deps, Map<string, Promise<ReadyRuntime>>>();

/**
 * A ready runtime for a kap: the one that has it, or a warm one claimed for it now. One claim is in flight per kap in the whole deployment;
 * everyone else waits for its outcome. 503 with Retry-After when the pool stays empty for 10 seconds.
 */
export function ensureRuntime(deps: Deps, kapId: string): Promise<ReadyRuntime> {
  let claims = inFlight.get(deps);
  if (!claims) {
    claims = new Map();
    inFlight.set(deps, claims);
  }
  const running = claims.get(kapId);
  if (running) return running;
  const claim = claimOrWait(deps, kapId).finally(() => claims.delete(kapId));
  claims.set(kapId, claim);
  return claim;
}

async function claimOrWait(deps: Deps, kapId: string): Promise<ReadyRuntime> {
  const deadline = Date.now() + waitMs;
  for (let pause = 3; ; pause = Math.min(50, pause * 2)) {
    const token = randomBytes(32).toString("base64url");
    const id = newId();
    const { rows } = await deps.postgres.hot.query<{
      id: string;
      state: string;
      data_address: string | null;
      control_address: string | null;
      mine: boolean;
    }>({
      name: "runtime-claim",
      text: `with there as (
               select id, state, data_address, control_address from runtimes where kap_id = $2 and state = 'ready' order by slot limit 1),
             mine as (
               insert into runtimes (id, kap_id, state, token_digest, claim_until)
               select $1, $2, 'claiming', $3, now() + make_interval(secs => $4) where not exists (select from there)
               on conflict (kap_id, slot) do update
                 set id = excluded.id, state = 'claiming', token_digest = excluded.token_digest, claimed_at = now(), claim_until = excluded.claim_until,
                     data_address = null, control_address = null
                 where runtimes.state = 'claiming' and runtimes.claim_until < now()
               returning id, state, data_address, control_address)
             select *, true as mine from mine
             union all
             select *, false from there
             union all
             select id, state, data_address, control_address, false from runtimes
             where kap_id = $2 and slot = 0 and not exists (select from mine) and not exists (select from there)`,
      values: [id, kapId, runtimeTokenDigest(token), claimSeconds],
    });
    const row = rows[0];
    if (row?.mine) return claim(deps, kapId, { id, token }, deadline);
    if (row?.state === "ready" && row.data_address && row.control_address)
      return { id: row.id, data: row.data_address, control: row.control_address };
    if (Date.now() > deadline) throw noRuntime();
    await delay(pause);
  }
}

/** Kaps that are being given another runtime, or were a moment ago, by this process. */
const growing = new Set<string>();
const growPauseMs = 1_000;

/**
 * Claims one more runtime for a kap whose ready ones are nearly full, in the background and up to `KAPSTONE_KAP_RUNTIMES`; nothing happens when the pool
 * has none to spare. At most one attempt a second and kap; across replicas the slots' unique key decides.
 */
export function growRuntimes(deps: Deps, kapId: string): void {
  if (deps.config.runtimesPerKap <= 1 || growing.has(kapId)) return;
  growing.add(kapId);
  claimFurther(deps, kapId)
    .catch((error: unknown) => {
      if (!(error instanceof Refusal)) deps.log.warn({ err: error, kap_id: kapId }, "a kap was not given another runtime");
    })
    .finally(() => setTimeout(() => growing.delete(kapId), growPauseMs).unref());
}

async function claimFurther(deps: Deps, kapId: string): Promise<void> {
  const token = randomBytes(32).toString("base64url");
  const id = newId();
  const { rowCount } = await deps.postgres.hot.query({
    name: "runtime-claim-further",
    text: `insert into runtimes (id, kap_id, slot, state, token_digest, claim_until)
           select $1, k.id, free.slot, 'claiming', $3, now() + make_interval(secs => $4)
           from kaps k
           cross join lateral (
             select slot from generate_series(0, $5::int - 1) slot
             where not exists (select from runtimes r where r.kap_id = k.id and r.slot = slot.slot) order by slot limit 1) free
           where k.id = $2 and k.state = 'active'
           on conflict (kap_id, slot) do nothing`,
    values: [id, kapId, runtimeTokenDigest(token), claimSeconds, deps.config.runtimesPerKap],
  });
  if (rowCount) await claim(deps, kapId, { id, token }, Date.now());
}

function noRuntime(): Refusal {
  return new Refusal(503, "UNAVAILABLE", "no runtime is free for this kap at the moment: try again in a second", {
    headers: { "retry-after": "1" },
  });
}

/** What counts as the answer of a runtime that starts and does not listen yet. */
const notYet = { status: 425, body: null };

/** Whether a request failed before a byte of it was sent: nobody listened, or nobody could be reached. */
function isUnreached(error: unknown): boolean {
  return (
    error instanceof Error && "code" in error && ["ECONNREFUSED", "EHOSTUNREACH", "UND_ERR_CONNECT_TIMEOUT"].includes(String(error.code))
  );
}

async function claim(deps: Deps, kapId: string, runtime: { id: string; token: string }, deadline: number): Promise<ReadyRuntime> {
  try {
    const candidates = deps.pool.candidates();
    const assignment = signAssignment(deps.config.claimKey, await composeAssignment(deps, kapId, runtime));
    for (let pause = 3, list = await candidates; ; list = await deps.pool.candidates()) {
      for (const candidate of list) {
        const outcome = await control(candidate.control, "POST", "/claim", assignment, claimRequestMs).catch((error: unknown) => {
          if (candidate.isStarting && isUnreached(error)) return notYet;
          deps.log.warn({ err: error, runtime: candidate.control }, "a warm runtime did not take its claim and is discarded");
          return null;
        });
        const isUnfit = outcome !== null && (outcome.status >= 500 || outcome.status === 401);
        if (isUnfit) deps.log.warn({ ...outcome, runtime: candidate.control }, "a warm runtime refused its claim and is discarded");
        if (outcome === null || isUnfit) deps.pool.discard(candidate.control);
        if (outcome?.status !== 200) continue;
        await deps.postgres.hot.query({
          name: "runtime-ready",
          text: `update runtimes set state = 'ready', data_address = $3, control_address = $4, boot_id = $5, last_used_at = now(), last_report_at = now()
                 where id = $1 and kap_id = $2`,
          values: [runtime.id, kapId, candidate.data, candidate.control, (outcome.body as { boot_id?: string } | null)?.boot_id ?? null],
        });
        deps.pool.taken(candidate.control);
        return { id: runtime.id, data: candidate.data, control: candidate.control };
      }
      if (Date.now() > deadline) throw noRuntime();
      await delay(pause);
      pause = Math.min(50, pause * 2);
    }
  } catch (error) {
    await deps.postgres.hot.query(`delete from runtimes where id = $1`, [runtime.id]).catch(() => undefined);
    throw error;
  }
}

/**
 * A runtime that did not answer as expected is not used again: its row goes, so the next call claims anew, and the pool ends it.
 * Returns whether this call removed it (of several that saw it fail, one does).
 */
export async function abandonRuntime(deps: Deps, runtime: ReadyRuntime): Promise<boolean> {
  forgetDataPool(runtime.data);
  // One that drains is on its way out and has reports to deliver.
  const { rowCount } = await deps.postgres.hot.query(`delete from runtimes where id = $1 and state <> 'draining'`, [runtime.id]);
  if (rowCount) deps.pool.discard(runtime.control);
  return (rowCount ?? 0) > 0;
}

/** Lets a kap's runtimes (or only the one named) finish what they serve and end: after a disable, a delete, or when idle. */
export async function releaseRuntimes(deps: Deps, kapId: string, drainMs: number, onlyId: string | null = null): Promise<void> {
  const { rows } = await deps.postgres.hot.query<{ id: string; data_address: string | null; control_address: string | null }>(
    // Out of its slot, so that the next call can claim another; known still, so that it can report what it finishes.
    `update runtimes set state = 'draining', slot = -1 - floor(random() * 2e9)::int, claim_until = now() + make_interval(secs => $2)
     where kap_id = $1 and state = 'ready' and id = coalesce($3, id) returning id, data_address, control_address`,
    [kapId, drainMs / 1_000 + drainedSeconds, onlyId],
  );
  await Promise.all(
    rows.map(async (row) => {
      if (row.data_address) forgetDataPool(row.data_address);
      if (!row.control_address) return;
      const address = row.control_address;
      // With its id: where another has taken over the address meanwhile, that one goes on.
      const order = JSON.stringify({ drain_ms: drainMs, runtime_id: row.id });
      await control(address, "POST", "/release", order, 2_000).catch(() => deps.pool.discard(address));
    }),
  );
}
