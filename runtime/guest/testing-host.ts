/**
 * The bridge's host side for the kit's tests: a real isolate with the real kit in it, database, store and fetch kept in memory. It is the
 * peer the tests drive; the runtime has its own, with the same pure operations.
 */
import ivm from "isolated-vm";
import { bundleGuest } from "../guest-script.ts";
import { createHostOps, shownError } from "../host-ops.ts";

let script: Promise<string> | null = null;

/** The kit as the runtime bundles it, once. */
export function kitScript(): Promise<string> {
  script ??= bundleGuest();
  return script;
}

export interface RunResult {
  status: number;
  headers: [string, string][];
  body: Buffer;
  /** How the run ended: "done", or the kind given to fail. */
  outcome: string;
  detail: string;
  logs: { level: string; text: string }[];
}

interface Answer {
  text?: string | undefined;
  bytes?: ArrayBuffer | undefined;
}
export interface Outgoing {
  method: string;
  url: string;
  headers: [string, string][];
  redirect: string;
  body: Buffer;
}
export interface Incoming {
  status?: number;
  headers?: Record<string, string>;
  body?: string | Uint8Array | (string | Uint8Array)[];
  /** The body never comes to its end. */
  stalls?: boolean;
}

interface Live {
  resolve: (result: RunResult) => void;
  result: RunResult;
  parts: Buffer[];
  timers: Set<number>;
  upload: Uint8Array[];
}

export interface TestHostOptions {
  /** Answers fetch; by default 404. */
  fetch?: (request: Outgoing) => Incoming | Promise<Incoming>;
  /** Answers db.query and db.batch statements. */
  query?: (sql: string, params: unknown[]) => { rows: unknown[]; row_count: number };
  secrets?: Record<string, string>;
  /** `chunk` answers false this often (every n-th), so that the pump has to wait. */
  slowEvery?: number;
}

export interface RequestOptions {
  method?: string;
  url?: string;
  headers?: Record<string, string>;
  /** A list is streamed. */
  body?: string | Uint8Array | Uint8Array[];
  user?: object;
  file?: string;
  /** Called with the run's number once it has started. */
  started?: (runKey: number) => void;
}

export class TestHost {
  readonly isolate = new ivm.Isolate({ memoryLimit: 128 });
  readonly objects = new Map<string, { body: Buffer; contentType: string }>();
  /** Host calls in their order: `op` and the JSON they carried. */
  readonly calls: { op: string; text: string }[] = [];
  readonly #options: TestHostOptions;
  readonly #ops = createHostOps();
  readonly #live = new Map<number, Live>();
  readonly #stalled = new Set<number>();
  readonly #downloads = new Map<number, Uint8Array[]>();
  readonly #uploads = new Map<number, { parts: Buffer[]; finished: () => void }>();
  readonly #timers = new Map<number, NodeJS.Timeout>();
  #context!: ivm.Context;
  #guest!: Record<string, ivm.Reference<(...args: unknown[]) => unknown>>;
  #lastRun = 0;

  private constructor(options: TestHostOptions) {
    this.#options = options;
  }

