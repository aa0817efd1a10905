import type { IncomingMessage } from "node:http";
import type { Assignment } from "../seam/assignment.ts";
import { callApi, readBody } from "./api-client.ts";
import { type HostAnswer, type HostCall, HostRefusal, type RunAccount } from "./host-call.ts";
import { HostStreams, type PulledBody, PushedBody } from "./host-streams.ts";

/** Objects up to this size come whole with their head. */
const wholeBytes = 64 * 1024;
const maxListBytes = 64 * 1024 * 1024;
const shownFields = new Set(["content-type", "content-length", "etag", "last-modified"]);

interface StoreInput {
  key: string;
  streamId?: number;
  contentType?: string;
  bodyKind?: "full" | "stream";
  text?: string;
  prefix?: string;
}

/** A kap's file store, through the api's data routes (spec 3 §4), which keep its quota and its key rules. */
export class KapStore {
  /** The newest. Streams outlive a change of it: they belong to runs. */
  assignment: Assignment;
  readonly #streams = new HostStreams();

  constructor(assignment: Assignment) {
    this.assignment = assignment;
  }

  async call(call: HostCall): Promise<HostAnswer> {
    const input = JSON.parse(call.text) as StoreInput;
    const key = `store/${call.streamKey(input.streamId)}`;
    switch (call.op) {
      case "store.get":
        return this.#get(call, input, key);
      case "store.put":
        return this.#put(call, input, key);
      case "store.delete":
        return this.#delete(call, input);
      case "store.list":
        return this.#list(call, input);
      case "store.pull":
        return this.#streams.pull(key);
      case "store.push":
        return this.#streams.push(key, call.bytes);
      case "store.finish":
        return this.#streams.finish(key);
      case "store.cancel":
        return this.#streams.cancel(key);
      default:
        throw new HostRefusal("TypeError", `There is no host call ${call.op}.`);
    }
  }

  async #send(
    call: HostCall,
    method: string,
    path: string,
    options: { headers?: Record<string, string>; body?: Parameters<typeof callApi>[1]["body"] } = {},
  ): Promise<IncomingMessage> {
    const signal = AbortSignal.any([call.run.abort.signal, AbortSignal.timeout(call.remainingMs)]);
    const headers = { "x-service-client": "kap-runtime", ...options.headers };
    return callApi(this.assignment.api, {
      method,
      path: `/v1/kaps/${this.assignment.kap_id}/store/${path}`,
      headers,
      ...(options.body === undefined ? {} : { body: options.body }),
      signal,
    });
  }

  async #get(call: HostCall, input: StoreInput, key: string): Promise<HostAnswer> {
    const response = await this.#send(call, "GET", objectPath(input.key));
    if (response.statusCode === 404) {
      response.resume();
      return { text: JSON.stringify({ status: 404, headers: [], bodyKind: "none" }) };
    }
    if (response.statusCode !== 200) throw await refusal(response);
    const headers = Object.entries(response.headers).flatMap(([name, value]) =>
      shownFields.has(name) && value !== undefined ? [name, String(value)] : [],
    );
    const head = (bodyKind: string): string => JSON.stringify({ status: 200, headers, bodyKind });
    if (Number(response.headers["content-length"] ?? Number.NaN) <= wholeBytes)
      return { text: head("full"), bytes: await readBody(response, wholeBytes) };
    this.#streams.keepPulled(call.run, key, pulled(response));
    return { text: head("stream") };
  }

  async #put(call: HostCall, input: StoreInput, key: string): Promise<HostAnswer> {
    const headers = { "content-type": input.contentType ?? "application/octet-stream" };
    let body: Parameters<typeof callApi>[1]["body"] = input.text ?? call.bytes;
    if (input.bodyKind === "stream") {
      const pushed = new PushedBody(this.assignment.limits.store_object_bytes);
      this.#streams.keepPushed(call.run, key, pushed);
      body = pushed.stream;
    } else if (Buffer.byteLength(body) > this.assignment.limits.store_object_bytes)
      throw new HostRefusal(
        "TypeError",
        `A stored object is at most ${this.assignment.limits.store_object_bytes} bytes.`,
        "PAYLOAD_TOO_LARGE",
      );
    await expectSuccess(await this.#send(call, "PUT", objectPath(input.key), { headers, body }));
    return {};
  }

  async #delete(call: HostCall, input: StoreInput): Promise<HostAnswer> {
    const response = await this.#send(call, "DELETE", objectPath(input.key));
    if (response.statusCode === 404) response.resume();
    else await expectSuccess(response);
    return {};
  }

  async #list(call: HostCall, input: StoreInput): Promise<HostAnswer> {
    const response = await this.#send(
      call,
      "GET",
      input.prefix === undefined ? "files" : `files?prefix=${encodeURIComponent(input.prefix)}`,
    );
    if (response.statusCode !== 200) throw await refusal(response);
    const { files } = JSON.parse((await readBody(response, maxListBytes)).toString("utf8")) as { files: unknown[] };
    return { text: JSON.stringify({ objects: files, next: null }) };
  }

  forget(run: RunAccount): void {
    this.#streams.forget(run);
  }
}

const objectPath = (key: string): string => `files/object?key=${encodeURIComponent(key)}`;

async function expectSuccess(response: IncomingMessage): Promise<void> {
  if ((response.statusCode ?? 0) >= 300) throw await refusal(response);
  response.resume();
}

/** The api's refusal as the program sees it: its code and its words. */
async function refusal(response: IncomingMessage): Promise<HostRefusal> {
  const body = (await readBody(response, 64 * 1024)).toString("utf8");
  try {
    const { error } = JSON.parse(body) as { error?: { code?: string; message?: string } };
    if (typeof error?.message === "string") return new HostRefusal("StoreError", error.message, error.code);
  } catch {
    // Not one of the api's envelopes: a proxy in between, or a crash.
  }
  return new HostRefusal("StoreError", `The store answered ${response.statusCode}.`);
}

function pulled(response: IncomingMessage): PulledBody {
  const pieces = response.iterator({ destroyOnReturn: true });
  return {
    async pull() {
      const { done, value } = (await pieces.next()) as IteratorResult<Buffer>;
      return done ? null : value;
    },
    cancel: () => void response.destroy(),
  };
}
