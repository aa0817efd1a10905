import { z } from "zod";
import { newId } from "#platform/ids.ts";
import type { Deps } from "../deps.ts";
import { abandonRuntime, ensureRuntime, type ReadyRuntime } from "./claims.ts";
import { withoutDomain } from "./forward.ts";
import { control, dataPool } from "./runtime-client.ts";

/** A dry run of a trigger: the program runs, what it does is undone or refused, and nothing of it is recorded. */
export interface DryInvocation {
  kap: { id: string; slug: string };
  triggerId: string;
  method: string;
  /** Path and query as on the request line. */
  path: string;
  /** Flat names and values, as the program is to see them; without Host. */
  headers: string[];
  body: Buffer | null;
  /** Who the program is told has called. */
  caller: string;
  user: { id: string; email: string; name: string; role: string } | null;
  signal: AbortSignal;
}

const text = z.string();
const error = text.nullable();
const effect = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("db"), sql: text, row_count: z.number().nullable(), batch: z.number().nullable(), error }),
  z.object({
    kind: z.literal("store.put"),
    key: text,
    existed: z.boolean().nullable(),
    bytes: z.number().nullable(),
    content_type: text.nullable(),
    error,
  }),
  z.object({ kind: z.literal("store.delete"), key: text, existed: z.boolean().nullable(), error }),
  z.object({ kind: z.literal("fetch"), method: text, url: text }),
  z.object({ kind: z.literal("wait-until") }),
]);
const report = z.object({
  end: z.object({ outcome: text, detail: text.nullable(), duration_ms: z.number(), cpu_ms: z.number() }),
  effects: z.array(effect),
  effects_dropped: z.number(),
  lines: z.array(z.object({ n: z.number(), at: text, level: text, text })),
});
type DryReport = z.infer<typeof report>;

/** What the runtime answered to the request, as far as it came. */
interface DryAnswer {
  status: number;
  headers: [name: string, value: string][];
  body: Buffer;
}

export interface DryResult {
  report: DryReport;
  answer: DryAnswer | null;
}

const attempts = 3;
/** Longer than the supervisor waits for the run's end to be told and undone. */
const reportMs = 15_000;
/** Not sent on: the connection's own. */
const hopByHop = new Set(["connection", "keep-alive", "transfer-encoding"]);

/**
 * Carries out a dry run on the kap's runtime, claiming one if need be, and waits until it has ended and is undone. Never rejects for what the program
 * did. @throws Refusal 503 when no runtime is to be had
 */
export async function invokeDry(deps: Deps, invocation: DryInvocation): Promise<DryResult> {
  const runId = newId();
  for (let attempt = 1; ; attempt++) {
    const runtime = await ensureRuntime(deps, invocation.kap.id);
    const revision = await beginUse(deps, invocation.kap.id, runtime);
    const sent = await send(deps, runtime, revision, runId, invocation);
    if (sent.kind === "not-taken") {
      await abandonRuntime(deps, runtime);
      if (attempt < attempts) continue;
      return { report: crashed("no runtime stayed assigned long enough to take the dry run"), answer: null };
    }
    const answer = sent.kind === "answered" ? sent.answer : null;
    const told = await control(runtime.control, "GET", `/dry-runs/${runId}`, undefined, reportMs).catch(() => null);
    if (told?.status === 200) return { report: report.parse(told.body), answer };
    if (!told) await abandonRuntime(deps, runtime);
    return { report: crashed("the runtime ended during the dry run; what it had done is undone"), answer };
  }
}

function crashed(detail: string): DryReport {
  return { end: { outcome: "crashed", detail, duration_ms: 0, cpu_ms: 0 }, effects: [], effects_dropped: 0, lines: [] };
}

/** The kap's revision; and the runtime counts as used, since no record of this run will say so. */
async function beginUse(deps: Deps, kapId: string, runtime: ReadyRuntime): Promise<number> {
  const { rows } = await deps.postgres.hot.query<{ revision: number }>({
    name: "dry-run-begins",
    text: `with used as (update runtimes set last_used_at = now() where id = $2)
           select revision from kaps where id = $1`,
    values: [kapId, runtime.id],
  });
  return rows[0]?.revision ?? 0;
}

type Sent = { kind: "answered"; answer: DryAnswer } | { kind: "not-taken" } | { kind: "broken" };

async function send(deps: Deps, runtime: ReadyRuntime, revision: number, runId: string, invocation: DryInvocation): Promise<Sent> {
  const { kap, triggerId, method, path, headers, body, caller, user, signal } = invocation;
  const own = {
    host: new URL(deps.addresses.kap(kap.slug)).host,
    "x-kapstone-run": runId,
    "x-kapstone-kap": kap.id,
    "x-kapstone-dry-run": "1",
    "x-kapstone-revision": String(revision),
    "x-kapstone-trigger": triggerId,
    "x-kapstone-scheme": deps.addresses.scheme,
    "x-kap-caller": caller,
    ...(user ? { "x-kapstone-user": Buffer.from(JSON.stringify(user)).toString("base64url") } : {}),
  };
  try {
    const response = await dataPool(runtime.data).request({
      method: method as "GET",
      path,
      headers: [...headers, ...Object.entries(own).flat()],
      body,
      signal,
      responseHeaders: "raw",
    });
    const raw = response.headers as unknown as (Buffer | string)[];
    const shown: [string, string][] = [];
    for (let at = 0; at + 1 < raw.length; at += 2) {
      const name = String(raw[at]).toLowerCase();
      const value = String(raw[at + 1]);
      if (!hopByHop.has(name)) shown.push([name, name === "set-cookie" ? withoutDomain(value) : value]);
    }
    if (shown.some(([name, value]) => name === "x-kapstone-outcome" && value === "unassigned")) {
      await response.body.dump();
      return { kind: "not-taken" };
    }
    // A body that breaks off, as one over the limit does, is shown as far as it came.
    const pieces: Buffer[] = [];
    try {
      for await (const piece of response.body as AsyncIterable<Buffer>) pieces.push(piece);
    } catch (cause) {
      if (signal.aborted) throw cause;
    }
    return { kind: "answered", answer: { status: response.statusCode, headers: shown, body: Buffer.concat(pieces) } };
  } catch (cause) {
    if (signal.aborted) throw signal.reason;
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
    const isNotTaken = code === "ECONNREFUSED" || code === "ENOENT" || code === "UND_ERR_CONNECT_TIMEOUT" || code === "EHOSTUNREACH";
    return isNotTaken ? { kind: "not-taken" } : { kind: "broken" };
  }
}
