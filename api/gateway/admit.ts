import type pg from "pg";
import type { Actor } from "../http/caller.ts";

/** What one read tells of a call: the kap, its request trigger, the token it came with, the runtime that serves it. */
export interface Admission {
  id: string;
  org_id: string;
  org_slug: string;
  slug: string;
  name: string;
  state: "active" | "disabled" | "deleted";
  disabled: { by: Actor; at: string; reason: string } | null;
  deleted_at: Date | null;
  recover_until: Date | null;
  audience: "members" | "invited" | "public";
  invited: string[];
  revision: number;
  version_id: string;
  trigger_id: string;
  trigger_enabled: boolean;
  paused_by: Actor | null;
  paused_at: Date | null;
  token_id: string | null;
  token_name: string | null;
  runtime_id: string | null;
  data_address: string | null;
  control_address: string | null;
  /** Whether the run's first row was written by this statement. */
  admitted: boolean;
}

/** How a call is admitted: by a bypass token or endpoint secret (looked up by digest), or by what the gateway has already proved (`proven`). */
export interface AdmissionRequest {
  /** Null on the bare runtime host, where the secret names the kap. */
  slug: string | null;
  tokenKind: "bypass" | "endpoint" | null;
  tokenDigest: Buffer | null;
  /** A signature, a member's session or a guest's cookie has been checked already. */
  proven: boolean;
  runId: string;
  requestId: string;
  /** Who calls, when it is not the token: `member:…`, `guest:…`, `endpoint:…`, `anonymous`. */
  caller: string;
  method: string;
  target: string;
}

/**
 * One statement for the hot path: the kap, the credential and the runtime are read, and the run's first row is written only if the call may run.
 * Nothing here is cached: a revoked token, a paused trigger or a disabled kap holds from the next request on, on every replica.
 */
const statement = `
with k as (
  select k.id, k.org_id, o.slug as org_slug, k.slug, k.name, k.state, k.disabled, k.deleted_at, k.recover_until, k.audience, k.invited, k.revision,
         k.current_version_id as version_id, t.id as trigger_id, t.enabled as trigger_enabled, t.paused_by, t.paused_at,
         tok.id as token_id, tok.name as token_name, r.id as runtime_id, r.data_address, r.control_address,
         k.state = 'active' and t.enabled and (case when $3::bytea is null then $4::boolean or k.audience = 'public' else tok.id is not null end) as admitted
  from kaps k
  join orgs o on o.id = k.org_id
  join kap_triggers t on t.kap_id = k.id and t.kind = 'request' and t.deleted_at is null
  left join kap_tokens tok on tok.digest = $3 and tok.kap_id = k.id and tok.kind = $2 and tok.revoked_at is null and (tok.expires_at is null or tok.expires_at > now())
  left join runtimes r on r.kap_id = k.id and r.slot = 0 and r.state = 'ready'
  where k.slug = $1 or ($1::text is null and k.id = (select kap_id from kap_tokens where digest = $3))
), run as (
  insert into runs (id, kap_id, org_id, version_id, trigger_id, trigger_kind, status, request_id, caller, method, target, runtime_id)
  select $5, id, org_id, version_id, trigger_id, 'request', 'running', $6,
         case when $3::bytea is null or $4::boolean then $7 when $2 = 'bypass' then 'token:' || token_name else 'endpoint:' || token_name end, $8, $9, runtime_id
  from k where admitted
)
select * from k`;

/** Reads and admits a call. Null when no kap has that name (or the secret on the bare runtime host names none). */
export async function admit(hot: pg.Pool, request: AdmissionRequest): Promise<Admission | null> {
  const { rows } = await hot.query<Admission>({
    name: "gateway-admit",
    text: statement,
    values: [
      request.slug,
      request.tokenKind,
      request.tokenDigest,
      request.proven,
      request.runId,
      request.requestId,
      request.caller,
      request.method,
      request.target,
    ],
  });
  return rows[0] ?? null;
}

/** Ends a run the gateway itself knows the end of: the runtime never took it, or went away with it. A run that has ended stays as it is. */
export async function endRun(hot: pg.Pool, runId: string, end: { outcome: string; detail: string; httpStatus: number }): Promise<void> {
  await hot.query({
    name: "gateway-end-run",
    text: `update runs set status = 'failed', outcome = $2, detail = $3, http_status = $4, finished_at = now(),
                  duration_ms = extract(epoch from now() - started_at) * 1000
           where id = $1 and status in ('queued', 'running')`,
    values: [runId, end.outcome, end.detail, end.httpStatus],
  });
}

/** The status a caller was answered with when the runtime could not answer any more: the run's report does not know it. */
export async function noteStatus(hot: pg.Pool, runId: string, httpStatus: number): Promise<void> {
  await hot.query({
    name: "gateway-note-status",
    text: "update runs set http_status = coalesce(http_status, $2) where id = $1",
    values: [runId, httpStatus],
  });
}
