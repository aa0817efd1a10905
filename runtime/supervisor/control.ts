import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Metrics } from "#platform/metrics.ts";
import { createServer } from "#platform/node-http.ts";
import { AssignmentRefused } from "../seam/assignment.ts";
import { readBody } from "./api-client.ts";
import { ClaimRefused, type Supervisor } from "./supervisor.ts";

const maxClaimBytes = 48 * 1024 * 1024;
const defaultDrainMs = 10_000;

interface Reply {
  status: number;
  body: unknown;
}

/** The supervisor's own listener: health, state, claim, refresh, release, metrics. Only the platform reaches it. `onReleased` runs once all is told and ended. */
export function createControl(supervisor: Supervisor, onReleased: () => void): Server {
  let metrics: Promise<Metrics> | undefined;
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<Reply | null> => {
    const path = request.url?.split("?")[0] ?? "/";
    switch (`${request.method} ${path}`) {
      case "GET /healthz":
        return { status: 200, body: { status: "ok" } };
      case "GET /readyz":
        return supervisor.isWarm ? { status: 200, body: { status: "ok" } } : { status: 503, body: { status: "no child is warm yet" } };
      case "GET /state":
        return { status: 200, body: stateOf(supervisor) };
      case "POST /claim": {
        const { ms } = await supervisor.claim(await readBody(request, maxClaimBytes));
        return { status: 200, body: { boot_id: supervisor.bootId, ms } };
      }
      case "POST /refresh":
        return { status: 200, body: await supervisor.refresh() };
      case "POST /release": {
        const text = (await readBody(request, 1024)).toString("utf8");
        const { drain_ms = defaultDrainMs, runtime_id } = (text === "" ? {} : JSON.parse(text)) as {
          drain_ms?: number;
          runtime_id?: string;
        };
        // Meant for one that had this address before: what serves now goes on.
        if (runtime_id !== undefined && runtime_id !== supervisor.assignment?.runtime_id)
          throw new ClaimRefused(409, "This is another runtime than the one to be released.");
        void supervisor.release(drain_ms).finally(onReleased);
        return { status: 202, body: { state: "draining" } };
      }
      case "GET /metrics":
        // Loaded with the first question: a runtime nobody scrapes does not pay for it.
        metrics ??= import("./runtime-metrics.ts").then(({ runtimeMetrics }) => runtimeMetrics(supervisor));
        response.setHeader("content-type", (await metrics).contentType);
        response.end(await (await metrics).metrics());
        return null;
    }
    const run = /^GET \/outcome\/([0-9a-f-]{36})$/.exec(`${request.method} ${path}`)?.[1];
    if (run !== undefined) {
      const sight = supervisor.sightOf(run);
      if (sight.state === "ended") return { status: 200, body: { outcome: sight.outcome, detail: sight.detail } };
      if (sight.state === "open") return { status: 202, body: { detail: "the run has not ended" } };
      return { status: 404, body: { detail: "nothing is known of this run" } };
    }
    const dryRun = /^GET \/dry-runs\/([0-9a-f-]{36})$/.exec(`${request.method} ${path}`)?.[1];
    if (dryRun !== undefined) {
      const report = await supervisor.dryReportOf(dryRun);
      return report ? { status: 200, body: report } : { status: 404, body: { detail: "nothing is known of this dry run" } };
    }
    return { status: 404, body: { detail: "there is no such control route" } };
  };
  return createServer((request, response) => {
    answer(request, response)
      .catch((error: unknown): Reply => {
        if (error instanceof AssignmentRefused) return { status: 401, body: { detail: error.message } };
        if (error instanceof ClaimRefused) return { status: error.status, body: { detail: error.message } };
        return { status: 500, body: { detail: error instanceof Error ? error.message : String(error) } };
      })
      .then((reply) => {
        if (reply) response.writeHead(reply.status, { "content-type": "application/json" }).end(JSON.stringify(reply.body));
      })
      .catch(() => response.destroy());
  });
}

function stateOf(supervisor: Supervisor): Record<string, unknown> {
  const { running, queued } = supervisor.inFlight;
  return {
    boot_id: supervisor.bootId,
    state: supervisor.state,
    kap_id: supervisor.assignment?.kap_id ?? null,
    revision: supervisor.assignment?.revision ?? null,
    in_flight: running,
    queued,
    idle_since: supervisor.idleSince,
    code_cache: supervisor.codeCache,
    rss_bytes: supervisor.rssBytes,
  };
}