  /** Boots the kit and installs a program: `modules` maps files to the body of a function that returns the module's namespace. */
  static async boot(modules: Record<string, string>, options: TestHostOptions = {}): Promise<TestHost> {
    const host = new TestHost(options);
    const context = host.isolate.createContextSync();
    host.#context = context;
    context.evalSync(await kitScript(), { filename: "kapstone:guest" });
    context.global.setSync("__host", new ivm.ExternalCopy(host.#callbacks()).copyInto());
    context.evalSync("__boot()");
    const guest = context.global.getSync("__guest", { reference: true }) as ivm.Reference<Record<string, unknown>>;
    host.#guest = Object.fromEntries(
      ["run", "settle", "timer", "abort", "forget", "secrets", "rejection"].map((name) => [name, guest.getSync(name, { reference: true })]),
    ) as never;
    context.evalSync("delete globalThis.__guest");
    if (options.secrets) host.#enter(0, "secrets", [JSON.stringify(options.secrets)]);
    const table = Object.entries(modules).map(([file, code]) => `${JSON.stringify(file)}: once(async () => {${code}\n})`);
    context.evalSync(
      `"use strict"; __install(Promise.resolve((() => { const once = (f) => { let p; return () => (p ??= f()); }; return {${table.join(",")}}; })()))`,
      { filename: "kap:program" },
    );
    return host;
  }

  /** A program of one file, `main.ts`; `code` is the handler's expression with `db`, `store` and `secrets` in scope. */
  static program(code: string, options: TestHostOptions = {}): Promise<TestHost> {
    return TestHost.boot(
      { "main.ts": `const { db, store, secrets } = globalThis[Symbol.for("kap")]; return { default: ${code} };` },
      options,
    );
  }

  request(options: RequestOptions = {}): Promise<RunResult> {
    const { body } = options;
    const isStream = Array.isArray(body);
    const head = {
      method: options.method ?? (body === undefined ? "GET" : "POST"),
      url: options.url ?? "https://hello.kaps.example/",
      headers: Object.entries(options.headers ?? {}).flat(),
      bodyKind: body === undefined ? "none" : isStream ? "stream" : "full",
      user: options.user,
    };
    const full = typeof body === "string" || body === undefined || isStream ? undefined : (new Uint8Array(body).buffer as ArrayBuffer);
    return this.#start(0, head, typeof body === "string" ? body : full, isStream ? [...body] : [], options);
  }

  scheduled(scheduledAt: number): Promise<RunResult> {
    return this.#start(1, { scheduledAt }, undefined, [], {});
  }

  email(message: object, attachments: { filename: string; contentType: string; content: Uint8Array }[]): Promise<RunResult> {
    const bytes = new Uint8Array(Buffer.concat(attachments.map(({ content }) => content))).buffer;
    const list = attachments.map(({ filename, contentType, content }) => ({ filename, contentType, size: content.length }));
    return this.#start(2, { message, attachments: list }, bytes, [], {});
  }

  abort(runKey: number, reason: string): void {
    this.#enter(runKey, "abort", [runKey, reason]);
  }

  /** Ends a run from outside, as a deadline does; answers what the kit's `forget` says. */
  kill(runKey: number): boolean {
    this.#finish(runKey, "killed", "");
    return this.#guest.forget?.applySync(undefined, [runKey]) as boolean;
  }

  setSecrets(secrets: Record<string, string>): void {
    this.#enter(0, "secrets", [JSON.stringify(secrets)]);
  }

  /** Evaluates text in the isolate, with a string as the answer. For tests of what the isolate holds. */
  evaluate(code: string): string {
    return String(this.#context.evalSync(`String((() => { ${code} })())`));
  }

  close(): void {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
    this.isolate.dispose();
  }

  #start(
    kind: number,
    given: object,
    body: string | ArrayBuffer | undefined,
    upload: Uint8Array[],
    options: RequestOptions,
  ): Promise<RunResult> {
    const runKey = ++this.#lastRun;
    const head = {
      file: options.file ?? "main.ts",
      trigger: "trigger-1",
      runId: `run-${runKey}`,
      kap: { id: "kap-1", slug: "hello", name: "Hello" },
      ...given,
    };
    return new Promise((resolve) => {
      const result: RunResult = { status: 0, headers: [], body: Buffer.alloc(0), outcome: "", detail: "", logs: [] };
      this.#live.set(runKey, { resolve, result, parts: [], timers: new Set(), upload });
      this.#enter(runKey, "run", [runKey, kind, JSON.stringify(head), body]);
      options.started?.(runKey);
    });
  }

  #enter(runKey: number, name: string, args: unknown[]): void {
    try {
      this.#guest[name]?.applySync(undefined, args, { arguments: { copy: true }, timeout: 5000 });
    } catch (error) {
      if (!(error instanceof Error) || this.isolate.isDisposed) throw error;
      if (name === "rejection" || /timed out|disposed/.test(error.message)) this.#finish(runKey, "killed", error.message);
      else this.#enter(runKey, "rejection", [runKey, error.stack ?? error.message]);
    }
  }

