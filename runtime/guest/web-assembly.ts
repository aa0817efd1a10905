/** WebAssembly's asynchronous functions over its synchronous constructors: in this isolate V8's own never settle. */
import { isResponse, type Response } from "./response.ts";

type Bytes = ArrayBuffer | ArrayBufferView;
type Imports = Record<string, Record<string, unknown>>;
interface Api {
  Module: new (bytes: Bytes) => object;
  Instance: new (module: object, imports?: Imports) => object;
  compile(bytes: Bytes): Promise<object>;
  instantiate(source: Bytes | object, imports?: Imports): Promise<unknown>;
  compileStreaming(source: unknown): Promise<object>;
  instantiateStreaming(source: unknown, imports?: Imports): Promise<unknown>;
}

export function wrapWebAssembly(): void {
  const api = (globalThis as unknown as { WebAssembly: Api }).WebAssembly;
  const { Module, Instance } = api;
  const bytesOf = async (source: unknown): Promise<ArrayBuffer> => {
    const response = (await source) as Response;
    if (!isResponse(response)) throw new TypeError("A Response is expected.");
    if (!response.ok) throw new TypeError(`The answer's status is ${response.status}.`);
    if (response.headers.get("content-type")?.split(";")[0]?.trim().toLowerCase() !== "application/wasm")
      throw new TypeError("The answer is not application/wasm.");
    return response.arrayBuffer();
  };
  const functions: Pick<Api, "compile" | "instantiate" | "compileStreaming" | "instantiateStreaming"> = {
    async compile(bytes) {
      return new Module(bytes);
    },
    async instantiate(source, imports) {
      if (source instanceof Module) return new Instance(source, imports);
      const module = new Module(source as Bytes);
      return { module, instance: new Instance(module, imports) };
    },
    async compileStreaming(source) {
      return new Module(await bytesOf(source));
    },
    async instantiateStreaming(source, imports) {
      const module = new Module(await bytesOf(source));
      return { module, instance: new Instance(module, imports) };
    },
  };
  for (const [name, value] of Object.entries(functions))
    Object.defineProperty(api, name, { value, writable: true, enumerable: true, configurable: true });
}
