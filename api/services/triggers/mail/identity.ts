import { createHash, type Hash } from "node:crypto";

/** Header fields that a server on the way adds or changes: they differ between two tries of the same mail. */
const trace = /^(?:received|return-path|delivered-to|x-received|authentication-results|received-spf|dkim-signature|arc-[\w-]+):/i;
const maxHeadBytes = 1024 * 1024;
const endOfHead = Buffer.from("\r\n\r\n");

/**
 * Sees a mail go by and remembers what tells it from another: its Message-ID and the digest of its body, which begins after the first empty
 * line. Holds at most 1 MiB of the header fields; what is beyond counts as body.
 */
export class MailIdentity {
  #head: Buffer = Buffer.alloc(0);
  #inHead = true;
  readonly #body: Hash = createHash("sha256");
  sizeBytes = 0;

  push(chunk: Buffer): void {
    this.sizeBytes += chunk.length;
    if (this.#inHead) this.#readHead(chunk);
    else this.#body.update(chunk);
  }

  #readHead(chunk: Buffer): void {
    const from = Math.max(0, this.#head.length - endOfHead.length + 1);
    this.#head = Buffer.concat([this.#head, chunk]);
    const end = this.#head.indexOf(endOfHead, from);
    if (end < 0 && this.#head.length < maxHeadBytes) return;
    const bodyAt = end < 0 ? maxHeadBytes : end + endOfHead.length;
    this.#body.update(this.#head.subarray(bodyAt));
    this.#head = this.#head.subarray(0, bodyAt);
    this.#inHead = false;
  }

  /**
   * The key under which a second try of the same mail is recognised: Message-ID, envelope sender and body digest (decided §7.4). A mail without a
   * Message-ID is told apart by its other header fields. Call it once, after the end.
   */
  key(envelopeFrom: string): Buffer {
    const fields = this.#head
      .toString("latin1")
      .replace(/\r\n[ \t]+/g, " ")
      .split("\r\n");
    const messageId = fields
      .find((field) => /^message-id:/i.test(field))
      ?.replace(/^[^:]*:/, "")
      .trim();
    const name = messageId ? `id ${messageId}` : `fields ${fields.filter((field) => !trace.test(field)).join("\n")}`;
    return createHash("sha256")
      .update(JSON.stringify([name, envelopeFrom.toLowerCase()]))
      .update(this.#body.digest())
      .digest();
  }
}
