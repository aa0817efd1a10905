import { z } from "zod";
import { scopes } from "./caller.ts";
import { cursorQuery, limitQuery } from "./page.ts";

// Fields that requests and answers of several services share.

/** A name that people read: 1 to `most` characters of Unicode, no control characters. */
const nameUpTo = (most: number) =>
  z
    .string()
    .trim()
    .min(1, "must not be empty")
    .max(most, `has at most ${most} characters`)
    .refine((text) => !/[\p{Cc}\p{Cs}]/u.test(text), "must not contain control characters or half of a surrogate pair");

export const nameText = nameUpTo(100);
/** What a kap, one of its tokens or a secret group is called. */
export const kapNameText = nameUpTo(200);
export const id = z.string().meta({ format: "uuid" });
export const timestamp = z.string().meta({ format: "date-time" });
/** A point in time of a query, RFC 3339. Read to a Date here: PostgreSQL takes fewer time zones and years than the form allows. */
export const instant = z.iso
  .datetime({ offset: true, message: "must be an RFC 3339 time, such as 2026-11-21T08:00:00Z" })
  .transform((text) => new Date(text));
export const idParams = z.object({ id: z.string() });
export const pageQuery = z.object({ limit: limitQuery(), cursor: cursorQuery });
/** Scopes of a key or token: at least one, none twice. */
export const scopeList = z
  .array(z.enum(scopes))
  .min(1)
  .refine((list) => new Set(list).size === list.length, "must not repeat a scope");

/** A page of a list and the cursor of the next. */
export const listOf = (item: z.ZodType) => z.object({ items: z.array(item), next_cursor: z.string().nullable() });
