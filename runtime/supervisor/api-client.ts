import type { IncomingMessage } from "node:http";
import type { Readable } from "node:stream";
import * as http from "#platform/node-http.ts";

/** Where the api's internal listener is, and who this runtime is to it. */
export interface ApiAddress {
  url: string;
  token: string;
}

export interface ApiCall {
  method: string;
  path: string;
  headers?: Record<string, string>;
  body?: string | Uint8Array | Readable;
  signal: AbortSignal;
}

const pooled = { keepAlive: true, maxSockets: 32 };
const plain = { request: http.request, agent: new http.Agent(pooled) };
let secure: typeof plain | undefined;

/** TLS is loaded by a runtime whose api is reached by it. */
function overTls(): typeof plain {
  const https = process.getBuiltinModule("node:https");
  secure ??= { request: https.request, agent: new https.Agent(pooled) };
  return secure;
}

/** Sends one request to the api and answers with its response, body unread. Rejects with the connection's error or the signal's reason. */
export function callApi(api: ApiAddress, call: ApiCall): Promise<IncomingMessage> {
  const target = new URL(call.path, api.url);
  const { request: send, agent } = target.protocol === "https:" ? overTls() : plain;
  const headers: Record<string, string> = { authorization: `Bearer ${api.token}`, ...call.headers };
  const { body } = call;
  if (typeof body === "string" || body instanceof Uint8Array) headers["content-length"] = String(Buffer.byteLength(body));
  return new Promise((resolve, reject) => {
    const request = send(target, { method: call.method, headers, agent, signal: call.signal }, resolve);
    request.on("error", reject);
    if (body === undefined || typeof body === "string" || body instanceof Uint8Array) return void request.end(body);
    body.on("error", (error) => request.destroy(error));
    body.pipe(request);
  });
}

/** Reads a response's whole body. @throws Error past `maxBytes` */
export async function readBody(response: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of response as AsyncIterable<Buffer>) {
    bytes += piece.length;
    if (bytes > maxBytes) throw new Error(`the api's answer is larger than ${maxBytes} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces, bytes);
}
