import type { Readable } from "node:stream";
import type { Deps } from "../deps.ts";
import { abandonRuntime, ensureRuntime, type ReadyRuntime } from "./claims.ts";
import { dataPool } from "./runtime-client.ts";

/** A run of a schedule or inbox trigger to be carried out now. Its row in `runs` exists already. */
export interface Invocation {
  kapId: string;
  triggerId: string;
  runId: string;
  /** The attempt of the run that this is. */
  attempt: number;
  kind: "schedule" | "inbox";
  /** Of a schedule: the time it stands for. */
  scheduledAt?: Date;
  /** Of a mail: the frame of head and attachments that the runtime reads. Made anew for each try. */
  mail?: () => Readable | Buffer;
  /** Of a mail: what people may look at, as JSON; kept with the run. */
  payload?: string;
  signal?: AbortSignal;
}

export interface InvocationResult {
  outcome: string;
  detail: string | null;
}

const attempts = 3;

/**
 * Where the kap stands, and the run on its first ready runtime, if it has one; keeps the run's payload, unless the time of that is over. No runtime is given a
 * run whose attempt was given up meanwhile (this process stood still, say): it may be going on elsewhere by now.
 */
const startSql = `
with there as (
  select id, data_address, control_address from runtimes
  where kap_id = $2 and state = 'ready' and data_address is not null and control_address is not null order by slot limit 1
), started as (
  update runs set runtime_id = there.id from there where runs.id = $1 and attempts = $3 and status = 'running' returning runs.id
), kept as (
  update run_payloads set payload = $4::jsonb where run_id = $1 and object_key is not null and $4::jsonb is not null
)
select k.revision, there.id as runtime_id, there.data_address, there.control_address, exists (select from started) as is_started
from kaps k left join there on true where k.id = $2`;

interface Started {
  revision: number;
  runtime_id: string | null;
  data_address: string;
  control_address: string;
  is_started: boolean;
}

/**
 * Carries out a trigger's run on the kap's runtime, claiming one if need be, and waits for its end (handler and waitUntil). A runtime that is
 * gone before it took the run is replaced; one that ends during the run makes it `crashed`. Never rejects for what the program did.
 */
export async function invoke(deps: Deps, invocation: Invocation): Promise<InvocationResult> {
  const { rows } = await deps.postgres.hot.query<Started>({
    name: "run-start",
    text: startSql,
    values: [invocation.runId, invocation.kapId, invocation.attempt, invocation.payload ?? null],
  });
  const start = rows[0];
  if (start === undefined) return { outcome: "refused", detail: "the kap is gone" };
  let ready = start.runtime_id === null ? null : { id: start.runtime_id, data: start.data_address, control: start.control_address };
  let isStarted = start.is_started;
  for (let attempt = 1; ; attempt++) {
    const asked = performance.now();
    if (ready === null) {
      ready = await ensureRuntime(deps, invocation.kapId);
      isStarted = await startOn(deps, invocation, ready);
    }
    if (!isStarted) return { outcome: "crashed", detail: "the attempt was given up before a runtime took it" };
    const runtime = ready;
    ready = null;
    let status: number;
    let outcome: string | null;
    let text: string;
    try {
      const answer = await dataPool(runtime.data).request({
        method: "POST",
        path: invocation.kind === "schedule" ? "/__kaps/scheduled" : "/__kaps/email",
        headers: {
          "content-type": invocation.kind === "schedule" ? "application/json" : "application/octet-stream",
          "x-kapstone-run": invocation.runId,
          "x-kapstone-kap": invocation.kapId,
          "x-kapstone-revision": String(start.revision),
          "x-kapstone-trigger": invocation.triggerId,
          "x-kapstone-scheme": deps.addresses.scheme,
          "x-kapstone-claim": (performance.now() - asked).toFixed(2),
          "x-kap-caller": invocation.kind,
        },
        body:
          invocation.kind === "schedule"
            ? JSON.stringify({ scheduled_at: (invocation.scheduledAt ?? new Date()).toISOString() })
            : (invocation.mail?.() ?? null),
        signal: invocation.signal ?? null,
      });
      status = answer.statusCode;
      const header = answer.headers["x-kapstone-outcome"];
      outcome = typeof header === "string" ? header : null;
      text = await answer.body.text();
    } catch (error) {
      const code = error instanceof Error && "code" in error ? String(error.code) : "";
      await abandonRuntime(deps, runtime);
      const neverTaken = code === "ECONNREFUSED" || code === "ENOENT" || code === "UND_ERR_CONNECT_TIMEOUT" || code === "EHOSTUNREACH";
      if (neverTaken && attempt < attempts) continue;
      return { outcome: "crashed", detail: `the runtime ended during the run: ${error instanceof Error ? error.message : String(error)}` };
    }
    if (outcome === "unassigned") {
      await abandonRuntime(deps, runtime);
      if (attempt < attempts) continue;
      return { outcome: "crashed", detail: "no runtime stayed assigned long enough to take the run" };
    }
    const body = readAnswer(text);
    return { outcome: outcome ?? body.outcome ?? (status === 200 ? "ok" : "error"), detail: body.detail ?? null };
  }
}

async function startOn(deps: Deps, { runId, attempt }: Invocation, runtime: ReadyRuntime): Promise<boolean> {
  const { rowCount } = await deps.postgres.hot.query({
    name: "run-start-on",
    text: "update runs set runtime_id = $3 where id = $1 and attempts = $2 and status = 'running'",
    values: [runId, attempt, runtime.id],
  });
  return rowCount === 1;
}

function readAnswer(text: string): { outcome?: string; detail?: string } {
  try {
    return JSON.parse(text) as { outcome?: string; detail?: string };
  } catch {
    return {};
  }
}
