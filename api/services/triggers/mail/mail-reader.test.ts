import { generateKeyPairSync } from "node:crypto";
import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { createTransport } from "nodemailer";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type MailReader, openMailReader, UnreadableMail } from "./mail-reader.ts";
import type { MailFacts } from "./read-mail.ts";

const keys = generateKeyPairSync("rsa", {
  modulusLength: 2048,
  publicKeyEncoding: { type: "spki", format: "pem" },
  privateKeyEncoding: { type: "pkcs8", format: "pem" },
});
const publicKey = keys.publicKey.replace(/-----[^-]+-----|\s/g, "");

/** TXT records by name; a name that is not here does not exist, `null` is never answered. */
const records: Record<string, string | null> = {
  "sender.example": "v=spf1 ip4:192.0.2.1 -all",
  "strict.example": "v=spf1 -all",
  "silent.example": null,
  "_dmarc.sender.example": "v=DMARC1; p=reject",
  "_dmarc.strict.example": "v=DMARC1; p=quarantine",
  "_dmarc.silent.example": null,
  "key._domainkey.sender.example": `v=DKIM1; k=rsa; p=${publicKey}`,
};

let dns: Socket;
let dnsServers: string[];
let reader: MailReader;

beforeAll(async () => {
  dns = createSocket("udp4");
  dns.on("message", (query, from) => {
    const reply = answer(query);
    if (reply) dns.send(reply, from.port, from.address);
  });
  dns.bind(0, "127.0.0.1");
  await once(dns, "listening");
  dnsServers = [`127.0.0.1:${(dns.address() as AddressInfo).port}`];
  reader = openMailReader(dnsServers);
});
afterAll(async () => {
  dns.close();
  await reader.close();
});

/** A DNS answer (RFC 1035) with the TXT record of the name asked for, or NXDOMAIN. */
function answer(query: Buffer): Buffer | null {
  const labels: string[] = [];
  let at = 12;
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  const type = query.readUInt16BE(at + 1);
  const question = query.subarray(12, at + 5);
  const text = records[labels.join(".").toLowerCase()];
  if (text === null) return null;
  const has = text !== undefined && type === 16;
  const head = Buffer.from(query.subarray(0, 12));
  head.writeUInt16BE(0x8180 | (text === undefined ? 3 : 0), 2);
  head.writeUInt16BE(has ? 1 : 0, 6);
  head.writeUInt32BE(0, 8);
  if (!has) return Buffer.concat([head, question]);
  const strings = (text.match(/.{1,255}/g) ?? []).map((part) => Buffer.concat([Buffer.from([part.length]), Buffer.from(part)]));
  const data = Buffer.concat(strings);
  const record = Buffer.from([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 60, data.length >> 8, data.length & 255]);
  return Buffer.concat([head, question, record, data]);
}

const facts = (over: Partial<MailFacts> = {}): MailFacts => ({
  envelopeFrom: "a@sender.example",
  remoteAddress: "192.0.2.1",
  helo: "mx.sender.example",
  mailDomain: "mail.localhost",
  ...over,
});
const bytes = (text: string | Buffer): Uint8Array<ArrayBuffer> => new Uint8Array(Buffer.from(text as string));
async function build(mail: object, sign = false): Promise<Buffer> {
  const transport = createTransport({
    streamTransport: true,
    buffer: true,
    newline: "windows",
    ...(sign ? { dkim: { domainName: "sender.example", keySelector: "key", privateKey: keys.privateKey } } : {}),
  });
  return (await transport.sendMail({ from: "a@sender.example", to: "k@mail.localhost", subject: "s", text: "hello", ...mail }))
    .message as Buffer;
}

