/** What sets a kap to work: a call, a time, or a mail. */
export const triggerKinds = ["request", "schedule", "inbox"] as const;
export type TriggerKind = (typeof triggerKinds)[number];
