import { once } from "node:events";
import { connect } from "node:net";
import { createTransport } from "nodemailer";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createLogger } from "#platform/log.ts";
import { createMetrics, type Metrics } from "#platform/metrics.ts";
import { until } from "../test/harness/wait.ts";
import { type ApiPeer, openApiPeer, PeerAnswer } from "./internal-api.peer.ts";
import type { MailLimits } from "./limits.ts";
import { createMailIngest, type MailIngest, type MailIngestConfig } from "./server.ts";
import { type Dialogue, openDialogue } from "./smtp-dialogue.ts";
import { testCertificate } from "./test-certificate.ts";

const token = "the ingest token";
let api: ApiPeer;
let metrics: Metrics;
let opened: { close(): unknown }[];

beforeEach(async () => {
  opened = [];
  api = await openApiPeer(token);
});
afterEach(async () => {
  for (const one of opened.reverse()) await one.close();
  await api.close();
});

async function start(options: Partial<MailIngestConfig> & { limits?: Partial<MailLimits> } = {}): Promise<MailIngest & { port: number }> {
  metrics = createMetrics("mail-ingest");
  const log = createLogger("mail-ingest", { level: "silent" });
  const config = {
    host: "127.0.0.1",
    port: 0,
    mailDomain: "mail.localhost",
    apiUrl: api.url,
    ingestToken: token,
    tls: null,
    proxies: [],
    ...options,
  };
  const ingest = createMailIngest({ ...config, limits: { drainMs: 5_000, ...options.limits } }, { log, metrics });
  await ingest.listen();
  opened.push(ingest);
  return { ...ingest, port: ingest.address().port };
}
async function dial(port: number): Promise<Dialogue & { greeting: string | null }> {
  const dialogue = await openDialogue(port);
  opened.push(dialogue);
  return dialogue;
}
/** A dialogue that has been told to go on after DATA. */
async function inData(port: number, recipients = ["counter@mail.localhost"]): Promise<Dialogue> {
  const dialogue = await dial(port);
  await dialogue.begin(recipients);
  expect(await dialogue.ask("DATA")).toMatch(/^354/);
  return dialogue;
}
const letter = "Subject: hi\r\n\r\nhello\r\n";

test("a mail to two kaps is handed over once, byte for byte, with its envelope; 250 comes after it is stored", async () => {
  const { port } = await start();
  const dialogue = await inData(port, ["one@mail.localhost", "Two@mail.localhost"]);
  let isStored = false;
  api.beforeStore = async () => {
    isStored = true;
  };
  await dialogue.send("Subject: dots\r\n\r\n..one dot\r\n...two\r\nplain .\r\n");
  expect(await dialogue.ask(".")).toMatch(/^250 /);
  expect(isStored).toBe(true);
  expect(api.stored).toHaveLength(1);
  expect(api.stored[0]!.content.toString()).toBe("Subject: dots\r\n\r\n.one dot\r\n..two\r\nplain .\r\n");
  expect(api.stored[0]!.envelope).toEqual({
    from: "sender@example.com",
    recipients: [
      { address: "one@mail.localhost", kap_id: "kap-one" },
      { address: "Two@mail.localhost", kap_id: "kap-Two" },
    ],
    remote_address: "127.0.0.1",
    helo: "client.example.com",
    received_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
    tls: null,
  });
  expect(await metrics.metrics()).toMatch(/kapstone_mail_messages_total\{code="250".*\} 1/);
});

test("an ordinary mail library delivers text, attachments and UTF-8 addresses", async () => {
  const { port } = await start();
  const transport = createTransport({ host: "127.0.0.1", port, secure: false, ignoreTLS: true });
  opened.push(transport);
  const attachment = Buffer.alloc(3_000_000, "0123456789");
  const sent = await transport.sendMail({
    from: "jürgen@exämple.com",
    to: ["counter@mail.localhost"],
    subject: "ünï",
    text: "héllo\n.\n..\n",
    attachments: [{ filename: "a.bin", content: attachment }],
  });
  expect(sent.accepted).toEqual(["counter@mail.localhost"]);
  expect(api.stored[0]!.content.toString()).toContain(attachment.toString("base64").slice(0, 76));
  expect(api.stored[0]!.envelope.from).toContain("jürgen@");
});

