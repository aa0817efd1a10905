import { z } from "zod";
import { kapNameText } from "../../http/fields.ts";

const group = z.object({ id: z.uuid(), name: z.string() });
const actor = z.object({ kind: z.string(), id: z.string(), name: z.string() });
const maxValueBytes = 65_536;

/** What the routes answer; values never appear. */
export const answers = {
  secrets: z.object({
    secrets: z.array(z.object({ name: z.string(), group_id: z.uuid().nullable(), group_name: z.string().nullable() })),
    refresh_pending: z.boolean(),
  }),
  set: z.object({ name: z.string(), set: z.literal(true), refresh_pending: z.boolean() }),
  deleted: z.object({ name: z.string(), deleted: z.literal(true), refresh_pending: z.boolean() }),
  attached: z.object({ attached: z.literal(true), refresh_pending: z.boolean() }),
  detached: z.object({ detached: z.literal(true), refresh_pending: z.boolean() }),
  group: z.object({ group }),
  groups: z.object({ groups: z.array(group) }),
  groupDeleted: z.object({ group, deleted: z.literal(true) }),
  groupSecrets: z.object({ secrets: z.array(z.object({ name: z.string(), group_id: z.uuid(), group_name: z.string() })) }),
  history: z.object({
    events: z.array(
      z.object({
        id: z.uuid(),
        kind: z.string(),
        at: z.iso.datetime(),
        actor,
        client: z.string().nullable(),
        detail: z.record(z.string(), z.unknown()),
      }),
    ),
    next_cursor: z.string().nullable(),
  }),
} as const;

/** What the routes take. */
export const bodies = {
  value: z.strictObject({
    value: z
      .string()
      .min(1, "must not be empty: delete the secret instead")
      .refine((value) => Buffer.byteLength(value) <= maxValueBytes, `has at most ${maxValueBytes} bytes`)
      .refine((value) => value.isWellFormed(), "must be valid Unicode"),
  }),
  group: z.strictObject({ name: kapNameText }),
} as const;
