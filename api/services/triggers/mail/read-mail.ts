import { authenticate, type DNSResolver } from "mailauth";
import { type AddressObject, type EmailAddress, type ParsedMail, simpleParser } from "mailparser";

/** What is known of a mail besides its bytes. */
export interface MailFacts {
  envelopeFrom: string;
  remoteAddress: string;
  helo: string;
  /** The name this server checks as, in the results. */
  mailDomain: string;
}

interface Mailbox {
  address: string;
  name: string;
}

/** What SPF, DKIM and DMARC say (decided §7.4): a result of the RFCs' words each; `temperror` when the DNS did not answer in time. */
export interface MailAuth {
  spf: { result: string; domain: string | null };
  dkim: { result: string; signatures: { result: string; domain: string | null; selector: string | null }[] };
  dmarc: { result: string; domain: string | null; policy: string | null };
}

/** A mail as the program is given it, without the attachments' bytes. */
export interface MailHead {
  from: Mailbox;
  to: Mailbox[];
  subject: string;
  text: string;
  html: string;
  headers: [string, string][];
  auth: MailAuth;
  attachments: { filename: string | null; contentType: string; size: number }[];
}

export interface ReadMail {
  head: MailHead;
  /** The frame a runtime reads: u32be length of the head, the head as JSON, the attachments' bytes one after another. */
  frame: Uint8Array<ArrayBuffer>;
  /** An automatic reply or a bounce: `Auto-Submitted` other than `no`, or an empty envelope sender. */
  isAutomatic: boolean;
}

/** Parses a mail, checks who it is from, and packs the runtime's frame. */
export async function readMail(bytes: Buffer, facts: MailFacts, lookUp: DNSResolver): Promise<ReadMail> {
  const [parsed, auth] = await Promise.all([
    simpleParser(bytes, { skipHtmlToText: true, skipTextToHtml: true, skipImageLinks: true, skipTextLinks: true, keepCidLinks: true }),
    checkAuth(bytes, facts, lookUp),
  ]);
  const attachments = parsed.attachments.map((attachment) => ({
    filename: attachment.filename ?? null,
    contentType: attachment.contentType,
    size: attachment.content.length,
  }));
  const headers = parsed.headerLines.map(({ line }): [string, string] => {
    const colon = line.indexOf(":");
    return [
      line.slice(0, colon).toLowerCase(),
      line
        .slice(colon + 1)
        .replace(/\r?\n[ \t]+/g, " ")
        .trim(),
    ];
  });
  const head: MailHead = {
    from: mailboxes(parsed.from)[0] ?? { address: facts.envelopeFrom, name: "" },
    to: mailboxes(parsed.to),
    subject: parsed.subject ?? "",
    text: parsed.text ?? "",
    html: parsed.html || "",
    headers,
    auth,
    attachments,
  };
  const autoSubmitted = headers
    .find(([name]) => name === "auto-submitted")?.[1]
    .split(";", 1)[0]
    ?.trim()
    .toLowerCase();
  return {
    head,
    frame: packFrame(head, parsed),
    isAutomatic: facts.envelopeFrom === "" || (autoSubmitted !== undefined && autoSubmitted !== "no"),
  };
}

function packFrame(head: MailHead, parsed: ParsedMail): Uint8Array<ArrayBuffer> {
  const json = Buffer.from(JSON.stringify(head));
  const total = parsed.attachments.reduce((sum, attachment) => sum + attachment.content.length, 4 + json.length);
  const frame = new Uint8Array(total);
  new DataView(frame.buffer).setUint32(0, json.length);
  frame.set(json, 4);
  let at = 4 + json.length;
  for (const attachment of parsed.attachments) {
    frame.set(attachment.content, at);
    at += attachment.content.length;
  }
  return frame;
}

function mailboxes(field: AddressObject | AddressObject[] | undefined): Mailbox[] {
  const flatten = (entry: EmailAddress): Mailbox[] =>
    entry.group ? entry.group.flatMap(flatten) : entry.address ? [{ address: entry.address, name: entry.name }] : [];
  return [field ?? []]
    .flat()
    .flatMap((object) => object.value)
    .flatMap(flatten);
}

/** All look-ups of one mail together; then what is not known is `temperror`. */
const authMs = 5_000;
const temperror: MailAuth = {
  spf: { result: "temperror", domain: null },
  dkim: { result: "temperror", signatures: [] },
  dmarc: { result: "temperror", domain: null, policy: null },
};

/**
 * Signatures of one mail that are looked at: each costs a pass over the whole body, real mails have a few, and a verifier may stop where it likes (RFC 6376 §6.1).
 */
const maxSignatures = 10;
const signatureField = /^(?:dkim-signature|arc-message-signature|arc-seal)[ \t]*:/i;

/** The mail without the signatures past the first ten, which is nearly always the mail as it is. */
function withFewSignatures(bytes: Buffer): Buffer {
  const end = bytes.indexOf("\r\n\r\n");
  const fields = bytes
    .subarray(0, end < 0 ? bytes.length : end)
    .toString("latin1")
    .split(/\r\n(?![ \t])/);
  let signatures = 0;
  const kept = fields.filter((field) => !signatureField.test(field) || ++signatures <= maxSignatures);
  if (kept.length === fields.length) return bytes;
  return Buffer.concat([Buffer.from(kept.join("\r\n"), "latin1"), end < 0 ? Buffer.alloc(0) : bytes.subarray(end)]);
}

async function checkAuth(bytes: Buffer, facts: MailFacts, lookUp: DNSResolver): Promise<MailAuth> {
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
  }, authMs);
  try {
    const result = await authenticate(withFewSignatures(bytes), {
      ip: facts.remoteAddress,
      helo: facts.helo,
      sender: facts.envelopeFrom,
      mta: facts.mailDomain,
      // A question has its own deadline; past the mail's no further one is asked.
      resolver: async (name, type) => {
        if (isLate) throw Object.assign(new Error("the look-ups of this mail took too long"), { code: "ETIMEOUT" });
        return lookUp(name, type);
      },
      strict: true, // the RFCs' words: a changed body is `fail`, not `neutral`
      disableArc: true,
      disableBimi: true,
    });
    const signatures = (result.dkim?.results ?? []).map((signature) => ({
      result: String(signature.status.result),
      domain: signature.signingDomain || null,
      selector: signature.selector || null,
    }));
    const dmarc = result.dmarc || null;
    return {
      spf: { result: result.spf ? String(result.spf.status.result) : "none", domain: result.spf ? result.spf.domain || null : null },
      dkim: {
        result: signatures.find(({ result: one }) => one === "pass")?.result ?? signatures[0]?.result ?? "none",
        signatures: signatures.filter(({ domain }) => domain !== null),
      },
      dmarc: { result: dmarc ? String(dmarc.status.result) : "none", domain: dmarc?.domain ?? null, policy: dmarc?.policy ?? null },
    };
  } catch {
    // A mail that the checks cannot read is one whose sender is not known; the mail itself is still given to the program.
    return temperror;
  } finally {
    clearTimeout(timer);
  }
}