describe("SPF, DKIM and DMARC", () => {
  test("a signed mail from the right address passes all three", async () => {
    const { head } = await reader.read(bytes(await build({}, true)), facts());
    expect(head.auth).toEqual({
      spf: { result: "pass", domain: "sender.example" },
      dkim: { result: "pass", signatures: [{ result: "pass", domain: "sender.example", selector: "key" }] },
      dmarc: { result: "pass", domain: "sender.example", policy: "reject" },
    });
  });

  test("a changed body fails DKIM, a wrong address fails SPF, and both fail DMARC", async () => {
    const changed = (await build({}, true)).toString("latin1").replace("hello", "jello");
    const { head } = await reader.read(bytes(Buffer.from(changed, "latin1")), facts({ remoteAddress: "198.51.100.7" }));
    expect([head.auth.spf.result, head.auth.dkim.result, head.auth.dmarc.result]).toEqual(["fail", "fail", "fail"]);
  });

  test("an unsigned mail of a domain that sends none fails SPF and DMARC and has no DKIM", async () => {
    const { head } = await reader.read(bytes(await build({ from: "a@strict.example" })), facts({ envelopeFrom: "a@strict.example" }));
    expect(head.auth).toMatchObject({
      spf: { result: "fail" },
      dkim: { result: "none", signatures: [] },
      dmarc: { result: "fail", policy: "quarantine" },
    });
  });

  test("a domain that says nothing is none", async () => {
    const { head } = await reader.read(bytes(await build({ from: "a@other.example" })), facts({ envelopeFrom: "a@other.example" }));
    expect([head.auth.spf.result, head.auth.dkim.result, head.auth.dmarc.result]).toEqual(["none", "none", "none"]);
  });

  test("name servers that do not answer give temperror in bounded time, and the mail is read all the same", async () => {
    const begun = performance.now();
    const { head } = await reader.read(bytes(await build({ from: "a@silent.example" })), facts({ envelopeFrom: "a@silent.example" }));
    expect(head.auth.spf.result).toBe("temperror");
    expect(head.auth.dmarc.result).toBe("temperror");
    expect(head.text.trim()).toBe("hello");
    expect(performance.now() - begun).toBeLessThan(20_000);
  });
});

test("the frame holds the head and the attachments' bytes one after another", async () => {
  const parts = [Buffer.from([0, 1, 255, 13, 10]), Buffer.alloc(0), Buffer.from("ü")];
  const { head, frame } = await reader.read(
    bytes(await build({ attachments: parts.map((content, i) => ({ filename: `${i}.bin`, content })) })),
    facts(),
  );
  const length = new DataView(frame.buffer).getUint32(0);
  expect(JSON.parse(Buffer.from(frame.subarray(4, 4 + length)).toString())).toEqual(head);
  expect(Buffer.from(frame.subarray(4 + length))).toEqual(Buffer.concat(parts));
  expect(head.attachments.map((attachment) => attachment.size)).toEqual([5, 0, 2]);
});

test("groups, several addresses and folded, encoded headers are read", async () => {
  const raw =
    'From: "A, B" <a@sender.example>, c@sender.example\r\nTo: Team: x@y.example, =?utf-8?Q?J=C3=BC?= <j@y.example>;, z@y.example\r\nX-Folded: one\r\n two\r\n\r\nbody';
  const { head } = await reader.read(bytes(raw), facts());
  expect(head.from).toEqual({ address: "a@sender.example", name: "A, B" });
  expect(head.to).toEqual([
    { address: "x@y.example", name: "" },
    { address: "j@y.example", name: "Jü" },
    { address: "z@y.example", name: "" },
  ]);
  expect(head.headers).toContainEqual(["x-folded", "one two"]);
});

test.each([
  ["Auto-Submitted: auto-replied\r\n", "a@sender.example", true],
  ["Auto-Submitted: auto-generated; x=y\r\n", "a@sender.example", true],
  ["Auto-Submitted: No (by hand)\r\n", "a@sender.example", true], // a comment is not the word no: rather quiet than in a loop
  ["Auto-Submitted: no\r\n", "a@sender.example", false],
  ["", "a@sender.example", false],
  ["", "", true],
])("%j from %j: automatic is %s", async (header, envelopeFrom, isAutomatic) => {
  expect((await reader.read(bytes(`From: a@sender.example\r\n${header}\r\nx`), facts({ envelopeFrom }))).isAutomatic).toBe(isAutomatic);
});

test("a mail of 30 MiB is read, and many small ones beside it", async () => {
  const content = Buffer.alloc(21 * 1024 * 1024, 7);
  const [large, ...small] = await Promise.all([
    reader.read(bytes(await build({ attachments: [{ filename: "large.bin", content }] })), facts()),
    ...Array.from({ length: 20 }, async (_, i) => reader.read(bytes(await build({ subject: `n ${i}` })), facts())),
  ]);
  expect(large?.head.attachments).toMatchObject([{ size: content.length }]);
  expect(small.map((mail) => mail.head.subject)).toEqual(Array.from({ length: 20 }, (_, i) => `n ${i}`));
});

const times = (count: number, text: (n: number) => string): string => Array.from({ length: count }, (_, n) => text(n)).join("");
const html = (body: string): string => `Content-Type: text/html\r\n\r\n${body}`;
const encoded = (encoding: string, body: string): string =>
  `Content-Type: text/plain\r\nContent-Transfer-Encoding: ${encoding}\r\n\r\n${body}`;
const signature = (n: number): string =>
  `DKIM-Signature: v=1; a=rsa-sha256; c=${n % 2 ? "simple" : "relaxed"}/relaxed; l=${n}; d=d${n}.example; s=k; h=from; bh=AAAA; b=AAAA\r\n`;

