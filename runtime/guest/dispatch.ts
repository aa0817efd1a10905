/** From the host's `run` to the program's handler, and from what it returns to the host (decided §7.1). */
import { Body, type Bytes, chunkBytes, type HostSource, isHostSource, pullPart } from "./body.ts";
import { enterRun } from "./current-run.ts";
import { callHost, host } from "./host.ts";
import {
  bufferSlice,
  jsonParse,
  NativeDate,
  objectCreate,
  promiseResolve,
  promiseThen,
  reflectApply,
  U8,
  viewBuffer,
} from "./primordials.ts";
import { requestFromHost } from "./request.ts";
import { isResponse, type Response, sendHead } from "./response.ts";
import { addRun, dropRun, KapContext, Run, type RunHead } from "./run.ts";
import { exactBuffer } from "./utf8.ts";

type Handler = (subject: unknown, ctx: KapContext) => unknown;
type ModuleTable = Record<string, () => Promise<{ default?: unknown }>>;

interface RequestHead extends RunHead {
  method: string;
  url: string;
  headers: string[];
  bodyKind: "none" | "full" | "stream";
}
interface ScheduledHead extends RunHead {
  scheduledAt: number;
}
interface EmailHead extends RunHead {
  message: Record<string, unknown>;
  attachments: { filename: string; contentType: string; size: number }[];
}

const kinds = ["fetch", "scheduled", "email"] as const;

let table: Promise<ModuleTable> | null = null;
/** Default exports of the modules that have been evaluated, by file. */
const loaded = objectCreate(null) as Record<string, { value: unknown }>;
/** The run in whose time a module is being evaluated: others wait for the same promise. */
const loading = objectCreate(null) as Record<number, number>;

/** Takes the promise of the bundle's table: `{[file]: () => Promise<ModuleNamespace>}`. */
export function install(given: Promise<ModuleTable>): void {
  table = given;
  // A bundle that fails to evaluate is reported by the first run, not as an unhandled rejection.
  promiseThen(given, undefined, () => {});
}

/** True when the run was still evaluating a module, which then never comes to its end. */
export const wasLoading = (runKey: number): boolean => (loading[runKey] ?? 0) > 0;

async function load(runKey: number, file: string): Promise<{ value: unknown }> {
  loading[runKey] = (loading[runKey] ?? 0) + 1;
  try {
    if (table === null) throw new Error("No program has been installed.");
    const modules = await table;
    const module = await modules[file]?.(); // a file without a default export has no entry
    loaded[file] = { value: module?.default };
    return loaded[file];
  } finally {
    delete loading[runKey];
  }
}

/** The host's entry for one run. `kind`: 0 request, 1 scheduled, 2 email. */
export function startRun(runKey: number, kind: number, headText: string, body: ArrayBuffer | string | undefined): void {
  enterRun(runKey);
  const head = jsonParse(headText) as RunHead;
  const run = new Run(runKey, head);
  addRun(run);
  const entry = loaded[head.file];
  if (entry !== undefined) {
    invoke(run, kind, entry.value, body);
    return;
  }
  promiseThen(
    load(runKey, head.file),
    (module) => {
      enterRun(runKey);
      invoke(run, kind, module.value, body);
    },
    (error) => run.failWith(error),
  );
}

function invoke(run: Run, kind: number, exported: unknown, body: ArrayBuffer | string | undefined): void {
  try {
    const name = kinds[kind] ?? "fetch";
    let handler: unknown;
    let self: unknown;
    if (typeof exported === "function") handler = exported;
    else if (typeof exported === "object" && exported !== null) {
      self = exported;
      handler = (exported as Record<string, unknown>)[name];
    }
    if (typeof handler !== "function") {
      run.fail(
        "no-handler",
        `${run.head.file} exports no handler for this trigger: its default export must be a function or an object with \`${name}\`.`,
      );
      return;
    }
    const subject = kind === 0 ? requestOf(run, body) : kind === 1 ? scheduledOf(run) : messageOf(run, body);
    const result = reflectApply(handler as Handler, self, [subject, new KapContext(run)]);
    if (kind !== 0) {
      promiseThen(
        promiseResolve(result),
        () => run.settleOne(),
        (error) => run.failWith(error),
      );
    } else if (isResponse(result)) answer(run, result);
    else {
      promiseThen(
        promiseResolve(result),
        (response) => answer(run, response),
        (error) => run.failWith(error),
      );
    }
  } catch (error) {
    run.failWith(error);
  }
}

