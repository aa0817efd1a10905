import type { Deps } from "../../../deps.ts";
import type { Actor } from "../../../http/caller.ts";

/** An SMTP refusal: the code, and a sentence for the sender. */
export interface MailRefusal {
  code: 450 | 451 | 452 | 550 | 552;
  message: string;
}

/** What decides whether a kap takes a mail at this moment. */
export interface Inbox {
  kap_id: string;
  state: "active" | "disabled" | "deleted";
  disabled: { by: Actor; at: string; reason: string } | null;
  trigger_id: string | null;
  enabled: boolean | null;
  /** Whether it has had its mails of the hour. */
  is_full: boolean;
}

/** Columns of an `Inbox` beside the kap `k`, whose inbox trigger is `t`. `limit` is SQL for the mails of an hour; no more of them are read. */
export const inboxColumns = (limit: string): string => `
  k.id as kap_id, k.state, k.disabled, t.id as trigger_id, t.enabled,
  (select count(*) from (select from mail_messages m where m.kap_id = k.id and m.received_at > now() - interval '1 hour' limit ${limit}) m) >= ${limit} as is_full`;
export const inboxTrigger = "left join kap_triggers t on t.kap_id = k.id and t.kind = 'inbox' and t.deleted_at is null";

/** The kap's slug in `{slug}@{mail domain}` (whatever is between a `+` and the `@` is the sender's own); null for any other address. */
export function slugOf(address: string, mailDomain: string): string | null {
  const at = address.lastIndexOf("@");
  if (at < 1 || address.slice(at + 1).toLowerCase() !== mailDomain.toLowerCase()) return null;
  return (address.slice(0, at).split("+", 1)[0] as string).toLowerCase();
}

/**
 * The kap behind an address, or why it takes no mail now: unknown, deleted or disabled kaps and those without an inbox trigger are 550 with a sentence, a
 * paused one 450, one that has had its mails of the hour 452 (decided §7.2, §7.4).
 */
export async function findInbox(
  deps: Pick<Deps, "postgres" | "config" | "addresses">,
  address: string,
): Promise<{ kap_id: string } | MailRefusal> {
  const slug = slugOf(address, deps.addresses.mailDomain);
  if (slug === null)
    return { code: 550, message: `Mail for ${address} is not taken here: this server takes mail for ${deps.addresses.mailDomain} only.` };
  const { rows } = await deps.postgres.hot.query<Inbox>({
    name: "mail-recipient",
    text: `select ${inboxColumns("$2::int")} from kaps k ${inboxTrigger} where k.slug = $1`,
    values: [slug, deps.config.mailsPerHour],
  });
  const inbox = rows[0];
  if (!inbox) return { code: 550, message: `There is no mailbox ${address}.` };
  return refusalOf(inbox, address, deps.config.mailsPerHour) ?? { kap_id: inbox.kap_id };
}

/** Why a kap takes no mail at this moment; null when it does. */
export function refusalOf(inbox: Inbox, address: string, mailsPerHour: number): MailRefusal | null {
  if (inbox.state === "deleted") return { code: 550, message: `The mailbox ${address} was deleted.` };
  if (inbox.state === "disabled") {
    const { by, at, reason } = inbox.disabled ?? { by: { name: "a member" }, at: "some time", reason: "no reason was given" };
    return { code: 550, message: replyText(`The mailbox ${address} was disabled by ${by.name} at ${at}: ${reason}`) };
  }
  if (inbox.trigger_id === null) return { code: 550, message: `The mailbox ${address} takes no mail: its kap has no inbox trigger.` };
  if (!inbox.enabled) return { code: 450, message: `The mailbox ${address} is paused; please try again later.` };
  if (inbox.is_full)
    return { code: 452, message: `The mailbox ${address} has had its ${mailsPerHour} mails of this hour; please try again later.` };
  return null;
}

/** A reply's line has at most 512 bytes (RFC 5321 §4.5.3.1.5); its code, its status and its end take 12 of them. */
const maxReplyBytes = 500;

/** A text of people's own words as one line of a reply, cut where it is too long. */
function replyText(text: string): string {
  const bytes = Buffer.from(text.replace(/[\r\n]+/g, " "));
  if (bytes.length <= maxReplyBytes) return bytes.toString();
  return `${new TextDecoder().decode(bytes.subarray(0, maxReplyBytes - 3), { stream: true })}…`;
}