test("it offers what it can do, STARTTLS only with a certificate, and never AUTH", async () => {
  const plain = await dial((await start()).port);
  expect(plain.greeting).toMatch(/^220 mail\.localhost ESMTP/);
  const offered = await plain.ask("EHLO x");
  for (const extension of ["SIZE 31457280", "8BITMIME", "SMTPUTF8", "PIPELINING", "ENHANCEDSTATUSCODES"])
    expect(offered).toContain(extension);
  expect(offered).not.toMatch(/STARTTLS|AUTH|XCLIENT/);
  for (const command of ["STARTTLS", "AUTH PLAIN AHgAeA==", "XCLIENT ADDR=1.2.3.4", "WIZ x", "SHELL"])
    expect(await plain.ask(command)).toMatch(/^500/);
  expect(await (await dial((await start({ tls: testCertificate })).port)).ask("EHLO x")).toContain("STARTTLS");
});

test("STARTTLS shows the configured certificate, tells the cipher, and forgets what was said before", async () => {
  const ingest = await start({ tls: testCertificate });
  const transport = createTransport({
    host: "127.0.0.1",
    port: ingest.port,
    requireTLS: true,
    tls: { ca: testCertificate.cert, servername: "mail.localhost" },
  });
  opened.push(transport);
  await transport.sendMail({ from: "a@example.com", to: "counter@mail.localhost", text: "x" });
  expect(api.stored[0]!.envelope.tls).toMatch(/^(TLS|ECDHE)/);
  ingest.renewCertificate(testCertificate);
  expect(() => ingest.renewCertificate({ cert: "nonsense", key: "nonsense" })).toThrow();
  await transport.sendMail({ from: "a@example.com", to: "counter@mail.localhost", text: "x" });
  expect(api.stored).toHaveLength(2);

  const injecting = await dial(ingest.port);
  await injecting.ask("EHLO x");
  await injecting.send("STARTTLS\r\nMAIL FROM:<injected@example.com>\r\n");
  expect(await injecting.reply()).toMatch(/^220/);
});

test("each recipient is answered on its own, in the API's words, and the others get the mail", async () => {
  const { port } = await start();
  api.recipients.set("unknown@mail.localhost", { code: 550, message: "There is no kap of this name." });
  api.recipients.set("paused@mail.localhost", { code: 450, message: "The inbox of this kap is paused." });
  api.recipients.set("busy@mail.localhost", { code: 452, message: "The kap has had its 120 mails of this hour." });
  const dialogue = await dial(port);
  const answers = await dialogue.begin([
    "unknown@mail.localhost",
    "good@mail.localhost",
    "paused@mail.localhost",
    "busy@mail.localhost",
    "GOOD@mail.localhost",
  ]);
  expect(answers).toEqual([
    "550 5.1.1 There is no kap of this name.",
    expect.stringMatching(/^250/),
    "450 4.2.1 The inbox of this kap is paused.",
    "452 4.2.2 The kap has had its 120 mails of this hour.",
    expect.stringMatching(/^250/),
  ]);
  await dialogue.ask("DATA");
  expect(await dialogue.ask(`${letter}.`)).toMatch(/^250/);
  expect(api.stored[0]!.envelope.recipients.map((recipient) => recipient.address)).toEqual(["GOOD@mail.localhost"]);
  expect(api.questions[0]).toEqual({ address: "unknown@mail.localhost", envelope_from: "sender@example.com", remote_address: "127.0.0.1" });

  expect(await dialogue.ask("MAIL FROM:<> SIZE=1234 BODY=8BITMIME")).toMatch(/^250/);
  expect(await dialogue.ask("RCPT TO:<unknown@mail.localhost>")).toMatch(/^550/);
  expect(await dialogue.ask("DATA")).toMatch(/^503/);
  expect(api.questions.at(-1)).toMatchObject({ envelope_from: "", size: 1234 });
});

