import type { IncomingMessage, ServerResponse } from "node:http";
import { newId } from "#platform/ids.ts";
import { parseSecret } from "#platform/secrets.ts";
import type { Deps } from "../deps.ts";
import { endUnread, hasBody, readBody } from "../http/body.ts";
import { envelopes } from "../http/envelopes.ts";
import type { Host } from "../http/hosts.ts";
import { asRefusal, Refusal, refuse } from "../http/refusal.ts";
import { requestIdOf } from "../http/request-id.ts";
import { kapNotFound, refuseDisabled } from "../services/kaps/kap.ts";
import { type Admission, admit, endRun, type NotAdmitted, noteStatus } from "./admit.ts";
import { bucketOfProof, type CallCount, countCalls } from "./call-count.ts";
import { type CallCredential, proveSignature, readCallCredential } from "./call-credential.ts";
import { abandonRuntime, ensureRuntime, growRuntimes, type ReadyRuntime } from "./claims.ts";
import { failureRefusal } from "./failure.ts";
import { beginFlight, busyRuntimes, endFlight } from "./flights.ts";
import { forward, forwardedHeaders } from "./forward.ts";
import { signInRedirect } from "./hand-over.ts";
import { requestBodyBytes } from "./limits.ts";
import { askForOutcome, statusOfLost } from "./lost-answer.ts";

const replayableBytes = 256 * 1024;
const attempts = 3;

/** One call of a kap, from its arrival to its end. */
interface Call {
  deps: Deps;
  request: IncomingMessage;
  response: ServerResponse;
  requestId: string;
  runId: string;
  credential: CallCredential;
  /** The body when it was read whole (small or signed), else null: then it is streamed and cannot be sent twice. */
  buffered: Buffer | null;
  /** Under what the kap's calls in flight are counted: its name, or on the bare runtime host the secret that names it. */
  flightKey: string;
  count: CallCount;
}

/**
 * The hot path: a call of a kap, before any framework. One statement admits it and writes the run's first row; then the call is streamed to the
 * kap's runtime and back. What the runtime refuses is answered here in the platform's words.
 */
export async function serveKap(
  deps: Deps,
  host: Extract<Host, { zone: "kap" | "runtime" }>,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const requestId = requestIdOf(request.headers["x-request-id"]);
  const runId = newId();
  const count = countCalls(deps, request);
  let hasRun = false;
  try {
    count.checkAddress();
    const credential = readCallCredential(host, request, deps.addresses.scheme);
    const buffered = await bufferBody(request, credential);
    const token = credential.token === null ? null : parseSecret(credential.token);
    const flightKey = host.zone === "kap" ? host.slug : (token?.digest.toString("base64url") ?? "");
    const call: Call = { deps, request, response, requestId, runId, credential, buffered, flightKey, count };
    if (token) await count.byCredential(token.digest.toString("base64url"));
    const proof = await proveSignature(deps, host, credential, request, buffered);
    if (credential.token !== null && token === null) throw badToken(credential);
    if (credential.token === null)
      await (proof === null ? count.byAddress() : count.byCredential(bucketOfProof(credential, request.headers.host ?? "", proof)));
    const admission = await admit(deps.postgres.hot, {
      slug: host.zone === "kap" ? host.slug : null,
      tokenKind: credential.tokenKind,
      tokenDigest: token?.digest ?? null,
      proven: proof !== null,
      busy: busyRuntimes(flightKey, deps.config.concurrency),
      runId,
      requestId,
      caller: proof ?? "anonymous",
      method: request.method ?? "GET",
      target: credential.target,
    });
    if (!admission) throw whyUnknown(host, credential);
    if (admission.refused) throw whyNot(deps, request, credential, proof, admission.refused);
    hasRun = true;
    await serveAdmitted(call, admission, proof ?? callerName(admission, credential));
  } catch (error) {
    const refusal = await count.refused(asRefusal(error)).catch(asRefusal);
    answerRefusal(deps, request, response, refusal, {
      "x-request-id": requestId,
      ...(hasRun ? { "x-kap-run-id": runId } : {}),
      ...count.headers(),
    });
  }
}

/** Who is told to the program as X-Kap-Caller when a token admitted the call. */
function callerName(admission: Admission, credential: CallCredential): string {
  if (admission.token_name === null) return "anonymous";
  return `${credential.tokenKind === "endpoint" ? "endpoint" : "token"}:${admission.token_name}`;
}

