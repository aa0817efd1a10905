import fc from "fast-check";
import { expect, test } from "vitest";
import { defaultMailLimits } from "./limits.ts";
import { MailRefusal } from "./mail-refusal.ts";
import { MessageScanner } from "./message-scanner.ts";

const limits = { messageBytes: 1_000_000, headers: 10, headerBytes: 200, parts: 5, depth: 3, hops: 4 };

/** The refusal's code and sentence, or null; the message comes in chunks of `chunkBytes`. */
function verdict(message: string | string[], chunkBytes = 1_000_000, bounds: typeof limits = limits): string | null {
  const bytes = Buffer.from(Array.isArray(message) ? message.map((line) => `${line}\r\n`).join("") : message, "latin1");
  const scanner = new MessageScanner(bounds);
  try {
    for (let at = 0; at < bytes.length; at += chunkBytes) scanner.push(bytes.subarray(at, at + chunkBytes));
    scanner.end();
    return null;
  } catch (error) {
    if (!(error instanceof MailRefusal)) throw error;
    return `${error.responseCode} ${error.message}`;
  }
}

const fields = (count: number) => Array.from({ length: count }, (_, n) => `X-${n}: y`);
const multipart = (boundary: string) => `Content-Type: multipart/mixed; boundary="${boundary}"`;
const nested = (depth: number): string[] =>
  depth === 0 ? ["", "text"] : [multipart(`b${depth}`), "", `--b${depth}`, ...nested(depth - 1), `--b${depth}--`];

test.each([
  ["an ordinary message", ["Subject: hi", "", "text"], null],
  ["no body", ["Subject: hi"], null],
  ["nothing at all", [], null],
  ["as many header fields as allowed", [...fields(10), "", "text"], null],
  ["one field more", [...fields(11), "", "text"], /^554 .*10 header fields/],
  ["fields of parts count too", [multipart("b"), "", "--b", ...fields(9), "", "--b", "X: y", "", "--b--"], /^554 .*10 header fields/],
  ["header lines after the header are text", ["A: b", "", ...fields(50)], null],
  ["a field as long as allowed", [`X: ${"y".repeat(195)}`, ""], null],
  ["a field one byte longer", [`X: ${"y".repeat(196)}`, ""], /^554 .*200 bytes/],
  ["a field too long by its continuations", ["X: y", ...Array.from({ length: 20 }, () => " continued")], /^554 .*200 bytes/],
  ["two long fields", [`X: ${"y".repeat(180)}`, `Y: ${"y".repeat(180)}`, ""], null],
  ["as many parts as allowed", [multipart("b"), "", ...Array.from({ length: 5 }, () => ["--b", "", "x"]).flat(), "--b--"], null],
  ["one part more", [multipart("b"), "", ...Array.from({ length: 6 }, () => ["--b", "", "x"]).flat(), "--b--"], /^554 .*5 MIME parts/],
  ["parts without header end", [multipart("b"), "", ...Array.from({ length: 6 }, () => "--b")], /^554 .*5 MIME parts/],
  ["delimiters of nobody", [multipart("b"), "", ...Array.from({ length: 50 }, () => "--c"), "--b--"], null],
  ["delimiters after the close", [multipart("b"), "", "--b", "", "--b--", ...Array.from({ length: 50 }, () => "--b")], null],
  ["as deep as allowed", nested(3), null],
  ["one deeper", nested(4), /^554 .*3 deep/],
  ["messages in messages", Array.from({ length: 4 }, () => ["Content-Type: message/rfc822", ""]).flat(), /^554 .*3 deep/],
  ["a base64 message is one leaf", ["Content-Type: message/rfc822", "Content-Transfer-Encoding: base64", "", ...fields(50)], null],
  [
    "a boundary without quotes, folded, in capitals",
    ["CONTENT-TYPE: MULTIPART/x;", "\tBOUNDARY=b;x=y", "", ...Array.from({ length: 6 }, () => "--b")],
    /^554/,
  ],
  [
    "a boundary in pieces",
    [`Content-Type: multipart/x; boundary*0=b; boundary*1="c"`, "", ...Array.from({ length: 6 }, () => "--bc")],
    /^554/,
  ],
  ["delimiters with white space behind", [multipart("b"), "", ...Array.from({ length: 6 }, () => "--b \t")], /^554/],
  ["as many hops as allowed", [...Array.from({ length: 4 }, () => "Received: from x"), ""], null],
  ["a loop", [...Array.from({ length: 5 }, () => "Received: from x"), ""], /^554 .*loop/],
  ["a bare LF", "A: b\r\n\r\none\ntwo\r\n", /^554 .*CRLF/],
  ["a bare CR", "A: b\r\n\r\none\rtwo\r\n", /^554 .*CRLF/],
  ["LF dot LF", "A: b\r\n\r\none\n.\nMAIL FROM:<x@y>\r\n", /^554 .*CRLF/],
  ["CR dot CR", "A: b\r\n\r\none\r.\rMAIL FROM:<x@y>\r\n", /^554 .*CRLF/],
  ["LF dot CRLF", "A: b\r\n\r\none\n.\r\nMAIL FROM:<x@y>\r\n", /^554 .*CRLF/],
  ["CR CR LF", "A: b\r\n\r\none\r\r\n", /^554 .*CRLF/],
  ["a bare LF in the header", "A: b\nC: d\r\n\r\n", /^554 .*CRLF/],
  ["a CR at the end", "A: b\r\n\r\none\r", /^554 .*CRLF/],
  ["an open last line", "A: b\r\n\r\none", /^554 .*CRLF/],
  ["NUL and eight-bit bytes", ["A: \u00e9\u0000", "", "\u0000\u00ff"], null],
] as [string, string | string[], RegExp | null][])("%s", (_, message, expected) => {
  for (const chunkBytes of [1_000_000, 64, 7, 2, 1]) {
    const found = verdict(message, chunkBytes);
    if (expected === null) expect(found, `in chunks of ${chunkBytes}`).toBeNull();
    else expect(found, `in chunks of ${chunkBytes}`).toMatch(expected);
  }
});

