// biome-ignore-all lint/complexity/noArguments: the standards tell a missing argument from an undefined one
/** structuredClone (HTML §2.7): a deep copy of what the standard lets pass, cycles and shared references kept. */
import { Blob, bytesOfBlob, File } from "./blob.ts";
import { cloneKey, isCryptoKey } from "./crypto.ts";
import { DOMException } from "./dom-exception.ts";
import { isPlatformObject } from "./inspect.ts";
import { viewTag } from "./primordials.ts";

const refused = (what: string) => new DOMException(`${what} could not be cloned.`, "DataCloneError");

/** Objects that can be handed over, and how: the way a MessagePort changes its owner. */
const transferables = new Map<(value: object) => boolean, (value: object) => object>();
export function addTransferable(isKind: (value: object) => boolean, transfer: (value: object) => object): void {
  transferables.set(isKind, transfer);
}

export function structuredClone<T>(value: T, options: { transfer?: Iterable<object> } = {}): T {
  if (arguments.length === 0) throw new TypeError("structuredClone needs a value.");
  return cloneWithTransfer(value, options?.transfer ?? []).value as T;
}

/** The clone, and the transferred objects in their order. */
export function cloneWithTransfer(value: unknown, transfer: Iterable<object>): { value: unknown; transferred: object[] } {
  const listed = [...transfer];
  const takes = new Map<object, () => object>();
  for (const object of listed) {
    if (takes.has(object)) throw refused("The same object listed twice");
    takes.set(object, transferOf(object));
  }
  // A failing clone must leave the transferred objects as they are: it is tried with stand-ins first.
  if (takes.size > 0) clone(value, new Map<object, object>(listed.map((object) => [object, {}])));
  const memory = new Map<object, object>();
  for (const [object, take] of takes) memory.set(object, take());
  return { value: clone(value, memory), transferred: listed.map((object) => memory.get(object) as object) };
}

/** How an object is handed over; throws when it cannot be. */
function transferOf(object: object): () => object {
  if (brand(object) === "ArrayBuffer") {
    const buffer = object as ArrayBuffer;
    if (buffer.detached) throw refused("A detached ArrayBuffer");
    return () => buffer.transfer();
  }
  for (const [isKind, transfer] of transferables) if (isKind(object)) return () => transfer(object);
  throw refused("An object that is not transferable");
}

const errorNames = new Map<unknown, ErrorConstructor>(
  [Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError].map((kind) => [kind.name, kind as ErrorConstructor]),
);

const slots: readonly (readonly [string, (...args: never[]) => unknown])[] = [
  ["Date", Date.prototype.getTime],
  ["Map", Object.getOwnPropertyDescriptor(Map.prototype, "size")?.get as () => unknown],
  ["Set", Object.getOwnPropertyDescriptor(Set.prototype, "size")?.get as () => unknown],
  ["ArrayBuffer", Object.getOwnPropertyDescriptor(ArrayBuffer.prototype, "byteLength")?.get as () => unknown],
  ["DataView", Object.getOwnPropertyDescriptor(DataView.prototype, "byteLength")?.get as () => unknown],
  ["Number", Number.prototype.valueOf],
  ["String", String.prototype.valueOf],
  ["Boolean", Boolean.prototype.valueOf],
  ["BigInt", BigInt.prototype.valueOf],
  ["Symbol", Symbol.prototype.valueOf],
  ["WeakMap", WeakMap.prototype.has as () => unknown],
  ["WeakSet", WeakSet.prototype.has as () => unknown],
  ["WeakRef", WeakRef.prototype.deref],
];
const flagsOf = Object.getOwnPropertyDescriptor(RegExp.prototype, "hasIndices")?.get as () => unknown;

/** The builtin kind of an object by its internal slots. */
function brand(value: object): string {
  if (viewTag(value) !== undefined) return "TypedArray";
  if (Error.isError(value)) return "Error";
  const proto = Object.getPrototypeOf(value) as object | null;
  if (proto === Object.prototype || proto === null) return "Object";
  for (const [name, method] of slots) {
    try {
      Reflect.apply(method as () => unknown, value, [value]);
      return name;
    } catch {}
  }
  if (value !== RegExp.prototype) {
    try {
      Reflect.apply(flagsOf, value, []);
      return "RegExp";
    } catch {}
  }
  return "Object";
}

