/**
 * The builtins the bridge stands on, taken before any user code runs. A program may overwrite `Promise.prototype.then` or `JSON.parse`
 * afterwards; it then breaks itself, never what crosses the bridge. Methods are uncurried: `mapGet(map, key)` for `map.get(key)`.
 */
const { bind, call } = Function.prototype;

// biome-ignore lint/suspicious/noExplicitAny: the one place where a method's `this` becomes an ordinary parameter, for every signature
type Method = (this: any, ...args: any[]) => any;
/** Turns a method into a function of its receiver that no later change of `Function.prototype` can reach. */
const uncurry = bind.bind(call) as unknown as <F extends Method>(
  method: F,
) => (self: ThisParameterType<F>, ...args: Parameters<F>) => ReturnType<F>;

export const jsonParse = JSON.parse as (text: string) => unknown;
export const jsonStringify = JSON.stringify as (value: unknown) => string;
export const { apply: reflectApply, ownKeys, getOwnPropertyDescriptor, getPrototypeOf } = Reflect;
export const { freeze, create: objectCreate, defineProperty } = Object;
export const isArray = Array.isArray;
export const hasOwn = Object.hasOwn;
export const dateNow = Date.now;
export const NativeDate = Date;
export const dateToIso = uncurry(Date.prototype.toISOString);
export const decodeComponent = decodeURIComponent;
export const parseInteger = Number.parseInt;
export const { trunc: mathTrunc, min: mathMin } = Math;
export const fromCharCode = String.fromCharCode;

export const NativePromise = Promise;
export const promiseThen = uncurry(Promise.prototype.then) as <T, A, B>(
  promise: Promise<T>,
  onValue: ((value: T) => A) | undefined,
  onReason?: (reason: unknown) => B,
) => Promise<A | B>;
const nativeResolve = Promise.resolve;
/** `Promise.resolve` of the real Promise. */
export const promiseResolve = <T>(value: T | PromiseLike<T>): Promise<Awaited<T>> =>
  reflectApply(nativeResolve, NativePromise, [value]) as Promise<Awaited<T>>;

export const SafeMap = Map;
export const mapGet = uncurry(Map.prototype.get) as <K, V>(map: Map<K, V>, key: K) => V | undefined;
export const mapSet = uncurry(Map.prototype.set) as <K, V>(map: Map<K, V>, key: K, value: V) => Map<K, V>;
export const mapDelete = uncurry(Map.prototype.delete) as <K, V>(map: Map<K, V>, key: K) => boolean;
export const mapForEach = uncurry(Map.prototype.forEach) as <K, V>(map: Map<K, V>, each: (value: V, key: K) => void) => void;

export const charCodeAt = uncurry(String.prototype.charCodeAt);
export const toLowerCase = uncurry(String.prototype.toLowerCase);
export const toUpperCase = uncurry(String.prototype.toUpperCase);
export const stringSlice = uncurry(String.prototype.slice);
export const stringIndexOf = uncurry(String.prototype.indexOf);
export const isWellFormed = uncurry(String.prototype.isWellFormed);
export const stringTrim = uncurry(String.prototype.trim);
export const arraySort = uncurry(Array.prototype.sort) as <T>(array: T[], compare?: (a: T, b: T) => number) => T[];
export const toWellFormed = uncurry(String.prototype.toWellFormed);
export const regExpExec = uncurry(RegExp.prototype.exec);

const typedArray = getPrototypeOf(Uint8Array.prototype) as object;
const getter = (target: object, name: PropertyKey) => uncurry(getOwnPropertyDescriptor(target, name)?.get as Method);
export const U8 = Uint8Array;
export const bytesSet = uncurry(Uint8Array.prototype.set);
export const bytesFromBase64 = Uint8Array.fromBase64;
export const bytesToBase64 = uncurry(Uint8Array.prototype.toBase64);
export const viewTag = getter(typedArray, Symbol.toStringTag) as (value: unknown) => string | undefined;
export const viewBuffer = getter(typedArray, "buffer") as (value: unknown) => ArrayBuffer;
export const viewOffset = getter(typedArray, "byteOffset") as (value: unknown) => number;
export const viewByteLength = getter(typedArray, "byteLength") as (value: unknown) => number;
export const dataViewBuffer = getter(DataView.prototype, "buffer") as (value: unknown) => ArrayBuffer;
export const dataViewOffset = getter(DataView.prototype, "byteOffset") as (value: unknown) => number;
export const dataViewByteLength = getter(DataView.prototype, "byteLength") as (value: unknown) => number;
export const bufferByteLength = getter(ArrayBuffer.prototype, "byteLength") as (value: unknown) => number;
/** A view of the bytes from `start` up to `end`, which must lie within them: `subarray` would ask the species of the class. */
export const bytesSubarray = (bytes: Uint8Array<ArrayBuffer>, start: number, end = viewByteLength(bytes)): Uint8Array<ArrayBuffer> =>
  new U8(viewBuffer(bytes), viewOffset(bytes) + start, end - start);
export const bufferSlice = uncurry(ArrayBuffer.prototype.slice) as (buffer: ArrayBuffer, start?: number, end?: number) => ArrayBuffer;
export const isView = ArrayBuffer.isView;

/** A property descriptor that takes nothing from `Object.prototype`. */
export const plainProperty = (value: unknown, enumerable: boolean): PropertyDescriptor =>
  ({ __proto__: null, value, enumerable, configurable: true, writable: true }) as PropertyDescriptor;

/** True for a real ArrayBuffer, whatever its prototype says. */
export function isArrayBuffer(value: unknown): value is ArrayBuffer {
  if (typeof value !== "object" || value === null) return false;
  try {
    bufferByteLength(value);
    return true;
  } catch {
    return false;
  }
}
