import type { SMTPServerSession } from "smtp-server";
import { type Envelope, envelopeHeader, type MailApi, maxEnvelopeHeader } from "./api-client.ts";
import type { MailLimits } from "./limits.ts";
import { MailRefusal } from "./mail-refusal.ts";

/** Who is connected, how often an address, and which recipients each transaction has been promised. */
export class Arrivals {
  readonly #limits: MailLimits;
  readonly #perAddress = new Map<string, number>();
  readonly #refused = new WeakMap<SMTPServerSession, number>();
  /** By the session's envelope, which `smtp-server` replaces for every transaction. */
  readonly #recipients = new WeakMap<object, Envelope["recipients"]>();

  constructor(limits: MailLimits) {
    this.#limits = limits;
  }

  /** Counts a connection; answers why it may not stay. */
  arrive(session: SMTPServerSession): MailRefusal | null {
    const count = (this.#perAddress.get(session.remoteAddress) ?? 0) + 1;
    this.#perAddress.set(session.remoteAddress, count);
    if (count <= this.#limits.connectionsPerAddress) return null;
    return new MailRefusal(421, `Too many connections from ${session.remoteAddress}; close one or try again later.`);
  }

  leave(session: SMTPServerSession): void {
    const count = (this.#perAddress.get(session.remoteAddress) ?? 1) - 1;
    if (count > 0) this.#perAddress.set(session.remoteAddress, count);
    else this.#perAddress.delete(session.remoteAddress);
  }

  /** Asks the API about a recipient. Throws the `MailRefusal` that the sender hears. */
  async judge(api: MailApi, address: string, session: SMTPServerSession): Promise<void> {
    const envelope = session.envelope;
    const from = senderOf(session);
    const args = envelope.mailFrom ? envelope.mailFrom.args : false;
    const size = Number(args ? args.SIZE : undefined) || undefined;
    try {
      const question = { address, envelope_from: from, remote_address: session.remoteAddress, ...(size !== undefined && { size }) };
      const kap_id = await api.recipient(question);
      const others = (this.#recipients.get(envelope) ?? []).filter((other) => other.address.toLowerCase() !== address.toLowerCase());
      const recipients = [...others, { address, kap_id }];
      if (envelopeHeader({ ...this.envelopeOf(session), recipients }).length > maxEnvelopeHeader) {
        throw new MailRefusal(452, "Too many recipients for one message; send it to the others in another transaction.");
      }
      this.#recipients.set(envelope, recipients);
    } catch (error) {
      if (error instanceof MailRefusal && error.responseCode < 500) throw error;
      const refused = (this.#refused.get(session) ?? 0) + 1;
      this.#refused.set(session, refused);
      if (refused > this.#limits.refusedRecipients)
        throw new MailRefusal(421, "Too many refused recipients; connect again with a cleaner list.");
      throw error;
    }
  }

  /** The transaction as it stands. */
  envelopeOf(session: SMTPServerSession): Envelope {
    return {
      from: senderOf(session),
      recipients: this.#recipients.get(session.envelope) ?? [],
      remote_address: session.remoteAddress,
      helo: session.hostNameAppearsAs || "",
      received_at: new Date().toISOString(),
      tls: session.tlsOptions ? session.tlsOptions.name : null,
    };
  }
}

function senderOf(session: SMTPServerSession): string {
  return session.envelope.mailFrom ? session.envelope.mailFrom.address : "";
}
