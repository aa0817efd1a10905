/** performance (High Resolution Time, the basics of User Timing) on a clock of whole milliseconds. */
import { DOMException } from "./dom-exception.ts";
import { EventTarget, timeOrigin } from "./events.ts";
import { dateNow } from "./primordials.ts";
import { structuredClone } from "./structured-clone.ts";

interface Entry {
  name: string;
  entryType: "mark" | "measure";
  startTime: number;
  duration: number;
  detail: unknown;
}

/** Entries kept; the oldest go first. */
const maxEntries = 1000;
let entries: Entry[] = [];
let latest = 0;

function add(entry: Entry): Entry {
  if (entries.length >= maxEntries) entries.shift();
  entries.push(Object.freeze(entry));
  return entry;
}

export class Performance extends EventTarget {
  /** Milliseconds since timeOrigin; never goes back. */
  now(): number {
    latest = Math.max(latest, dateNow() - timeOrigin);
    return latest;
  }
  get timeOrigin(): number {
    return timeOrigin;
  }
  mark(name: string, options: { startTime?: number; detail?: unknown } = {}): Entry {
    const startTime = options?.startTime === undefined ? this.now() : Number(options.startTime);
    if (!(startTime >= 0)) throw new TypeError("startTime must not be negative.");
    return add({ name: `${name}`, entryType: "mark", startTime, duration: 0, detail: structuredClone(options?.detail ?? null) });
  }
  measure(
    name: string,
    from?: string | { start?: string | number; end?: string | number; duration?: number; detail?: unknown },
    to?: string,
  ): Entry {
    const options = typeof from === "object" && from !== null ? from : { start: from, end: to };
    const end =
      options.end === undefined
        ? "duration" in options && options.start !== undefined
          ? at(options.start) + Number(options.duration)
          : this.now()
        : at(options.end);
    const start = options.start === undefined ? ("duration" in options ? end - Number(options.duration) : 0) : at(options.start);
    const detail = structuredClone(("detail" in options ? options.detail : null) ?? null);
    return add({ name: `${name}`, entryType: "measure", startTime: start, duration: end - start, detail });
  }
  clearMarks(name?: string): void {
    entries = entries.filter((entry) => entry.entryType !== "mark" || (name !== undefined && entry.name !== name));
  }
  clearMeasures(name?: string): void {
    entries = entries.filter((entry) => entry.entryType !== "measure" || (name !== undefined && entry.name !== name));
  }
  getEntries(): Entry[] {
    return entries.toSorted((a, b) => a.startTime - b.startTime);
  }
  getEntriesByType(type: string): Entry[] {
    return this.getEntries().filter((entry) => entry.entryType === type);
  }
  getEntriesByName(name: string, type?: string): Entry[] {
    return this.getEntries().filter((entry) => entry.name === name && (type === undefined || entry.entryType === type));
  }
  toJSON(): { timeOrigin: number } {
    return { timeOrigin };
  }
  override get [Symbol.toStringTag](): string {
    return "Performance";
  }
}
export const performance = new Performance();

/** The time a mark's name or a number stands for. */
function at(mark: string | number): number {
  if (typeof mark === "number") return mark;
  const found = entries.findLast((entry) => entry.entryType === "mark" && entry.name === mark);
  if (found === undefined) throw new DOMException(`There is no mark named ${mark}.`, "SyntaxError");
  return found.startTime;
}