  #finish(runKey: number, outcome: string, detail: string): void {
    const live = this.#live.get(runKey);
    if (live === undefined) return;
    this.#live.delete(runKey);
    live.result.outcome = outcome;
    live.result.detail = detail;
    live.result.body = Buffer.concat(live.parts);
    for (const timerId of live.timers) clearTimeout(this.#timers.get(timerId));
    this.#ops.forget(runKey);
    // The guest is told after the entry that ended the run has returned.
    setImmediate(() => {
      if (!this.isolate.isDisposed) this.#guest.forget?.applySync(undefined, [runKey]);
      live.resolve(live.result);
    });
  }

  #callbacks(): Record<string, ivm.Callback> {
    const buffer = (data: string | ArrayBuffer) => (typeof data === "string" ? Buffer.from(data) : Buffer.from(data));
    let chunks = 0;
    const callbacks = {
      respond: (
        runKey: number,
        status: number,
        headersJson: string,
        body: string | ArrayBuffer | undefined,
        _more: boolean,
        isLast: boolean,
      ) => {
        const live = this.#live.get(runKey);
        if (live === undefined) return;
        const flat = JSON.parse(headersJson) as string[];
        live.result.status = status;
        for (let index = 0; index < flat.length; index += 2) live.result.headers.push([flat[index] as string, flat[index + 1] as string]);
        if (body !== undefined) live.parts.push(buffer(body));
        if (isLast) this.#finish(runKey, "done", "");
      },
      chunk: (runKey: number, data: string | ArrayBuffer) => {
        this.#live.get(runKey)?.parts.push(buffer(data));
        chunks++;
        return this.#options.slowEvery === undefined || chunks % this.#options.slowEvery !== 0;
      },
      end: () => {},
      fail: (runKey: number, kind: string, detail: string) => this.#finish(runKey, kind, detail),
      done: (runKey: number) => this.#finish(runKey, "done", ""),
      call: (callId: number, runKey: number, op: string, text: string, bytes: ArrayBuffer | undefined) => {
        this.calls.push({ op, text });
        this.#answer(runKey, op, text, bytes).then(
          (answer) => this.#settle(callId, runKey, true, answer),
          (error) => this.#settle(callId, runKey, false, { text: JSON.stringify(shownError(error)) }),
        );
      },
      sync: (op: string, text: string, bytes: ArrayBuffer | undefined) => this.#ops.sync(op, text, bytes),
      log: (runKey: number, level: string, text: string) => {
        this.#live.get(runKey)?.result.logs.push({ level, text });
      },
      startTimer: (timerId: number, runKey: number, delayMs: number, repeat: boolean) => {
        this.#live.get(runKey)?.timers.add(timerId);
        const fire = () => this.#enter(runKey, "timer", [timerId, runKey]);
        this.#timers.set(timerId, repeat ? setInterval(fire, Math.max(1, delayMs)) : setTimeout(fire, delayMs));
      },
      stopTimer: (timerId: number) => clearTimeout(this.#timers.get(timerId)),
    };
    return Object.fromEntries(
      Object.entries(callbacks).map(([name, callback]) => [name, new ivm.Callback(callback as (...args: unknown[]) => unknown)]),
    );
  }

  #settle(callId: number, runKey: number, ok: boolean, answer: Answer): void {
    if (this.#live.has(runKey) && !this.isolate.isDisposed) this.#enter(runKey, "settle", [callId, runKey, ok, answer.text, answer.bytes]);
  }

  async #answer(runKey: number, op: string, text: string, bytes: ArrayBuffer | undefined): Promise<Answer> {
    if (this.#ops.handles(op)) return this.#ops.call(runKey, op, text, bytes);
    const input = (text === "" ? {} : JSON.parse(text)) as Record<string, unknown>;
    const streamId = input.streamId as number;
    switch (op) {
      case "body.pull":
        return part(this.#live.get(runKey)?.upload.shift());
      case "body.cancel":
      case "body.drain":
        await new Promise((resolve) => setImmediate(resolve));
        return {};
      case "fetch.pull":
      case "store.pull":
        if (this.#stalled.has(streamId) && this.#downloads.get(streamId)?.length === 0) await new Promise(() => {});
        return part(this.#downloads.get(streamId)?.shift());
      case "fetch.cancel":
      case "store.cancel":
        this.#downloads.delete(streamId);
        return {};
      case "fetch.push":
      case "store.push":
        this.#uploads.get(streamId)?.parts.push(Buffer.from(bytes as ArrayBuffer));
        return {};
      case "fetch.finish":
      case "store.finish":
        this.#uploads.get(streamId)?.finished();
        return {};
      case "fetch":
        return this.#fetch(input, await this.#bodyOf(input, bytes));
      case "store.put": {
        const body = await this.#bodyOf(input, bytes);
        this.objects.set(input.key as string, {
          body,
          contentType: (input.contentType as string | undefined) ?? "application/octet-stream",
        });
        return {};
      }
      case "store.get": {
        const object = this.objects.get(input.key as string);
        if (object === undefined) return { text: JSON.stringify({ status: 404, headers: [], bodyKind: "none" }) };
        this.#downloads.set(streamId, [object.body]);
        return { text: JSON.stringify({ status: 200, headers: ["content-type", object.contentType], bodyKind: "stream" }) };
      }
      case "store.delete":
        this.objects.delete(input.key as string);
        return {};
      case "store.list": {
        const keys = [...this.objects.keys()].filter((key) => key.startsWith((input.prefix as string | undefined) ?? "")).sort();
        const rest = keys.filter((key) => key > ((input.cursor as string | undefined) ?? ""));
        // Two a page, so that following the pages is proven.
        const objects = rest.slice(0, 2).map((key) => ({ key, size: this.objects.get(key)?.body.length }));
        return { text: JSON.stringify({ objects, next: rest.length > 2 ? objects.at(-1)?.key : null }) };
      }
      case "db.query":
        return { text: JSON.stringify(this.#query(input)) };
      case "db.batch":
        return { text: JSON.stringify((input.statements as Record<string, unknown>[]).map((one) => this.#query(one))) };
      default:
        throw new TypeError(`no such operation: ${op}`);
    }
  }

  #query({ sql, params }: Record<string, unknown>): { rows: unknown[]; row_count: number } {
    return this.#options.query?.(sql as string, params as unknown[]) ?? { rows: [], row_count: 0 };
  }

  async #bodyOf(input: Record<string, unknown>, bytes: ArrayBuffer | undefined): Promise<Buffer> {
    if (input.bodyKind !== "stream")
      return typeof input.text === "string" ? Buffer.from(input.text) : Buffer.from(bytes ?? new ArrayBuffer(0));
    const parts: Buffer[] = [];
    await new Promise<void>((finished) => this.#uploads.set(input.streamId as number, { parts, finished }));
    return Buffer.concat(parts);
  }

  async #fetch(input: Record<string, unknown>, body: Buffer): Promise<Answer> {
    const flat = input.headers as string[];
    const headers = flat.flatMap((name, index) => (index % 2 === 0 ? [[name, flat[index + 1]] as [string, string]] : []));
    const request: Outgoing = {
      method: input.method as string,
      url: input.url as string,
      headers,
      redirect: input.redirect as string,
      body,
    };
    const answer = (await this.#options.fetch?.(request)) ?? { status: 404 };
    const head = {
      status: answer.status ?? 200,
      statusText: "",
      headers: Object.entries(answer.headers ?? {}).flat(),
      url: input.url,
      redirected: false,
    };
    if (answer.body === undefined) return { text: JSON.stringify({ ...head, bodyKind: "none" }) };
    if (!Array.isArray(answer.body)) {
      return { text: JSON.stringify({ ...head, bodyKind: "full" }), bytes: new Uint8Array(Buffer.from(answer.body as string)).buffer };
    }
    if (answer.stalls) this.#stalled.add(input.streamId as number);
    this.#downloads.set(
      input.streamId as number,
      answer.body.map((one) => new Uint8Array(Buffer.from(one as string))),
    );
    return { text: JSON.stringify({ ...head, bodyKind: "stream" }) };
  }
}

const part = (bytes: Uint8Array | undefined): Answer => (bytes === undefined ? { text: "end" } : { bytes: new Uint8Array(bytes).buffer });