/** Small bodies are read whole, so that a call can be sent again when its runtime turns out to be gone; signed ones must be. */
async function bufferBody(request: IncomingMessage, credential: CallCredential): Promise<Buffer | null> {
  if (!hasBody(request)) return Buffer.alloc(0);
  const length = request.headers["content-length"];
  if (Number(length ?? 0) > requestBodyBytes) throw refuse("PAYLOAD_TOO_LARGE", `the body of a call is at most ${requestBodyBytes} bytes`);
  if (credential.signature !== null || (length !== undefined && Number(length) <= replayableBytes))
    return readBody(request, requestBodyBytes);
  return null;
}

function badToken(credential: CallCredential): Refusal {
  return refuse(
    "UNAUTHORIZED",
    credential.tokenKind === "endpoint"
      ? "this endpoint secret is not valid here: it may have been revoked; mint another for the kap"
      : "this token is not valid for this kap: it may have been revoked; mint another with POST …/bypass-tokens",
    { headers: { "www-authenticate": "Bearer" } },
  );
}

/** What a call hears that reaches no kap: its host names none, or on the bare runtime host its secret. */
function whyUnknown(host: Host, credential: CallCredential): Refusal {
  if (host.zone === "kap") return kapNotFound(host.slug);
  return credential.token === null ? kapNotFound("here") : badToken(credential);
}

/** Why a call was not admitted, decided in the contract's order: bad credential 401, deleted 410, disabled and paused 503. */
function whyNot(deps: Deps, request: IncomingMessage, credential: CallCredential, proof: string | null, kap: NotAdmitted): Refusal {
  if (credential.token !== null && !kap.has_token) return badToken(credential);
  if (credential.token === null && proof === null && kap.audience !== "public") {
    const signIn = signInRedirect(deps, kap, request);
    if (signIn) return signIn;
    return refuse(
      "UNAUTHORIZED",
      "this kap is not public: call it with Authorization: Bearer kbt_…, an endpoint secret, or as a signed-in member",
      {
        headers: { "www-authenticate": "Bearer" },
      },
    );
  }
  if (kap.state === "deleted") {
    return new Refusal(410, "KAP_DELETED", `the kap ${kap.slug} was deleted`, {
      details: { deleted_at: isoTime(kap.deleted_at), recover_until: isoTime(kap.recover_until) },
    });
  }
  if (kap.state === "disabled") {
    try {
      refuseDisabled(kap, 503);
    } catch (error) {
      return asRefusal(error);
    }
  }
  return new Refusal(
    503,
    "TRIGGER_PAUSED",
    `the request trigger of ${kap.slug} is paused${kap.paused_by ? ` by ${kap.paused_by.name}` : ""}: resume it to serve calls again`,
    {
      details: { by: kap.paused_by, at: isoTime(kap.paused_at) },
    },
  );
}

/** A time as JSON has it everywhere, from the form PostgreSQL gives it in JSON. */
const isoTime = (text: string | null): string | null => (text === null ? null : new Date(text).toISOString());

