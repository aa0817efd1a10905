/** Puts the minimum common web API (ECMA-429) on globalThis. */
import { AbortController, AbortSignal } from "./abort.ts";
import { atob, btoa } from "./base64.ts";
import { Blob, File } from "./blob.ts";
import { CompressionStream, DecompressionStream } from "./compression.ts";
import { console } from "./console.ts";
import { Crypto, CryptoKey, crypto, SubtleCrypto } from "./crypto.ts";
import { DOMException } from "./dom-exception.ts";
import { CustomEvent, dispatch, ErrorEvent, Event, EventTarget, MessageEvent, PromiseRejectionEvent } from "./events.ts";
import { fetch } from "./fetch.ts";
import { FormData } from "./form-data.ts";
import { globalTarget, scopeMembers } from "./global-scope.ts";
import { Headers } from "./headers.ts";
import { addPlatformClass } from "./inspect.ts";
import { MessageChannel, MessagePort } from "./message-channel.ts";
import { Navigator, navigator } from "./navigator.ts";
import { Performance, performance } from "./performance.ts";
import { NativePromise, promiseResolve, promiseThen, stringIndexOf, stringSlice } from "./primordials.ts";
import { guarded, reportError } from "./report-error.ts";
import { Request } from "./request.ts";
import { Response } from "./response.ts";
import { findRun } from "./run.ts";
import * as streams from "./streams.ts";
import { structuredClone } from "./structured-clone.ts";
import { TextDecoder, TextDecoderStream, TextEncoder, TextEncoderStream } from "./text-codecs.ts";
import { clearInterval, clearTimeout, setInterval, setTimeout } from "./timers.ts";
import { URL } from "./url.ts";
import { URLPattern } from "./url-pattern.ts";
import { URLSearchParams } from "./url-search-params.ts";

const { isDisturbed: _, isReadableStream: __, ...streamClasses } = streams;

const classes = {
  AbortController,
  AbortSignal,
  Blob,
  CompressionStream,
  Crypto,
  CryptoKey,
  CustomEvent,
  DecompressionStream,
  DOMException,
  ErrorEvent,
  Event,
  EventTarget,
  File,
  FormData,
  Headers,
  MessageChannel,
  MessageEvent,
  MessagePort,
  Navigator,
  Performance,
  PromiseRejectionEvent,
  Request,
  Response,
  SubtleCrypto,
  TextDecoder,
  TextDecoderStream,
  TextEncoder,
  TextEncoderStream,
  URL,
  URLPattern,
  URLSearchParams,
  ...streamClasses,
};

/** queueMicrotask (HTML §8.7): an error in it is reported, not turned into a rejection. */
function queueMicrotask(callback: unknown): void {
  if (typeof callback !== "function") throw new TypeError("queueMicrotask needs a function.");
  promiseThen(promiseResolve(undefined), () => guarded(callback as () => void));
}

const functions = { atob, btoa, clearInterval, clearTimeout, fetch, queueMicrotask, reportError, setInterval, setTimeout, structuredClone };

export function installGlobals(): void {
  for (const [name, value] of Object.entries(classes)) {
    define(name, value, false);
    // Bundling may have renamed the class; minified or not, a program sees the standard's names.
    Object.defineProperty(value, "name", { value: name, configurable: true });
    addPlatformClass(value.prototype, name);
  }
  for (const [name, value] of Object.entries(functions)) {
    define(name, value, true);
    Object.defineProperty(value, "name", { value: name, configurable: true });
  }
  define("console", console, false);
  define("crypto", crypto, true);
  define("navigator", navigator, true);
  define("performance", performance, true);
  define("self", globalThis, true);
  Object.defineProperties(globalThis, scopeMembers());
}

function define(name: string, value: unknown, enumerable: boolean): void {
  Object.defineProperty(globalThis, name, { value, writable: true, enumerable, configurable: true });
}

/** A promise was rejected and nobody had a handler: only its reason's text came back from the host. */
export function rejectionOutOfReach(runKey: number, detail: string): void {
  const lineEnd = stringIndexOf(detail, "\n");
  const reason = new Error(lineEnd < 0 ? detail : stringSlice(detail, 0, lineEnd));
  const promise = new NativePromise((_resolve, reject) => reject(reason));
  promiseThen(promise, undefined, () => {});
  const event = new PromiseRejectionEvent("unhandledrejection", { promise, reason, cancelable: true });
  if (dispatch(globalTarget, event)) findRun(runKey)?.fail("error", detail);
}