function requestOf(run: Run, given: ArrayBuffer | string | undefined) {
  const { method, url, headers, bodyKind } = run.head as RequestHead;
  let body: Body;
  if (bodyKind === "stream") {
    const source: HostSource = { runKey: run.key, pull: "body.pull", cancel: "body.cancel", argument: undefined, signal: null };
    body = new Body(source, null);
  } else body = new Body(typeof given === "string" ? given : given === undefined ? null : new U8(given), null);
  const request = requestFromHost(method, url, headers, body);
  run.request = request;
  return request;
}

function scheduledOf(run: Run) {
  const head = run.head as ScheduledHead;
  return { triggerId: typeof head.trigger === "string" ? head.trigger : head.trigger.id, scheduledAt: new NativeDate(head.scheduledAt) };
}

/** The message with its attachments, whose bytes lie one after another in `given`. */
function messageOf(run: Run, given: ArrayBuffer | string | undefined) {
  const { message, attachments } = run.head as EmailHead;
  const bytes = new U8(given instanceof ArrayBuffer ? given : new ArrayBuffer(0));
  let at = 0;
  const list: { filename: string; contentType: string; content: Bytes }[] = [];
  for (let index = 0; index < attachments.length; index++) {
    const { filename, contentType, size } = attachments[index] as EmailHead["attachments"][number];
    list[index] = { filename, contentType, content: new U8(bufferSlice(viewBuffer(bytes), at, at + size)) };
    at += size;
  }
  return { ...message, attachments: list };
}

/** Sends what the handler returned; a body that is a stream follows part by part. */
function answer(run: Run, response: unknown): void {
  if (run.hasEnded) return;
  if (!isResponse(response)) {
    run.fail("error", "TypeError: The handler returned no Response.");
    return;
  }
  try {
    const isLast = run.open === 1;
    const rest = sendHead(run.key, response as Response, isLast);
    if (rest === null) {
      if (isLast) dropRun(run.key);
      else run.settleOne();
    } else {
      promiseThen(
        pump(run, rest),
        () => run.settleOne(),
        (error) => run.failWith(error),
      );
    }
  } catch (error) {
    run.failWith(error);
  }
}

/** Passes a streamed body on, waiting whenever the host says that the caller is slower. A caller who goes away cancels it. */
async function pump(run: Run, body: Body): Promise<void> {
  const { source } = body;
  // From host to host, no stream is needed.
  const next = isHostSource(source) ? hostParts(run, body.move().source as HostSource) : streamParts(run, body);
  for (;;) {
    const bytes = await next();
    if (bytes === null) break;
    if (bytes.length > 0 && !host.chunk(run.key, exactBuffer(bytes))) await callHost(run.key, "body.drain", undefined);
  }
  host.end(run.key);
}

function hostParts(run: Run, source: HostSource): () => Promise<Bytes | null> {
  run.cancelAnswer = () => callHost(source.runKey, source.cancel, source.argument);
  return () => pullPart(source);
}

function streamParts(run: Run, body: Body): () => Promise<Bytes | null> {
  const stream = body.move().asStream();
  if (stream === null) throw new TypeError("The body has been used already.");
  const reader = stream.getReader();
  run.cancelAnswer = (reason) => reader.cancel(reason);
  return async () => {
    const { done, value } = await reader.read();
    if (done) return null;
    try {
      return chunkBytes(value);
    } catch (error) {
      run.cancel(error);
      throw error;
    }
  };
}