test("more recipients than an envelope can carry are put off, and who tries addresses is sent away", async () => {
  const { port } = await start();
  const many = await dial(port);
  const answers = await many.begin(Array.from({ length: 120 }, (_, n) => `${"long".repeat(14)}${n}@mail.localhost`));
  const accepted = answers.filter((answer) => answer.startsWith("250")).length;
  expect(accepted).toBeGreaterThan(20);
  expect(answers.slice(accepted).every((answer) => answer.startsWith("452"))).toBe(true);
  await many.ask("DATA");
  expect(await many.ask(`${letter}.`)).toMatch(/^250/);
  expect(api.stored[0]!.envelope.recipients).toHaveLength(accepted);

  api.recipients.set("x@mail.localhost", { code: 550, message: "No." });
  const prober = await dial(port);
  const refusals = await prober.begin(Array.from({ length: 21 }, () => "x@mail.localhost"));
  expect(refusals.slice(0, 20).every((answer) => answer.startsWith("550"))).toBe(true);
  expect(refusals[20]).toMatch(/^421/);
  expect(await prober.reply()).toBeNull();
});

test("an API that is away, silent or talks nonsense is 451 for the sender, never 250 or 5xx", async () => {
  const hasty = await dial((await start({ limits: { recipientMs: 200 } })).port);
  api.recipients.set("silent@mail.localhost", null);
  api.recipients.set("broken@mail.localhost", 500);
  api.recipients.set("odd@mail.localhost", { code: 250, message: "what?" });
  for (const answer of await hasty.begin(["silent@mail.localhost", "broken@mail.localhost", "odd@mail.localhost"]))
    expect(answer).toMatch(/^451/);

  const impatient = await dial((await start({ limits: { storeMs: 200 } })).port);

  const faults: (() => Promise<void>)[] = [
    () => Promise.reject(new PeerAnswer(500, "oops")),
    () => Promise.reject(new PeerAnswer(200, "no JSON")),
    () => Promise.reject(new PeerAnswer(200, {})),
    () => Promise.reject(new PeerAnswer(0, "")),
    () => Promise.reject(new Error("connection cut")),
  ];
  for (const fault of faults) {
    for (const hook of ["beforeStore", "beforeBody"] as const) {
      api[hook] = fault;
      await impatient.ask("RSET");
      await impatient.begin(["counter@mail.localhost"]);
      await impatient.ask("DATA");
      await impatient.send(letter + "x".repeat(200_000));
      expect(await impatient.ask("\r\n."), `${hook} ${fault}`).toMatch(/^451/);
      api[hook] = async () => undefined;
    }
  }
  const dialogue = await dial((await start()).port);
  api.beforeStore = () => Promise.reject(new PeerAnswer(200, { code: 452, message: "The store is full." }));
  await dialogue.begin(["counter@mail.localhost"]);
  await dialogue.ask("DATA");
  expect(await dialogue.ask(`${letter}.`)).toBe("452 4.2.2 The store is full.");

  await api.close();
  expect((await dialogue.begin(["counter@mail.localhost"]))[0]).toMatch(/^451/);
  expect(api.stored).toEqual([]);
  // The API comes back: so does the service, on the same connection.
  const url = new URL(api.url);
  api = await openApiPeer(token, Number(url.port));
  await dialogue.begin(["counter@mail.localhost"]);
  await dialogue.ask("DATA");
  expect(await dialogue.ask(`${letter}.`)).toMatch(/^250/);
});

test("a wrong token stores nothing", async () => {
  const { port } = await start({ ingestToken: "another" });
  expect((await (await dial(port)).begin(["counter@mail.localhost"]))[0]).toMatch(/^451/);
});

