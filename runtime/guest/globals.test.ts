import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { conformance } from "./testing-cases.ts";
import { TestHost } from "./testing-host.ts";

/** The interfaces and members of the minimum common web API (ECMA-429). */
const interfaces =
  `AbortController AbortSignal Blob ByteLengthQueuingStrategy CompressionStream CountQueuingStrategy Crypto CryptoKey CustomEvent
  DecompressionStream DOMException ErrorEvent Event EventTarget File FormData Headers MessageChannel MessageEvent MessagePort Performance
  PromiseRejectionEvent ReadableByteStreamController ReadableStream ReadableStreamBYOBReader ReadableStreamBYOBRequest ReadableStreamDefaultController
  ReadableStreamDefaultReader Request Response SubtleCrypto TextDecoder TextDecoderStream TextEncoder TextEncoderStream TransformStream
  TransformStreamDefaultController URL URLPattern URLSearchParams WritableStream WritableStreamDefaultController WritableStreamDefaultWriter`.split(
    /\s+/,
  );
const members: Record<string, string> = {
  atob: "function",
  btoa: "function",
  clearInterval: "function",
  clearTimeout: "function",
  console: "object",
  crypto: "object",
  fetch: "function",
  navigator: "object",
  performance: "object",
  queueMicrotask: "function",
  reportError: "function",
  self: "object",
  globalThis: "object",
  setInterval: "function",
  setTimeout: "function",
  structuredClone: "function",
  addEventListener: "function",
  removeEventListener: "function",
  dispatchEvent: "function",
  onerror: "object",
  onunhandledrejection: "object",
  onrejectionhandled: "object",
  WebAssembly: "object",
};
const absent =
  `SharedArrayBuffer process require module exports Buffer global __filename Deno Bun window document XMLHttpRequest WebSocket Worker importScripts
  setImmediate __host __guest __boot __install ivm`.split(/\s+/);

describe("the global scope", () => {
  let host: TestHost;
  beforeAll(async () => {
    host = await TestHost.program(`() => new Response()`);
  });
  afterAll(() => host.close());

  for (const name of interfaces) {
    test(`${name} is an interface of its own name`, () => {
      expect(
        host.evaluate(
          `const d = Object.getOwnPropertyDescriptor(globalThis, "${name}"); return [typeof ${name}, ${name}.name, d.enumerable, d.writable, d.configurable];`,
        ),
      ).toBe(`function,${name},false,true,true`);
    });
  }
  for (const [name, kind] of Object.entries(members)) {
    test(`${name} is there`, () => expect(host.evaluate(`return typeof ${name};`)).toBe(kind));
  }
  for (const name of absent) {
    test(`${name} is not there`, () => expect(host.evaluate(`return "${name}" in globalThis;`)).toBe("false"));
  }
  test("methods and accessors of the Web's classes can be called on nothing else", () => {
    expect(
      host.evaluate(`
      const bad = [];
      for (const C of [Headers, Request, Response, URL, URLSearchParams, FormData, Blob, File, Event, AbortSignal, TextDecoder, CryptoKey]) {
        for (const [name, own] of Object.entries(Object.getOwnPropertyDescriptors(C.prototype))) {
          if (name === "constructor" || own.get === undefined || name === "isTrusted" || name === "encoding") continue;
          try { own.get.call({}); if (!["type", "destination", "duplex", "isReloadNavigation", "isHistoryNavigation", "webkitRelativePath"].includes(name)) bad.push(C.name + "." + name); } catch (e) { if (!(e instanceof TypeError)) bad.push(name); }
        }
      }
      return bad.join();`),
    ).toBe("");
  });
});

describe("WebAssembly", () => {
  const module =
    "new Uint8Array([0,97,115,109,1,0,0,0,1,7,1,96,2,127,127,1,127,3,2,1,0,7,7,1,3,97,100,100,0,0,10,9,1,7,0,32,0,32,1,106,11])";
  conformance({
    "compile and instantiate": `const m = await WebAssembly.compile(${module}); const i = await WebAssembly.instantiate(m); return [m instanceof WebAssembly.Module, i.exports.add(2, 3)];`,
    "instantiate of bytes": `const { module, instance } = await WebAssembly.instantiate(${module}, {}); return [module instanceof WebAssembly.Module, instance.exports.add(40, 2)];`,
    "validate and the constructors": `return [WebAssembly.validate(${module}), WebAssembly.validate(new Uint8Array(4)), new WebAssembly.Instance(new WebAssembly.Module(${module})).exports.add(1, 1)];`,
    "bad bytes are a CompileError": `return [await caught(() => WebAssembly.compile(new Uint8Array(8))), await caught(() => WebAssembly.instantiate(new Uint8Array(8)))];`,
    streaming: `const answer = (type) => new Response(${module}, { headers: { "content-type": type } }); const { instance } = await WebAssembly.instantiateStreaming(answer("application/wasm")); return [instance.exports.add(1, 2), await caught(() => WebAssembly.compileStreaming(answer("text/plain")))];`,
  });
});