test("the bound on the whole is exact", () => {
  expect(verdict("ab\r\n", 3, { ...limits, messageBytes: 4 })).toBeNull();
  expect(verdict("abc\r\n", 3, { ...limits, messageBytes: 4 })).toMatch(/^552 .*4 bytes/);
});

test("a boundary over 250 characters is refused where a header field may be that long", () => {
  expect(verdict([multipart("b".repeat(250)), ""], 1_000, { ...limits, headerBytes: 1_000 })).toBeNull();
  expect(verdict([multipart("b".repeat(251)), ""], 1_000, { ...limits, headerBytes: 1_000 })).toMatch(/^554 .*boundary/);
});

test("the verdict does not depend on how the bytes are cut, whatever they are", () => {
  const piece = fc.constantFrom(
    "\r\n",
    "\r\n",
    "\r\n",
    "\r",
    "\n",
    "--b",
    "--b--",
    "--",
    "A: b",
    " c",
    "Content-Type: multipart/x; boundary=b",
    "message/rfc822",
    ":",
    "\t",
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 60 }), fc.integer({ min: 1, max: 40 }), (pieces, chunkBytes) => {
      expect(verdict(pieces.join(""), chunkBytes)).toBe(verdict(pieces.join("")));
    }),
    { numRuns: 2_000 },
  );
});

test("29 MiB without one line end, and of nothing but line ends, take no more memory than a chunk", () => {
  const bounds = { ...defaultMailLimits };
  for (const pattern of ["x", "\r\n", "--b\r\n", "-"]) {
    const scanner = new MessageScanner(bounds);
    scanner.push(Buffer.from(`A: b\r\n${multipart("c")}\r\n\r\n`));
    const chunk = Buffer.alloc(60_000, pattern);
    const before = process.memoryUsage().arrayBuffers;
    for (let n = 0; n < 500; n += 1) scanner.push(chunk);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(1024 * 1024);
  }
});