test.each([
  ["100,000 elements inside one another", html("<div>".repeat(100_000))],
  ["20,000 tables inside one another", html("<table><tr><td>".repeat(20_000))],
  ["2 MB of opening brackets", html("<".repeat(2_000_000))],
  ["1.5 million entities", html("&amp;&lt;&#x41;".repeat(500_000))],
  ["a million addresses of the web", `\r\n${"http://a.".repeat(1_000_000)}`],
  ["10 MB of one line", `\r\n${"a".repeat(10_000_000)}`],
  ["64 KB of commas for an address", `To: ${",".repeat(64_000)}\r\n\r\nx`],
  ["64 KB of open comments for an address", `To: ${"(".repeat(64_000)}\r\n\r\nx`],
  ["64 KB of open quotes for an address", `To: ${'"'.repeat(64_000)}\r\n\r\nx`],
  ["groups inside groups", `To: ${"a:".repeat(32_000)}\r\n\r\nx`],
  ["8,000 addresses", `To: ${"a@b.cc, ".repeat(8_000)}\r\n\r\nx`],
  ["900 fields of a thousand addresses", `${times(900, () => `To: ${"a@b.cc, ".repeat(1_000)}\r\n`)}\r\nx`],
  ["3,000 senders", `From: ${times(3_000, (n) => `a@d${n}.example, `)}\r\n\r\nx`],
  ["encoded words without an end", `Subject: ${"=?utf-8?Q?".repeat(6_500)}\r\n\r\nx`],
  [
    "encodings that do not exist",
    "Subject: =?x-unknown?B?/////w==?= =?iso-2022-jp?B?GyRC?=\r\nContent-Type: text/plain; charset=no-such\r\n\r\n\xff\xfe",
  ],
  ["escapes of another alphabet without an end", `Content-Type: text/plain; charset=iso-2022-jp\r\n\r\n${"\x1b$B".repeat(500_000)}`],
  ["8,000 pieces of one parameter", `Content-Type: text/plain; ${times(8_000, (n) => `a*${n}*=x; `)}\r\n\r\nx`],
  ["quoted-printable of nothing but its sign", encoded("quoted-printable", "=".repeat(5_000_000))],
  ["base64 of none of its letters", encoded("base64", "!*".repeat(2_500_000))],
  [
    "900 signatures over 4 MB, each of another length",
    `${times(900, signature)}From: a@b.example\r\n\r\n${"line of text\r\n".repeat(300_000)}`,
  ],
  [
    "300 forwarders' seals",
    `${times(300, (n) => `ARC-Seal: i=${n}; a=rsa-sha256; d=x; s=k; cv=none; b=AA\r\nARC-Message-Signature: i=${n}; a=rsa-sha256; d=x; s=k; h=from; bh=AA; b=AA\r\n`)}\r\nx`,
  ],
])(
  "a hostile mail, %s, is read or refused for good within its time, and a mail beside it is read",
  async (_, raw) => {
    const [hostile, beside] = await Promise.allSettled([
      reader.read(bytes(Buffer.from(raw, "latin1")), facts()),
      reader.read(bytes("Subject: beside\r\n\r\nx"), facts()),
    ]);
    if (hostile.status === "rejected") expect(hostile.reason).toMatchObject({ name: "UnreadableMail", again: false });
    expect(beside).toMatchObject({ status: "fulfilled", value: { head: { subject: "beside" } } });
  },
  60_000,
);

test("of more signatures than ten the first ten are checked, and a good one among them counts", async () => {
  const good = (await build({ from: "a@sender.example" }, true)).toString("latin1");
  const auth = async (text: string) => (await reader.read(bytes(Buffer.from(text, "latin1")), facts())).head.auth.dkim;
  expect(await auth(times(9, signature) + good)).toMatchObject({ result: "pass" });
  expect((await auth(times(40, signature) + good)).signatures.length).toBeLessThanOrEqual(10);
});

test("a thread that ends takes its mails with it, which may be tried again; the next mail has a new thread", async () => {
  const own = openMailReader(dnsServers);
  const waiting = own.read(bytes(await build({ from: "a@silent.example" })), facts({ envelopeFrom: "a@silent.example" }));
  const failed = expect(waiting).rejects.toMatchObject({ name: "UnreadableMail", again: true });
  await own.close();
  await failed;
  expect(new UnreadableMail("x", false).again).toBe(false);
  expect((await own.read(bytes(await build({ subject: "next" })), facts())).head.subject).toBe("next");
  await own.close();
});
