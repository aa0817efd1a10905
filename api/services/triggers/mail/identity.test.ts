import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { MailIdentity } from "./identity.ts";
import { slugOf } from "./recipient.ts";

async function keyOf(mail: string, options: { from?: string; chunkBytes?: number } = {}): Promise<string> {
  const bytes = Buffer.from(mail, "latin1");
  const size = options.chunkBytes ?? bytes.length;
  const chunks: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.subarray(at, at + size));
  const identity = new MailIdentity();
  expect(await buffer(Readable.from(chunks).pipe(identity))).toEqual(bytes);
  expect(identity.sizeBytes).toBe(bytes.length);
  return identity.key(options.from ?? "a@sender.example").toString("hex");
}

const mail = "Received: from x\r\nMessage-ID: <1@x>\r\nSubject: s\r\n\r\nbody\r\n";

describe("the same mail", () => {
  test.each([
    ["has passed another server", mail.replace("from x", "from y")],
    ["has its Message-ID folded and spelt otherwise", mail.replace("Message-ID: <1@x>", "message-id:\r\n <1@x>")],
    ["was signed again on the way", `DKIM-Signature: v=1; t=2\r\n${mail}`],
  ])("%s: one key", async (_, other) => {
    expect(await keyOf(other)).toBe(await keyOf(mail));
  });

  test("comes in other pieces: one key", async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: mail.length }), async (chunkBytes) => {
        expect(await keyOf(mail, { chunkBytes })).toBe(await keyOf(mail));
      }),
      { numRuns: 40 },
    );
  });

  test("has no Message-ID: told apart by its other fields, but not by where it passed", async () => {
    const none = mail.replace("Message-ID: <1@x>\r\n", "");
    expect(await keyOf(none.replace("from x", "from y"))).toBe(await keyOf(none));
    expect(await keyOf(none.replace("Subject: s", "Subject: t"))).not.toBe(await keyOf(none));
  });
});

test("another Message-ID, sender or body is another mail, in whatever case the sender is written", async () => {
  const keys = await Promise.all([
    keyOf(mail),
    keyOf(mail.replace("<1@x>", "<2@x>")),
    keyOf(mail.replace("body", "Body")),
    keyOf(mail, { from: "b@sender.example" }),
    keyOf(mail, { from: "" }),
  ]);
  expect(new Set(keys).size).toBe(5);
  expect(await keyOf(mail, { from: "A@Sender.Example" })).toBe(keys[0]);
});

test("a head without an end is held to 1 MiB, and the rest still counts", async () => {
  const long = `Message-ID: <1@x>\r\nX: ${"x".repeat(1_100_000)}`;
  expect(await keyOf(`${long}1`, { chunkBytes: 65_536 })).not.toBe(await keyOf(`${long}2`, { chunkBytes: 65_536 }));
});

test.each([
  ["visits@mail.localhost", "visits"],
  ["Visits@MAIL.Localhost", "visits"],
  ["visits+tag@mail.localhost", "visits"],
  ["visits@elsewhere.example", null],
  ["visits@mail.localhost.example", null],
  ["@mail.localhost", null],
  ["visits", null],
  ["a@b@mail.localhost", "a@b"],
])("%s is the inbox of %s", (address, slug) => {
  expect(slugOf(address, "mail.localhost")).toBe(slug);
});