async function serveAdmitted(call: Call, admission: Admission, caller: string): Promise<void> {
  const { deps, request, response, runId } = call;
  const headers = forwardedHeaders(request, call.credential.consumed);
  headers.push(
    "x-kapstone-run",
    runId,
    "x-kapstone-kap",
    admission.id,
    "x-kapstone-revision",
    String(admission.revision),
    "x-kapstone-trigger",
    admission.trigger_id,
    "x-kapstone-scheme",
    deps.addresses.scheme,
    "x-kap-caller",
    caller,
  );
  if (call.credential.user) headers.push("x-kapstone-user", Buffer.from(JSON.stringify(call.credential.user)).toString("base64url"));
  let runtime: ReadyRuntime | null =
    admission.runtime_id && admission.data_address && admission.control_address
      ? { id: admission.runtime_id, data: admission.data_address, control: admission.control_address }
      : null;
  let claimMs = 0;
  for (let attempt = 1; ; attempt++) {
    if (!runtime) {
      const started = performance.now();
      runtime = await claimFor(call, admission.id);
      claimMs += performance.now() - started;
      await deps.postgres.hot.query({
        name: "run-runtime",
        text: "update runs set runtime_id = $2 where id = $1",
        values: [runId, runtime.id],
      });
    }
    const answerHeaders = ["x-kap-run-id", runId, "x-request-id", call.requestId];
    for (const [name, value] of Object.entries(call.count.headers())) answerHeaders.push(name, value);
    const body = call.buffered === null ? request : call.buffered.length === 0 ? null : call.buffered;
    const isFull = beginFlight(call.flightKey, runtime.id, deps.config.concurrency);
    if (isFull) growRuntimes(deps, admission.id);
    const outcome = await forward(
      {
        address: runtime.data,
        method: request.method ?? "GET",
        path: call.credential.target,
        headers: withClaim(headers, claimMs),
        body,
        answerHeaders,
      },
      response,
    );
    endFlight(call.flightKey, runtime.id);
    switch (outcome.kind) {
      case "answered":
        return;
      case "client-gone":
        return; // the runtime sees its connection close and reports the run's end
      case "failed":
        if (outcome.outcome === "refused" && outcome.status === 503) growRuntimes(deps, admission.id);
        // Said by a process that was about to be replaced: it has not taken the run, so nobody reports it. A reported run stays as it is.
        if (outcome.outcome === "crashed")
          await endRun(deps.postgres.hot, runId, { outcome: "crashed", detail: outcome.detail, httpStatus: outcome.status });
        throw failureRefusal(outcome, call.credential.isMember);
      case "unassigned":
        await abandonRuntime(deps, runtime);
        runtime = null;
        if (attempt < attempts && call.buffered !== null) continue;
        await endRun(deps.postgres.hot, runId, {
          outcome: "crashed",
          detail: "the runtime was gone before it took the call",
          httpStatus: 503,
        });
        throw refuse("UNAVAILABLE", "the kap's runtime was gone; a new one is being prepared: send the call again", {
          headers: { "retry-after": "1" },
        });
      case "broken":
        throw await lostAnswer(call, runtime, outcome.detail);
      case "cut":
        await lostAnswer(call, runtime, outcome.detail);
        return;
    }
  }
}

/** The runtime writes the run's phases; only the gateway knows of this one. */
const withClaim = (headers: string[], claimMs: number): string[] =>
  claimMs === 0 ? headers : [...headers, "x-kapstone-claim", claimMs.toFixed(2)];

/** The connection to the runtime broke: the refusal for the caller. The runtime reports the run's end; when it cannot any more, the run ends here. */
async function lostAnswer({ deps, response, runId, credential }: Call, runtime: ReadyRuntime, cause: string): Promise<Refusal> {
  const { hot } = deps.postgres;
  const told = await askForOutcome(runtime.control, runId, !response.headersSent);
  if (told.kind === "known") {
    const status = statusOfLost(told.outcome);
    if (!response.headersSent) await noteStatus(hot, runId, status);
    return failureRefusal({ outcome: told.outcome, status, detail: told.detail, retryAfter: "1" }, credential.isMember);
  }
  // A supervisor that has not heard of the run after all that time never will: its process died before it had read the request.
  if (told.kind === "gone" || !response.headersSent)
    await endRun(hot, runId, { outcome: "crashed", detail: `the runtime ended during the call: ${cause}`, httpStatus: 502 });
  return failureRefusal({ outcome: "crashed", status: 502, detail: cause, retryAfter: "1" }, credential.isMember);
}

/** Claims a runtime for an admitted call; when none is to be had the run ends with it. */
async function claimFor(call: Call, kapId: string): Promise<ReadyRuntime> {
  try {
    return await ensureRuntime(call.deps, kapId);
  } catch (error) {
    await endRun(call.deps.postgres.hot, call.runId, {
      outcome: "refused",
      detail: error instanceof Error ? error.message : String(error),
      httpStatus: 503,
    });
    throw error;
  }
}

function answerRefusal(
  deps: Deps,
  request: IncomingMessage,
  response: ServerResponse,
  refusal: Refusal,
  headers: Record<string, string>,
): void {
  if (refusal.status === 500) deps.log.error({ err: refusal.cause ?? refusal, request_id: headers["x-request-id"] }, "a call failed");
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const text = JSON.stringify(envelopes.kaps(refusal));
  response.statusCode = refusal.status;
  const all = {
    "content-type": "application/json; charset=utf-8",
    "content-length": String(Buffer.byteLength(text)),
    "cache-control": "no-store",
    ...headers,
    ...refusal.options.headers,
  };
  for (const [name, value] of Object.entries(all)) response.setHeader(name, value);
  if (request.method === "HEAD") response.end();
  else if (request.readableEnded || !hasBody(request)) response.end(text);
  else endUnread(request, response, text);
}