test("a message over the bound is refused by its announcement and by its bytes, and the connection goes on", async () => {
  const { port } = await start({ limits: { messageBytes: 100_000 } });
  const dialogue = await dial(port);
  await dialogue.ask("EHLO x");
  expect(await dialogue.ask("MAIL FROM:<a@example.com> SIZE=100001")).toMatch(/^552/);
  const body = (bytes: number) => `A: b\r\n\r\n${"x".repeat(bytes - 10)}\r\n`;
  await dialogue.begin(["counter@mail.localhost"]);
  await dialogue.ask("DATA");
  await dialogue.send(body(100_001));
  expect(await dialogue.ask(".")).toMatch(/^552 .*100000 bytes/);
  await until(() => api.broken === 1);
  await dialogue.begin(["counter@mail.localhost"]);
  await dialogue.ask("DATA");
  await dialogue.send(body(100_000));
  expect(await dialogue.ask(".")).toMatch(/^250/);
  expect(api.stored.map((message) => message.content.length)).toEqual([100_000]);
});

test("a sender without end is hung up on", async () => {
  const { port } = await start({ limits: { messageBytes: 100_000 } });
  const dialogue = await inData(port);
  const closed = once(dialogue.socket, "close");
  for (let n = 0; n < 2_000 && !dialogue.socket.destroyed; n += 1) await dialogue.send(Buffer.alloc(65_536, "x"));
  await closed;
  expect((await dialogue.reply()) ?? "closed").toMatch(/^552|^closed$/);
  expect(api.stored).toEqual([]);
  expect(dialogue.socket.bytesWritten).toBeLessThan(60 * 1024 * 1024);
});

test.each([
  ["LF . LF", "\n.\n"],
  ["LF . CRLF", "\n.\r\n"],
  ["CRLF . LF", "\r\n.\n"],
  ["CRLF . CR", "\r\n.\r"],
  ["CR . CR", "\r.\r"],
  ["CR . CRLF", "\r.\r\n"],
  ["NUL LF . CRLF", "\0\n.\r\n"],
])("%s ends no message: nothing behind it is a command, and nothing is stored", async (_, ending) => {
  const { port } = await start();
  const dialogue = await inData(port);
  await dialogue.send(
    `Subject: outer\r\n\r\nhello${ending}MAIL FROM:<smuggled@example.com>\r\nRCPT TO:<victim@mail.localhost>\r\nDATA\r\nSubject: inner\r\n\r\nx\r\n`,
  );
  const answer = await dialogue.ask(".");
  expect(answer).toMatch(/^554 .*CRLF/);
  expect(await dialogue.ask("NOOP")).toMatch(/^250/);
  expect(api.questions.map((question) => question.address)).toEqual(["counter@mail.localhost"]);
  expect(api.stored).toEqual([]);
});

test("hostile structure is refused with a sentence and the sender may go on", async () => {
  const { port } = await start();
  const dialogue = await dial(port);
  const nested = Array.from({ length: 21 }, (_, n) => `Content-Type: multipart/mixed; boundary=b${n}\r\n\r\n--b${n}\r\n`).join("");
  const hostile: [string, RegExp][] = [
    [`${"X: y\r\n".repeat(1_001)}\r\n`, /^554 .*1000 header fields/],
    [`X: ${"y".repeat(65_536)}\r\n\r\n`, /^554 .*65536 bytes/],
    [`Content-Type: multipart/mixed; boundary=b\r\n\r\n${"--b\r\n\r\nx\r\n".repeat(201)}`, /^554 .*200 MIME parts/],
    [nested, /^554 .*20 deep/],
    [`${"Received: from a by b\r\n".repeat(101)}\r\n`, /^554 .*loop/],
  ];
  for (const [message, expected] of hostile) {
    await dialogue.begin(["counter@mail.localhost"]);
    await dialogue.ask("DATA");
    await dialogue.send(message);
    expect(await dialogue.ask(".")).toMatch(expected);
  }
  expect(api.stored).toEqual([]);
  await dialogue.begin(["counter@mail.localhost"]);
  await dialogue.ask("DATA");
  expect(await dialogue.ask(`${letter}.`)).toMatch(/^250/);
});

