/**
 * Values between JSON and PostgreSQL by the contract's SQL rules (spec 3 "SQL rules", decided §7.3): parameters are matched to the type the
 * prepared statement expects; results come back as JSON, as text where JSON's numbers would lose something.
 */
import { SqlRefusal } from "./sql-guard.ts";

const oid = { bool: 16, bytea: 17, int8: 20, int2: 21, int4: 23, oid: 26, json: 114, float4: 700, float8: 701, jsonb: 3802 } as const;

const integerRange: Record<number, number> = { [oid.int2]: 32_767, [oid.int4]: 2_147_483_647 };

/** A parameter as JSON brings it. `{"$bytes": base64}` is binary data, from a program's Uint8Array. */
export type SqlParameter = unknown;

/**
 * The text PostgreSQL gets for a parameter of the expected type.
 * @throws SqlRefusal INVALID_SQL naming the parameter and what would do
 */
export function parameterText(value: SqlParameter, type: number, position: number): string | Buffer | null {
  if (value === null || value === undefined) return null;
  const refuse = (what: string): SqlRefusal => new SqlRefusal("INVALID_SQL", `Parameter $${position} ${what}.`);
  if (typeof value === "object" && "$bytes" in value && typeof value.$bytes === "string") {
    if (type !== oid.bytea) throw refuse("is binary data, but the statement does not expect bytea there: cast it, for example $1::bytea");
    return Buffer.from(value.$bytes, "base64");
  }
  if (type === oid.json || type === oid.jsonb) return JSON.stringify(value);
  switch (typeof value) {
    case "boolean":
      if (type in integerRange || type === oid.int8) throw refuse("is a boolean, but the statement expects an integer");
      return value ? "true" : "false";
    case "number":
      if (!Number.isFinite(value)) throw refuse("is not a finite number");
      if (type in integerRange || type === oid.int8) {
        if (!Number.isInteger(value)) throw refuse(`is ${value}, but the statement expects an integer`);
        const most = integerRange[type];
        if (most === undefined ? !Number.isSafeInteger(value) : value > most || value < -most - 1)
          throw refuse(`is ${value}, which does not fit the expected integer type: send large int8 values as text`);
      }
      return Object.is(value, -0) ? "-0" : String(value);
    case "string":
      if (value.includes("\0")) throw refuse("holds a NUL character, which PostgreSQL text cannot");
      return value;
    case "object":
      if (Array.isArray(value)) return arrayText(value, refuse);
      return JSON.stringify(value);
    default:
      throw refuse("has no JSON form");
  }
}

function arrayText(items: unknown[], refuse: (what: string) => SqlRefusal): string {
  const parts = items.map((item): string => {
    if (item === null || item === undefined) return "NULL";
    if (Array.isArray(item)) return arrayText(item, refuse);
    const text = typeof item === "object" ? JSON.stringify(item) : String(item);
    if (text.includes("\0")) throw refuse("holds a NUL character, which PostgreSQL text cannot");
    return `"${text.replace(/["\\]/g, "\\$&")}"`;
  });
  return `{${parts.join(",")}}`;
}

/** Turns PostgreSQL's text of one column into its JSON value. */
export type ValueReader = (text: string) => unknown;

const asText: ValueReader = (text) => text;
const asFloat: ValueReader = (text) => {
  const value = Number(text);
  return Number.isFinite(value) ? value : text;
};

const readers: Record<number, ValueReader> = {
  [oid.bool]: (text) => text === "t",
  [oid.int2]: Number,
  [oid.int4]: Number,
  [oid.oid]: Number,
  [oid.int8]: (text) => {
    const value = Number(text);
    return Number.isSafeInteger(value) ? value : text;
  },
  [oid.float4]: asFloat,
  [oid.float8]: asFloat,
  [oid.json]: (text) => JSON.parse(text) as unknown,
  [oid.jsonb]: (text) => JSON.parse(text) as unknown,
  [oid.bytea]: (text) => Buffer.from(text.slice(2), "hex").toString("base64url"),
};

/** The reader for a column's type; types JSON has no safe form for (numeric, timestamptz, intervals, arrays, …) stay text. */
export const valueReader = (type: number): ValueReader => readers[type] ?? asText;
