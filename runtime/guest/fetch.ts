/** fetch (Fetch §5.6): the host connects, guards and follows redirects; here the request is made ready and the answer made a Response. */
import { untilAborted } from "./abort.ts";
import { Body, type Bytes, chunkBytes, completeBody, type HostSource } from "./body.ts";
import { currentRunKey } from "./current-run.ts";
import { callHost } from "./host.ts";
import {
  bytesFromBase64,
  bytesSubarray,
  charCodeAt,
  jsonParse,
  NativePromise,
  parseInteger,
  promiseThen,
  regExpExec,
  stringIndexOf,
  stringSlice,
  stringTrim,
  U8,
} from "./primordials.ts";
import { Request, type RequestInit, requestParts } from "./request.ts";
import { type HostResponse, type Response, responseFromHost } from "./response.ts";
import type { ReadableStream } from "./streams.ts";
import type { URL } from "./url.ts";
import { decodeUtf8, exactBuffer } from "./utf8.ts";

let lastStreamId = 0;
/** A number for a body that flows through the bridge in parts; unique in this isolate. */
export const nextStreamId = (): number => ++lastStreamId;

export interface HostHead extends HostResponse {
  bodyKind: "none" | "full" | "stream";
}

/** The Body behind the head of a host answer. */
export function answeredBody(head: HostHead, bytes: ArrayBuffer | undefined, source: HostSource): Body {
  if (head.bodyKind === "stream") return new Body(source, null);
  return new Body(head.bodyKind === "full" ? new U8(bytes ?? new ArrayBuffer(0)) : null, null);
}

export async function fetch(input: string | URL | Request, init?: RequestInit): Promise<Response> {
  const runKey = currentRunKey();
  const request = new Request(input, init);
  const { method, url, headers, redirect, body, signal } = requestParts(request);
  signal?.throwIfAborted();
  if (stringSlice(url, 0, 5) === "data:") return dataResponse(url);
  const streamId = nextStreamId();
  const complete = completeBody(body);
  const bodyKind = complete !== undefined ? "full" : body.isEmpty ? "none" : "stream";
  const text = typeof complete === "string" ? complete : undefined;
  const call = callHost(
    runKey,
    "fetch",
    { streamId, method, url, headers, redirect, bodyKind, text },
    typeof complete === "string" ? undefined : complete,
  );
  const upload = bodyKind === "stream" ? sendStream(runKey, "fetch", streamId, body) : null;
  const cancel = () => ignore(callHost(runKey, "fetch.cancel", { streamId }));
  const answer = await untilAborted(signal, upload === null ? call : firstFailure(call, upload), cancel);
  const head = jsonParse(answer.text ?? "{}") as HostHead;
  return responseFromHost(
    head,
    answeredBody(head, answer.bytes, { runKey, pull: "fetch.pull", cancel: "fetch.cancel", argument: { streamId }, signal }),
  );
}

function ignore(promise: Promise<unknown>): void {
  promiseThen(
    promise,
    () => {},
    () => {},
  );
}

/** The call's answer, unless the upload fails before it. */
function firstFailure<T>(call: Promise<T>, upload: Promise<void>): Promise<T> {
  return new NativePromise<T>((resolve, reject) => {
    promiseThen(upload, () => {}, reject);
    promiseThen(call, resolve, reject);
  });
}

/** Sends a streamed body to the host, part by part: `<op>.push` is answered when more is wanted, `<op>.finish` ends it. */
export async function sendStream(runKey: number, op: "fetch" | "store", streamId: number, body: Body): Promise<void> {
  const reader = (body.move().asStream() as ReadableStream<Bytes>).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const bytes = chunkBytes(value);
      if (bytes.length > 0) await callHost(runKey, `${op}.push`, { streamId }, exactBuffer(bytes));
    }
  } catch (error) {
    ignore(callHost(runKey, `${op}.cancel`, { streamId }));
    ignore(reader.cancel(error));
    throw error;
  }
  await callHost(runKey, `${op}.finish`, { streamId });
}

/** A `data:` address (Fetch §6): answered here. */
function dataResponse(url: string): Response {
  const comma = stringIndexOf(url, ",");
  if (comma < 0) throw new TypeError("Invalid data: address.");
  let type = stringTrim(stringSlice(url, 5, comma));
  const base64 = regExpExec(/;\s*base64$/i, type);
  const isBase64 = base64 !== null;
  if (isBase64) type = stringSlice(type, 0, base64.index);
  const hash = stringIndexOf(url, "#");
  const content = percentDecoded(stringSlice(url, comma + 1, hash < 0 ? undefined : hash));
  const bytes = isBase64 ? base64Bytes(decodeUtf8(content)) : content;
  const contentType = type === "" ? "text/plain;charset=US-ASCII" : type[0] === ";" ? `text/plain${type}` : type;
  return responseFromHost({ status: 200, statusText: "OK", headers: ["content-type", contentType], url }, new Body(bytes as Bytes, null));
}

function base64Bytes(text: string): Bytes {
  try {
    return bytesFromBase64(text);
  } catch {
    throw new TypeError("Invalid base64 in a data: address.");
  }
}

function percentDecoded(text: string): Bytes {
  const bytes = new U8(text.length);
  let length = 0;
  for (let index = 0; index < text.length; index++) {
    const digits = text[index] === "%" ? regExpExec(/^[0-9a-f]{2}/i, stringSlice(text, index + 1, index + 3)) : null;
    bytes[length++] = digits === null ? charCodeAt(text, index) : parseInteger(digits[0], 16);
    if (digits !== null) index += 2;
  }
  return bytesSubarray(bytes, 0, length);
}
