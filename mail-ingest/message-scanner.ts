import { type PartKind, partKind } from "./content-type.ts";
import type { MailLimits } from "./limits.ts";
import { MailRefusal } from "./mail-refusal.ts";

type ScannerLimits = Pick<MailLimits, "messageBytes" | "headers" | "headerBytes" | "parts" | "depth" | "hops">;

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const TAB = 0x09;
const DASH = 0x2d;

/** RFC 2046 allows 70; some senders write more. A body line is kept only as far as a delimiter can reach. */
const maxBoundaryBytes = 250;
const keptBodyLineBytes = maxBoundaryBytes + 64;
const firstHeldBytes = 1_024;

/**
 * Reads a message as it streams by and refuses what would cost its parser too much: total size, header fields, parts, depth. Also refuses a CR or LF that is not
 * half of a CRLF, on which servers disagree where a message ends (SMTP smuggling). Holds one header field at most, whatever is sent.
 */
export class MessageScanner {
  sizeBytes = 0;
  readonly #limits: ScannerLimits;
  #headers = 0;
  #parts = 0;
  #hops = 0;

  /** The multiparts and messages around the current line, outermost first. A message has no delimiter of its own. */
  readonly #around: (string | null)[] = [];
  #isInHeader = true;
  /** Bytes of the header field being read, and its text when it is one that says what the part holds. */
  #fieldBytes = 0;
  #field: { name: "content-type" | "content-transfer-encoding"; text: string } | null = null;
  #contentType = "";
  #transferEncoding = "";

  /** The current line as far as it came with earlier chunks. */
  #held = Buffer.alloc(firstHeldBytes);
  #heldBytes = 0;
  #lineBytes = 0;
  #isAfterCr = false;

  constructor(limits: ScannerLimits) {
    this.#limits = limits;
  }