test("pipelined commands, and a message sent byte by byte, are understood", async () => {
  const { port } = await start();
  const dialogue = await dial(port);
  await dialogue.send("EHLO x\r\nMAIL FROM:<a@example.com>\r\nRCPT TO:<one@mail.localhost>\r\nRCPT TO:<two@mail.localhost>\r\nDATA\r\n");
  const codes = [];
  for (let n = 0; n < 5; n += 1) codes.push((await dialogue.reply())?.slice(0, 3));
  expect(codes).toEqual(["250", "250", "250", "250", "354"]);
  dialogue.socket.setNoDelay(true);
  for (const byte of "A: b\r\n\r\n..\r\nx\r\n.\r\n") await dialogue.send(byte);
  await dialogue.send(`MAIL FROM:<a@example.com>\r\nQUIT\r\n`);
  expect([(await dialogue.reply())?.slice(0, 3), (await dialogue.reply())?.slice(0, 3), (await dialogue.reply())?.slice(0, 3)]).toEqual([
    "250",
    "250",
    "221",
  ]);
  expect(api.stored[0]!.content.toString()).toBe("A: b\r\n\r\n.\r\nx\r\n");
});

test("a sender that goes away in the middle leaves nothing", async () => {
  const { port } = await start();
  const dialogue = await inData(port);
  await dialogue.send(letter + "x".repeat(100_000));
  await until(() => api.begun === 1);
  dialogue.close();
  await until(() => api.broken === 1);
  expect(api.stored).toEqual([]);
  await until(async () => /kapstone_mail_messages_total\{code="lost".*\} 1/.test(await metrics.metrics()));
});

test("connections are bounded by number, by address, by silence and by age", async () => {
  const crowded = await start({ limits: { connectionsPerAddress: 2 } });
  const [first] = [await dial(crowded.port), await dial(crowded.port)];
  expect((await dial(crowded.port)).greeting).toMatch(/^421 .*127\.0\.0\.1/);
  first!.close();
  await until(async () => {
    const next = await openDialogue(crowded.port);
    next.close();
    return next.greeting?.startsWith("220");
  });
  const full = await start({ limits: { connections: 1 } });
  await dial(full.port);
  expect((await dial(full.port)).greeting).toMatch(/^421/);

  const idle = await dial((await start({ limits: { idleMs: 300 } })).port);
  expect(await idle.reply()).toMatch(/^421/);
  expect(await idle.reply()).toBeNull();

  const slow = await inData((await start({ limits: { connectionMs: 5_000 } })).port); // long enough to come to DATA on a machine that stands still
  const drip = setInterval(() => slow.socket.write("x"), 50);
  expect(await slow.reply()).toMatch(/^421/);
  clearInterval(drip);
  await until(() => api.broken === 1);
});

test("only who has been greeted counts as a connection, not a probe that goes at once", async () => {
  const { port } = await start();
  const dialogue = await dial(port);
  for (let index = 0; index < 5; index++) {
    const probe = connect(port, "127.0.0.1");
    await once(probe, "connect");
    probe.destroy();
  }
  // Whoever comes after them is greeted after they are gone.
  (await dial(port)).close();
  const connections = async () => /^kapstone_mail_connections\S* (\S+)$/m.exec(await metrics.metrics())?.[1];
  await until(async () => (await connections()) === "1");
  dialogue.close();
  await until(async () => (await connections()) === "0");
});

test("a stop lets the message under way end with 250, tells the others 421, and takes no new one", async () => {
  const ingest = await start();
  const idle = await dial(ingest.port);
  const sending = await inData(ingest.port);
  await sending.send("Subject: hi\r\n\r\n");
  await until(() => api.begun === 1);
  const closed = ingest.close();
  expect(await idle.reply()).toMatch(/^421/);
  const late = await openDialogue(ingest.port);
  expect(late.greeting).toBeNull();
  expect(await sending.ask("hello\r\n.")).toMatch(/^250/);
  expect(await sending.reply()).toMatch(/^421/);
  await closed;
  expect(api.stored).toHaveLength(1);
});
