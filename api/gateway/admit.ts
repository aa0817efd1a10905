import type pg from "pg";
import type { Actor } from "../http/caller.ts";

/** What one read tells of a call: the kap, its request trigger, the token it came with, the runtime that serves it. */
export interface Admission {
  id: string;
  revision: number;
  trigger_id: string;
  /** Of the token that admitted the call. */
  token_name: string | null;
  runtime_id: string | null;
  data_address: string | null;
  control_address: string | null;
  /** What a refusal is made of. Null when the call is admitted: then the run's first row was written by this statement. */
  refused: NotAdmitted | null;
}

/** The state of a kap whose call is not admitted. Times are texts. */
export interface NotAdmitted {
  slug: string;
  org_slug: string;
  state: "active" | "disabled" | "deleted";
  disabled: { by: Actor; at: string; reason: string } | null;
  deleted_at: string | null;
  recover_until: string | null;
  audience: "members" | "invited" | "public";
  paused_by: Actor | null;
  paused_at: string | null;
  /** Whether the token that was presented is one of this kap, and holds. */
  has_token: boolean;
}

/** How a call is admitted: by a bypass token or endpoint secret (looked up by digest), or by what the gateway has already proved (`proven`). */
export interface AdmissionRequest {
  /** Null on the bare runtime host, where the secret names the kap. */
  slug: string | null;
  tokenKind: "bypass" | "endpoint" | null;
  tokenDigest: Buffer | null;
  /** A signature, a member's session or a guest's cookie has been checked already. */
  proven: boolean;
  /** Runtimes of the kap that have enough to do, the least busy first: another ready one is preferred, the lowest slot first. */
  busy: string[];
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
 * `limit 1` keeps every call a handful of index look-ups in this order, whatever the planner expects of the tables. What only refusals need is put together for them alone.
 */
const statement = `
with k as (
  select call.*, found.*
  from json_to_recordset($1::json) as call (run_id uuid, host_slug text, token_kind text, token_digest bytea, proven boolean, request_id text, caller text, method text, target text, busy uuid[])
  cross join lateral (
    select k.id, k.org_id, k.revision, k.current_version_id as version_id, t.id as trigger_id, tok.name as token_name,
           r.id as runtime_id, r.data_address, r.control_address,
           case when k.state = 'active' and t.enabled
                  and (case when call.token_digest is null then call.proven or k.audience = 'public' else tok.id is not null end) then null
                else json_build_object('slug', k.slug, 'org_slug', (select o.slug from orgs o where o.id = k.org_id), 'state', k.state,
                  'disabled', k.disabled, 'deleted_at', k.deleted_at, 'recover_until', k.recover_until, 'audience', k.audience,
                  'paused_by', t.paused_by, 'paused_at', t.paused_at, 'has_token', tok.id is not null)
           end as refused
    from (
      select * from kaps
      where slug = coalesce(call.host_slug, (select named.slug from kap_tokens s join kaps named on named.id = s.kap_id where s.digest = call.token_digest))
      limit 1
    ) k
    cross join lateral (
      select t.id, t.enabled, t.paused_by, t.paused_at from kap_triggers t where t.kap_id = k.id and t.kind = 'request' and t.deleted_at is null limit 1
    ) t
    left join lateral (
      select tok.id, tok.name from kap_tokens tok
      where tok.digest = call.token_digest and tok.kap_id = k.id and tok.kind = call.token_kind
        and tok.revoked_at is null and (tok.expires_at is null or tok.expires_at > now())
      limit 1
    ) tok on true
    left join lateral (
      select r.id, r.data_address, r.control_address from runtimes r where r.kap_id = k.id and r.state = 'ready'
      order by array_position(call.busy, r.id) nulls first, r.slot limit 1
    ) r on true
  ) found
), run as (
  insert into runs (id, kap_id, org_id, version_id, trigger_id, trigger_kind, status, request_id, caller, method, target, runtime_id)
  select run_id, id, org_id, version_id, trigger_id, 'request', 'running', request_id,
         case when token_digest is null or proven then caller when token_kind = 'bypass' then 'token:' || token_name else 'endpoint:' || token_name end,
         method, target, runtime_id
  from k where refused is null
)
select run_id, id, revision, trigger_id, token_name, runtime_id, data_address, control_address, refused from k`;

/** Calls that one statement admits at most. */
const maxTogether = 50;
/** Statements of a pool under way at once: calls that come meanwhile go together in the next, which is there as soon as one has answered. */
const maxUnderWay = 2;
/** So long do calls wait for statements under way; then they no longer count, and another goes beside them. */
const patienceMs = 5;

interface Waiting {
  request: AdmissionRequest;
  resolve(admission: Admission | null): void;
  reject(error: unknown): void;
}

/** The calls of a pool that no statement has taken yet. */
interface Queue {
  waiting: Waiting[];
  underWay: number;
  /** The turn of the event loop ends with a look at the queue. */
  isDue: boolean;
  patience: NodeJS.Timeout | null;
}

const queues = new WeakMap<pg.Pool, Queue>();

function queueOf(hot: pg.Pool): Queue {
  const known = queues.get(hot);
  if (known) return known;
  const made: Queue = { waiting: [], underWay: 0, isDue: false, patience: null };
  queues.set(hot, made);
  return made;
}

/**
 * Reads and admits a call. Null when no kap has that name (or the secret on the bare runtime host names none). Calls that arrived in the same turn of
 * the event loop go in one statement, and so do those that come while statements are under way: a call alone waits for nobody, and many at once do not
 * pay a round trip each.
 */
export function admit(hot: pg.Pool, request: AdmissionRequest): Promise<Admission | null> {
  return new Promise((resolve, reject) => {
    const queue = queueOf(hot);
    queue.waiting.push({ request, resolve, reject });
    if (queue.isDue) return;
    queue.isDue = true;
    setImmediate(() => {
      queue.isDue = false;
      send(hot, queue);
    });
  });
}

/** Sends what waits, as far as statements may be under way. `isImpatient` sends one more. */
function send(hot: pg.Pool, queue: Queue, isImpatient = false): void {
  while (queue.waiting.length > 0 && (isImpatient || queue.underWay < maxUnderWay)) {
    isImpatient = false;
    const calls = queue.waiting.splice(0, maxTogether);
    queue.underWay += 1;
    void admitAll(hot, calls).finally(() => {
      queue.underWay -= 1;
      send(hot, queue);
    });
  }
  if (queue.waiting.length === 0 || queue.patience) return;
  queue.patience = setTimeout(() => {
    queue.patience = null;
    send(hot, queue, true);
  }, patienceMs);
}

async function admitAll(hot: pg.Pool, calls: Waiting[]): Promise<void> {
  try {
    const values = [JSON.stringify(calls.map(({ request }) => callRow(request)))];
    const { rows } = await hot.query<Admission & { run_id: string }>({ name: "gateway-admit", text: statement, values });
    const found = new Map(rows.map((row) => [row.run_id, row]));
    for (const { request, resolve } of calls) resolve(found.get(request.runId) ?? null);
  } catch (error) {
    // One call whose values PostgreSQL does not take must not fail its neighbours; nothing has been written.
    if (calls.length > 1 && isDataError(error)) await Promise.all(calls.map((call) => admitAll(hot, [call])));
    else for (const { reject } of calls) reject(error);
  }
}

/** SQLSTATE class 22: a value that cannot be what it should be. */
const isDataError = (error: unknown): boolean => error instanceof Error && "code" in error && String(error.code).startsWith("22");

function callRow(request: AdmissionRequest): Record<string, unknown> {
  return {
    run_id: request.runId,
    host_slug: request.slug,
    token_kind: request.tokenKind,
    token_digest: request.tokenDigest && `\\x${request.tokenDigest.toString("hex")}`,
    proven: request.proven,
    request_id: request.requestId,
    caller: request.caller,
    method: request.method,
    target: request.target,
    busy: request.busy.length === 0 ? null : request.busy,
  };
}

/**
 * Ends a run the gateway itself knows the end of: the runtime never took it, or went away with it. It counts as used like any other. A run that has ended
 * stays as it is.
 */
export async function endRun(hot: pg.Pool, runId: string, end: { outcome: string; detail: string; httpStatus: number }): Promise<void> {
  await hot.query({
    name: "gateway-end-run",
    text: `with ended as (
             update runs set status = 'failed', outcome = $2, detail = $3, http_status = $4, finished_at = now(),
                    duration_ms = extract(epoch from now() - started_at) * 1000
             where id = $1 and status in ('queued', 'running')
             returning kap_id, trigger_id, started_at
           ), trigger as (
             update kap_triggers t set last_run_at = ended.started_at, last_outcome = $2 from ended
             where t.id = ended.trigger_id and (t.last_run_at is null or t.last_run_at <= ended.started_at)
           )
           insert into kap_usage (kap_id, day, runs, failed_runs) select kap_id, (started_at at time zone 'utc')::date, 1, 1 from ended
           on conflict (kap_id, day) do update set runs = kap_usage.runs + 1, failed_runs = kap_usage.failed_runs + 1`,
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
