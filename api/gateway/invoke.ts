import type { Readable } from "node:stream";
import type { Deps } from "../deps.ts";
import { abandonRuntime, ensureRuntime } from "./claims.ts";
import { dataPool } from "./runtime-client.ts";

/** A run of a schedule or inbox trigger to be carried out now. Its row in `runs` exists already. */
export interface Invocation {
  kapId: string;
  triggerId: string;
  runId: string;
  kind: "schedule" | "inbox";
  /** Of a schedule: the time it stands for. */
  scheduledAt?: Date;
  /** Of a mail: the frame of head and attachments that the runtime reads. Made anew for each try. */
  mail?: () => Readable | Buffer;
  signal?: AbortSignal;
}

export interface InvocationResult {
  outcome: string;
  detail: string | null;
}

const attempts = 3;

/**
 * Carries out a trigger's run on the kap's runtime, claiming one if need be, and waits for its end (handler and waitUntil). A runtime that is
 * gone before it took the run is replaced; one that ends during the run makes it `crashed`. Never rejects for what the program did.
 */
export async function invoke(deps: Deps, invocation: Invocation): Promise<InvocationResult> {
  const { rows } = await deps.postgres.hot.query<{ revision: number }>({
    name: "kap-revision",
    text: "select revision from kaps where id = $1",
    values: [invocation.kapId],
  });
  const revision = rows[0]?.revision;
  if (revision === undefined) return { outcome: "refused", detail: "the kap is gone" };
  for (let attempt = 1; ; attempt++) {
    const asked = performance.now();
    const runtime = await ensureRuntime(deps, invocation.kapId);
    await deps.postgres.hot.query({
      name: "run-started",
      text: "update runs set runtime_id = $2, status = 'running' where id = $1",
      values: [invocation.runId, runtime.id],
    });
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
          "x-kapstone-revision": String(revision),
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

function readAnswer(text: string): { outcome?: string; detail?: string } {
  try {
    return JSON.parse(text) as { outcome?: string; detail?: string };
  } catch {
    return {};
  }
}