function clone(value: unknown, memory: Map<object, object>): unknown {
  if (typeof value === "symbol") throw refused("A symbol");
  if (typeof value === "function") throw refused("A function");
  if (typeof value !== "object" || value === null) return value;
  const known = memory.get(value);
  if (known !== undefined) return known;
  return cloneObject(value, memory);
}

function cloneObject(value: object, memory: Map<object, object>): object {
  const keep = <T extends object>(copy: T): T => {
    memory.set(value, copy);
    return copy;
  };
  if (value instanceof File) return keep(new File([value], value.name, { type: value.type, lastModified: value.lastModified }));
  if (value instanceof Blob) return keep(new Blob([bytesOfBlob(value)], { type: value.type }));
  if (isCryptoKey(value)) return keep(cloneKey(value));
  if (value instanceof DOMException) return keep(new DOMException(value.message, value.name));
  if (Array.isArray(value)) {
    const copy = keep(new Array(value.length));
    copyProperties(value, copy, memory);
    return copy;
  }
  const kind = brand(value);
  switch (kind) {
    case "Date":
      return keep(new Date(Date.prototype.getTime.call(value)));
    case "RegExp":
      return keep(new RegExp((value as RegExp).source, (value as RegExp).flags));
    case "Number":
    case "String":
    case "Boolean":
    case "BigInt":
      return keep(Object((value as { valueOf(): unknown }).valueOf()));
    case "ArrayBuffer": {
      const buffer = value as ArrayBuffer;
      if (buffer.detached) throw refused("A detached ArrayBuffer");
      if (!buffer.resizable) return keep(buffer.slice(0));
      const copy = new ArrayBuffer(buffer.byteLength, { maxByteLength: buffer.maxByteLength });
      new Uint8Array(copy).set(new Uint8Array(buffer));
      return keep(copy);
    }
    case "TypedArray":
    case "DataView": {
      const view = value as Uint8Array;
      const buffer = clone(view.buffer, memory) as ArrayBuffer;
      // The stand-ins of the first pass over a transfer have no bytes.
      if (!(buffer instanceof ArrayBuffer)) return keep({});
      const name = kind === "DataView" ? "DataView" : (viewTag(value) as string);
      const Kind = (globalThis as unknown as Record<string, new (buffer: ArrayBuffer, offset: number, length: number) => object>)[
        name
      ] as new (
        buffer: ArrayBuffer,
        offset: number,
        length: number,
      ) => object;
      return keep(new Kind(buffer, view.byteOffset, kind === "DataView" ? view.byteLength : view.length));
    }
    case "Map": {
      const copy = keep(new Map());
      for (const [key, item] of [...Map.prototype.entries.call(value)]) copy.set(clone(key, memory), clone(item, memory));
      return copy;
    }
    case "Set": {
      const copy = keep(new Set());
      for (const item of [...Set.prototype.values.call(value)]) copy.add(clone(item, memory));
      return copy;
    }
    case "Error":
      return cloneError(value as Error, keep, memory);
    case "Symbol":
    case "WeakMap":
    case "WeakSet":
    case "WeakRef":
      throw refused(`A ${kind}`);
    default:
  }
  if (value instanceof Promise || isPlatformObject(value)) throw refused("An object of this kind");
  const copy = keep({});
  copyProperties(value, copy, memory);
  return copy;
}

function copyProperties(from: object, to: object, memory: Map<object, object>): void {
  for (const key of Object.keys(from)) {
    Object.defineProperty(to, key, {
      value: clone((from as Record<string, unknown>)[key], memory),
      writable: true,
      enumerable: true,
      configurable: true,
    });
  }
}

function cloneError(error: Error, keep: <T extends object>(copy: T) => T, memory: Map<object, object>): Error {
  const Kind = errorNames.get(error.name) ?? Error;
  const message = Object.getOwnPropertyDescriptor(error, "message");
  // A real error, so that it keeps its brand; its own stack and message take the place of the new ones.
  const real = keep(new Kind()) as Error;
  delete (real as { message?: string }).message;
  if (message !== undefined && "value" in message)
    Object.defineProperty(real, "message", { value: `${message.value}`, writable: true, configurable: true });
  Object.defineProperty(real, "stack", { value: `${error.stack}`, writable: true, configurable: true });
  if (Object.hasOwn(error, "cause"))
    Object.defineProperty(real, "cause", { value: clone(error.cause, memory), writable: true, configurable: true });
  return real;
}
