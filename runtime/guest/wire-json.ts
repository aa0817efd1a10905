/**
 * JSON of the kit's own plain data for the host. Made by hand: `JSON.stringify` asks every object for a `toJSON`, which a program may have put on
 * a prototype. Only strings go through it, and those have no methods asked.
 */
import { isArray, jsonStringify, ownKeys } from "./primordials.ts";

/** A piece that is JSON already. */
export class RawJson {
  readonly #text: string;
  constructor(text: string) {
    this.#text = text;
  }
  static textOf(value: object): string | null {
    return #text in value ? value.#text : null;
  }
}
const { textOf } = RawJson;

/** The JSON of strings, finite numbers, booleans, null, arrays, objects and `RawJson`; members that are undefined are left out. */
export function wireJson(value: unknown): string {
  if (typeof value === "string") return jsonStringify(value);
  if (typeof value === "number" || typeof value === "boolean") return `${value}`;
  if (typeof value !== "object" || value === null) return "null";
  const raw = textOf(value);
  if (raw !== null) return raw;
  let json = "";
  if (isArray(value)) {
    for (let index = 0; index < value.length; index++) json += `${index === 0 ? "" : ","}${wireJson(value[index])}`;
    return `[${json}]`;
  }
  const keys = ownKeys(value);
  for (let index = 0; index < keys.length; index++) {
    const key = keys[index] as string;
    const member = (value as Record<string, unknown>)[key];
    if (member !== undefined) json += `${json === "" ? "" : ","}${jsonStringify(key)}:${wireJson(member)}`;
  }
  return `{${json}}`;
}