  /** Throws `MailRefusal` at the first byte that may not be. */
  push(chunk: Buffer): void {
    this.sizeBytes += chunk.length;
    if (this.sizeBytes > this.#limits.messageBytes) throw tooLarge(this.#limits.messageBytes);
    let start = 0;
    if (this.#isAfterCr && chunk.length > 0) {
      if (chunk[0] !== LF) throw bareLineEnd();
      this.#isAfterCr = false;
      this.#endLine(chunk.subarray(0, 0));
      start = 1;
    }
    while (start < chunk.length) {
      const lf = chunk.indexOf(LF, start);
      const cr = chunk.indexOf(CR, start);
      if (lf === -1) {
        if (cr !== -1 && cr !== chunk.length - 1) throw bareLineEnd();
        this.#isAfterCr = cr !== -1;
        this.#hold(chunk.subarray(start, cr === -1 ? chunk.length : cr));
        return;
      }
      if (cr === -1 || cr !== lf - 1) throw bareLineEnd();
      // Nearly every line of a body is of no interest.
      if (this.#isInHeader || this.#lineBytes > 0 || chunk[start] === DASH) this.#endLine(chunk.subarray(start, cr));
      start = lf + 1;
    }
  }

  /** The end of the message. Throws `MailRefusal` when its last line is open. */
  end(): void {
    if (this.#isAfterCr || this.#lineBytes > 0) throw bareLineEnd();
  }

  #hold(bytes: Buffer): void {
    this.#lineBytes += bytes.length;
    const most = this.#isInHeader ? this.#limits.headerBytes : keptBodyLineBytes;
    const kept = bytes.subarray(0, Math.max(0, most - this.#heldBytes));
    const needed = this.#heldBytes + kept.length;
    if (needed > this.#held.length) {
      const larger = Buffer.alloc(Math.max(needed, this.#held.length * 2));
      this.#held.copy(larger, 0, 0, this.#heldBytes);
      this.#held = larger;
    }
    kept.copy(this.#held, this.#heldBytes);
    this.#heldBytes = needed;
    if (this.#isInHeader) this.#checkFieldSize(this.#lineBytes + (this.#isContinuation(this.#held) ? this.#fieldBytes : 0));
  }

  #isContinuation(line: Buffer): boolean {
    return this.#fieldBytes > 0 && (line[0] === SPACE || line[0] === TAB);
  }

  #endLine(rest: Buffer): void {
    if (this.#lineBytes === 0) {
      this.#line(rest, rest.length);
      return;
    }
    this.#hold(rest);
    const [line, lineBytes] = [this.#held.subarray(0, this.#heldBytes), this.#lineBytes];
    this.#heldBytes = 0;
    this.#lineBytes = 0;
    this.#line(line, lineBytes);
    if (this.#held.length > firstHeldBytes) this.#held = Buffer.alloc(firstHeldBytes);
  }

  /** One line without its CRLF. `lineBytes` is more than the line's length when not all of it was kept. */
  #line(line: Buffer, lineBytes: number): void {
    if (line[0] === DASH && line[1] === DASH && lineBytes === line.length && this.#isDelimiter(line)) return;
    if (!this.#isInHeader) return;
    if (lineBytes === 0) {
      this.#endHeader();
    } else if (this.#isContinuation(line)) {
      this.#fieldBytes += lineBytes + 2;
      this.#checkFieldSize(this.#fieldBytes);
      if (this.#field) this.#field.text += line.toString("latin1");
    } else {
      this.#endField();
      this.#beginField(line, lineBytes);
    }
  }

  #isDelimiter(line: Buffer): boolean {
    if (line.length > keptBodyLineBytes) return false;
    const text = line.toString("latin1").trimEnd();
    for (let at = this.#around.length - 1; at >= 0; at -= 1) {
      const boundary = this.#around[at];
      if (boundary == null || !text.startsWith(boundary, 2)) continue;
      const after = text.slice(2 + boundary.length);
      if (after !== "" && after !== "--") continue;
      // Closed, or beginning the next part: everything inside has ended either way.
      this.#around.length = after === "" ? at + 1 : at;
      if (after === "") this.#beginPart();
      else this.#isInHeader = false;
      return true;
    }
    return false;
  }

  #beginPart(): void {
    this.#parts += 1;
    if (this.#parts > this.#limits.parts)
      throw new MailRefusal(554, `The message has more than ${this.#limits.parts} MIME parts; send fewer.`);
    this.#beginHeader();
  }

  #beginHeader(): void {
    this.#isInHeader = true;
    this.#fieldBytes = 0;
    this.#field = null;
    this.#contentType = "";
    this.#transferEncoding = "";
  }

  #beginField(line: Buffer, lineBytes: number): void {
    this.#headers += 1;
    if (this.#headers > this.#limits.headers) {
      throw new MailRefusal(554, `The message has more than ${this.#limits.headers} header fields; send fewer.`);
    }
    this.#fieldBytes = lineBytes + 2;
    this.#checkFieldSize(this.#fieldBytes);
    const name = line
      .subarray(0, Math.max(0, line.indexOf(":")))
      .toString("latin1")
      .trim()
      .toLowerCase();
    if (name === "content-type" || name === "content-transfer-encoding") {
      this.#field = { name, text: line.subarray(line.indexOf(":") + 1).toString("latin1") };
    }
    if (name === "received" && this.#around.length === 0) this.#countHop();
  }

  #countHop(): void {
    this.#hops += 1;
    if (this.#hops > this.#limits.hops) {
      throw new MailRefusal(554, `The message has been through more than ${this.#limits.hops} servers: it is in a mail loop.`);
    }
  }

  #endField(): void {
    // The first of several counts, as it does for parsers.
    if (this.#field?.name === "content-type") this.#contentType ||= this.#field.text;
    if (this.#field?.name === "content-transfer-encoding") this.#transferEncoding ||= this.#field.text;
    this.#field = null;
  }

  #endHeader(): void {
    this.#endField();
    const part: PartKind = partKind(this.#contentType, this.#transferEncoding);
    this.#isInHeader = false;
    if (part.kind === "leaf") return;
    if (part.kind === "multipart" && part.boundary.length > maxBoundaryBytes) {
      throw new MailRefusal(554, "The message has a MIME boundary of more than 250 characters; RFC 2046 allows 70.");
    }
    this.#around.push(part.kind === "multipart" ? part.boundary : null);
    if (this.#around.length > this.#limits.depth) {
      throw new MailRefusal(554, `The message has MIME parts more than ${this.#limits.depth} deep; send it flatter.`);
    }
    if (part.kind === "message") this.#beginHeader();
  }

  #checkFieldSize(bytes: number): void {
    if (bytes > this.#limits.headerBytes) {
      throw new MailRefusal(554, `A header field of the message is larger than ${this.#limits.headerBytes} bytes; shorten it.`);
    }
  }
}

export function tooLarge(maxBytes: number): MailRefusal {
  return new MailRefusal(552, `The message is larger than the ${maxBytes} bytes accepted here; send a smaller one.`);
}

function bareLineEnd(): MailRefusal {
  return new MailRefusal(554, "The message has a CR or LF that is not part of a CRLF; the sending server must send CRLF line ends only.");
}
