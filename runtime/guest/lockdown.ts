/** What V8 offers and a kap must not have: code made from text, shared memory and the clocks built on it (decided §7.1). */

/** Makes eval and every function constructor throw, by whatever path they are reached. */
export function forbidCodeFromText(): void {
  const samples = [() => {}, async () => {}, function* () {}, async function* () {}];
  for (const sample of samples) {
    const prototype = Object.getPrototypeOf(sample) as object;
    const real = (prototype as { constructor: { name: string } }).constructor;
    // Like the original, it can be called and constructed.
    function replacement(): never {
      throw refusal();
    }
    Object.defineProperty(replacement, "name", { value: real.name, configurable: true });
    Object.defineProperty(replacement, "prototype", { value: prototype, writable: false });
    Object.defineProperty(replacement, "length", { value: 1, configurable: true });
    const own = Object.getOwnPropertyDescriptor(prototype, "constructor") as PropertyDescriptor;
    Object.defineProperty(prototype, "constructor", { ...own, value: replacement });
    if (real.name === "Function") Object.defineProperty(globalThis, "Function", { value: replacement, writable: true, configurable: true });
    else Object.setPrototypeOf(replacement, (globalThis as { Function?: object }).Function as object);
  }
  Object.defineProperty(globalThis, "eval", { value: refuseEval, writable: true, configurable: true });
  Object.defineProperty(refuseEval, "name", { value: "eval", configurable: true });
}

const refusal = () => new EvalError("Code generation from strings is disallowed in a kap.");
const refuseEval = (_code: unknown) => {
  throw refusal();
};

/** No shared memory and nothing that waits on it: a counter in another agent would be a fine clock, a wait would hold up the process. */
export function removeSharedMemory(): void {
  const scope = globalThis as unknown as Record<string, unknown>;
  delete scope.SharedArrayBuffer;
  const atomics = Atomics as unknown as Record<string, unknown>;
  delete atomics.wait;
  delete atomics.waitAsync;
  delete atomics.notify;
}

/** Temporal's clock is finer than a millisecond: it is set to the one of Date. */
export function coarsenClocks(): void {
  const { Temporal } = globalThis as unknown as { Temporal?: TemporalApi };
  if (Temporal === undefined) return;
  const { Now, Instant } = Temporal;
  const { now } = Date;
  const timeZoneId = Now.timeZoneId;
  const instant = () => Instant.fromEpochMilliseconds(now());
  const zoned = (zone: unknown = timeZoneId()) => instant().toZonedDateTimeISO(zone);
  const functions = {
    instant,
    zonedDateTimeISO: (zone?: unknown) => zoned(zone),
    plainDateTimeISO: (zone?: unknown) => zoned(zone).toPlainDateTime(),
    plainDateISO: (zone?: unknown) => zoned(zone).toPlainDate(),
    plainTimeISO: (zone?: unknown) => zoned(zone).toPlainTime(),
  };
  for (const [name, value] of Object.entries(functions)) Object.defineProperty(Now, name, { value, writable: true, configurable: true });
}

interface Zoned {
  toPlainDateTime(): unknown;
  toPlainDate(): unknown;
  toPlainTime(): unknown;
}
interface TemporalApi {
  Now: { timeZoneId(): string };
  Instant: { fromEpochMilliseconds(time: number): { toZonedDateTimeISO(zone: unknown): Zoned } };
}
