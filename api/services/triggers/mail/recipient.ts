import type { Db } from "#platform/postgres.ts";
import type { Deps } from "../../../deps.ts";
import type { Actor } from "../../../http/caller.ts";

/** An SMTP refusal: the code, and a sentence for the sender. */
export interface MailRefusal {
  code: 450 | 451 | 452 | 550 | 552;
  message: string;
}

/** A kap whose inbox takes mail at this moment. */
export interface Inbox {
  kap_id: string;
  org_id: string;
  version_id: string;
  trigger_id: string;
}

interface Addressed extends Omit<Inbox, "trigger_id"> {
  slug: string;
  state: "active" | "disabled" | "deleted";
  disabled: { by: Actor; at: string; reason: string } | null;
  trigger_id: string | null;
  enabled: boolean | null;
}

/** The kap's slug in `{slug}@{mail domain}` (whatever is between a `+` and the `@` is the sender's own); null for any other address. */
export function slugOf(address: string, mailDomain: string): string | null {
  const at = address.lastIndexOf("@");
  if (at < 1 || address.slice(at + 1).toLowerCase() !== mailDomain.toLowerCase()) return null;
  return (address.slice(0, at).split("+", 1)[0] as string).toLowerCase();
}

/**
 * Whether an address takes mail now: unknown, deleted or disabled kaps and those without an inbox trigger are 550 with a sentence, a paused one 450, one
 * that has had its mails of the hour 452 (decided §7.2, §7.4).
 */
export async function findInbox(
  deps: Pick<Deps, "db" | "config" | "addresses">,
  address: string,
  db: Db = deps.db,
): Promise<Inbox | MailRefusal> {
  const slug = slugOf(address, deps.addresses.mailDomain);
  if (slug === null)
    return { code: 550, message: `Mail for ${address} is not taken here: this server takes mail for ${deps.addresses.mailDomain} only.` };
  const { rows } = await db.raw<{ rows: Addressed[] }>(
    `select k.id as kap_id, k.org_id, k.slug, k.state, k.disabled, k.current_version_id as version_id, t.id as trigger_id, t.enabled
     from kaps k left join kap_triggers t on t.kap_id = k.id and t.kind = 'inbox' and t.deleted_at is null where k.slug = ?`,
    [slug],
  );
  const kap = rows[0];
  if (!kap) return { code: 550, message: `There is no mailbox ${address}.` };
  const refusal = refusalOf(kap, address);
  if (refusal) return refusal;
  if ((await mailsOfTheHour(db, kap.kap_id)) >= deps.config.mailsPerHour) {
    return {
      code: 452,
      message: `The mailbox ${address} has had its ${deps.config.mailsPerHour} mails of this hour; please try again later.`,
    };
  }
  return { kap_id: kap.kap_id, org_id: kap.org_id, version_id: kap.version_id, trigger_id: kap.trigger_id as string };
}

function refusalOf(kap: Addressed, address: string): MailRefusal | null {
  if (kap.state === "deleted") return { code: 550, message: `The mailbox ${address} was deleted.` };
  if (kap.state === "disabled") {
    const { by, at, reason } = kap.disabled ?? { by: { name: "a member" }, at: "some time", reason: "no reason was given" };
    return { code: 550, message: `The mailbox ${address} was disabled by ${by.name} at ${at}: ${reason}`.replace(/[\r\n]+/g, " ") };
  }
  if (kap.trigger_id === null) return { code: 550, message: `The mailbox ${address} takes no mail: its kap has no inbox trigger.` };
  if (!kap.enabled) return { code: 450, message: `The mailbox ${address} is paused; please try again later.` };
  return null;
}

/** Mails a kap has taken within the last hour. */
async function mailsOfTheHour(db: Db, kapId: string): Promise<number> {
  const { rows } = await db.raw<{ rows: { n: number }[] }>(
    "select count(*) as n from mail_messages where kap_id = ? and received_at > now() - interval '1 hour'",
    [kapId],
  );
  return rows[0]?.n ?? 0;
}
