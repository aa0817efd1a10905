import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { MailIdentity } from "./identity.ts";
import { slugOf } from "./recipient.ts";

function keyOf(mail: string, options: { from?: string; chunkBytes?: number } = {}): string {
  const bytes = Buffer.from(mail, "latin1");
  const size = options.chunkBytes ?? bytes.length;
  const identity = new MailIdentity();
  for (let at = 0; at < bytes.length; at += size) identity.push(bytes.subarray(at, at + size));
  expect(identity.sizeBytes).toBe(bytes.length);
  return identity.key(options.from ?? "a@sender.example").toString("hex");
}

const mail = "Received: from x\r\nMessage-ID: <1@x>\r\nSubject: s\r\n\r\nbody\r\n";

describe("the same mail", () => {
  test.each([
    ["has passed another server", mail.replace("from x", "from y")],
    ["has its Message-ID folded and spelt otherwise", mail.replace("Message-ID: <1@x>", "message-id:\r\n <1@x>")],
    ["was signed again on the way", `DKIM-Signature: v=1; t=2\r\n${mail}`],
  ])("%s: one key", (_, other) => {
    expect(keyOf(other)).toBe(keyOf(mail));
  });

  test("comes in other pieces: one key", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: mail.length }), (chunkBytes) => {
        expect(keyOf(mail, { chunkBytes })).toBe(keyOf(mail));
      }),
      { numRuns: 40 },
    );
  });

  test("has no Message-ID: told apart by its other fields, but not by where it passed", () => {
    const none = mail.replace("Message-ID: <1@x>\r\n", "");
    expect(keyOf(none.replace("from x", "from y"))).toBe(keyOf(none));
    expect(keyOf(none.replace("Subject: s", "Subject: t"))).not.toBe(keyOf(none));
  });
});

test("another Message-ID, sender or body is another mail, in whatever case the sender is written", () => {
  const keys = [
    keyOf(mail),
    keyOf(mail.replace("<1@x>", "<2@x>")),
    keyOf(mail.replace("body", "Body")),
    keyOf(mail, { from: "b@sender.example" }),
    keyOf(mail, { from: "" }),
  ];
  expect(new Set(keys).size).toBe(5);
  expect(keyOf(mail, { from: "A@Sender.Example" })).toBe(keys[0]);
});

test("a head without an end is held to 1 MiB, and the rest still counts", () => {
  const long = `Message-ID: <1@x>\r\nX: ${"x".repeat(1_100_000)}`;
  expect(keyOf(`${long}1`, { chunkBytes: 65_536 })).not.toBe(keyOf(`${long}2`, { chunkBytes: 65_536 }));
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
