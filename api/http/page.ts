import { z } from "zod";
import { isId } from "#platform/ids.ts";
import { invalid, type Refusal } from "./refusal.ts";

const wholeNumber = z.string().regex(/^\d+$/, "must be a whole number").transform(Number);

/** `limit` of a list: 50 unless told, 1 to 200 (decided §2); a document's own numbers win. Bad values are refused, not clamped. */
export function limitQuery(fallback = 50, max = 200) {
  return wholeNumber
    .pipe(z.number().int().min(1).max(max))
    .default(fallback)
    .meta({ description: `1 to ${max}, default ${fallback}` });
}

/** `cursor` of a list: what `next_cursor` said. */
export const cursorQuery = z.string().max(1_000).optional();

/** Packs the place after a row into an opaque cursor. */
export function encodeCursor(parts: readonly (string | number)[]): string {
  return Buffer.from(JSON.stringify(parts)).toString("base64url");
}

/** Unpacks a cursor of `count` parts; refuses one this list did not make. */
export function decodeCursor(cursor: string, count: number, path = "cursor"): (string | number)[] {
  try {
    const parts: unknown = JSON.parse(Buffer.from(cursor, "base64url").toString("utf8"));
    if (Array.isArray(parts) && parts.length === count && parts.every((part) => typeof part === "string" || typeof part === "number"))
      return parts;
  } catch {
    // refused below
  }
  throw foreignCursor(path);
}

/** The id a cursor of one part stands for; refuses any other cursor, or what only looks like one. */
export function idOfCursor(cursor: string): string {
  const [id] = decodeCursor(cursor, 1);
  if (typeof id !== "string" || !isId(id)) throw foreignCursor("cursor");
  return id;
}

/** The whole number a cursor of one part stands for, within PostgreSQL's int4; refuses any other. */
export function numberOfCursor(cursor: string): number {
  const [number] = decodeCursor(cursor, 1);
  if (typeof number !== "number" || (number | 0) !== number) throw foreignCursor("cursor");
  return number;
}

function foreignCursor(path: string): Refusal {
  return invalid({ path, message: "is not a cursor of this list: use the next_cursor of its last page" });
}

/** Splits `limit + 1` rows into a page and the cursor of the next one. */
export function pageOf<T>(
  rows: T[],
  limit: number,
  cursorOf: (row: T) => string,
): { items: T[]; next_cursor: string | null; has_more: boolean } {
  const items = rows.slice(0, limit);
  const last = items.at(-1);
  const hasMore = rows.length > limit;
  return { items, next_cursor: hasMore && last !== undefined ? cursorOf(last) : null, has_more: hasMore };
}
