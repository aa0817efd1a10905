import ivm from "isolated-vm";
import type { GuestCallbacks } from "../seam/guest-callbacks.ts";
import type { ProgramParts } from "../seam/program-bytes.ts";
import type { CodeCacheState } from "../seam/records.ts";
import { bundleName } from "./stack-map.ts";

const entryNames = ["run", "settle", "timer", "abort", "forget", "secrets", "rejection"] as const;
type EntryName = (typeof entryNames)[number];
/** What crosses into the isolate: texts, numbers and moved bytes. */
export type EntryArgument = string | number | boolean | undefined | ivm.Copy<ArrayBuffer>;
export type Entry = ivm.Reference<(...args: EntryArgument[]) => unknown>;
export type Entries = Record<EntryName, Entry>;

const setupTimeoutMs = 5_000;

/** One isolate with the guest kit compiled once; contexts are made from it, one for each version of the program that is alive. */
export class Sandbox {
  readonly isolate: ivm.Isolate;
  readonly #kit: ivm.Script;

  constructor(kitSource: string, memoryMb: number, onCatastrophe: (message: string) => void) {
    this.isolate = new ivm.Isolate({ memoryLimit: memoryMb, onCatastrophicError: onCatastrophe });
    this.#kit = this.isolate.compileScriptSync(kitSource, { filename: "kapstone:guest" });
  }

  /** A context with the web API in it and no program yet. No handle of isolated-vm stays reachable from inside it. */
  createContext(callbacks: (contextId: number) => GuestCallbacks): GuestContext {
    return new GuestContext(this.isolate, this.#kit, callbacks);
  }
}

let contexts = 0;

/** A context of the isolate: boots with the web API, takes one bundle, serves runs, is released when its last run has ended. */
export class GuestContext {
  readonly id = ++contexts;
  readonly entries: Entries;
  readonly #isolate: ivm.Isolate;
  readonly #context: ivm.Context;

  constructor(isolate: ivm.Isolate, kit: ivm.Script, callbacks: (contextId: number) => GuestCallbacks) {
    this.#isolate = isolate;
    this.#context = isolate.createContextSync();
    const table: Record<string, ivm.Callback> = {};
    for (const [name, callback] of Object.entries(callbacks(this.id)) as [string, (...args: unknown[]) => unknown][])
      table[name] = new ivm.Callback(callback, { sync: true });
    this.#context.global.setSync("__host", table, { copy: true });
    kit.runSync(this.#context, { timeout: setupTimeoutMs });
    this.#context.evalSync("__boot()", { timeout: setupTimeoutMs, filename: "kapstone:guest" });
    const guest = this.#context.global.getSync("__guest", { reference: true }) as ivm.Reference<Record<string, unknown>>;
    this.entries = Object.fromEntries(entryNames.map((name) => [name, guest.getSync(name, { reference: true })])) as unknown as Entries;
    guest.release();
    this.#context.global.deleteSync("__guest");
  }

  /**
   * Runs the bundle: a classic script whose value is a promise of the table of modules. No module of the program is evaluated yet. A code cache
   * that V8 refuses (made by another version of it, or under other flags) costs nothing but itself: the bundle is compiled.
   * @throws the bundle's own error, which every run of the version then fails with
   */
  install({ bundle, cache }: ProgramParts, timeoutMs: number): CodeCacheState {
    const cachedData = cache && new ivm.ExternalCopy(cache, { transferOut: true });
    const script = this.#isolate.compileScriptSync(bundle, { filename: bundleName, ...(cachedData ? { cachedData } : {}) });
    cachedData?.release();
    const table = script.runSync(this.#context, { timeout: timeoutMs, release: true, reference: true });
    const install = this.#context.global.getSync("__install", { reference: true }) as Entry;
    install.applySync(undefined, [table.derefInto({ release: true })], { timeout: timeoutMs });
    install.release();
    if (!cache) return "none";
    return (script as { cachedDataRejected?: boolean }).cachedDataRejected ? "refused" : "used";
  }

  release(): void {
    for (const entry of Object.values(this.entries)) entry.release();
    this.#context.release();
  }
}
