import { createHash } from "node:crypto";
import { Secret, TOTP } from "otpauth";
import { expect, test } from "vitest";
import { newTotp, stepOfCode } from "./totp.ts";

/** RFC 6238 appendix B, SHA-1: the secret "12345678901234567890" and eight digits; ours are the last six of them (RFC 4226 §5.3). */
const rfcSecret = Secret.fromLatin1("12345678901234567890").base32;
const vectors: [number, string][] = [
  [59, "94287082"],
  [1_111_111_109, "07081804"],
  [1_111_111_111, "14050471"],
  [1_234_567_890, "89005924"],
  [2_000_000_000, "69279037"],
  [20_000_000_000, "65353130"],
];

test.each(vectors)("RFC 6238: at %i s the code %s is of this step", (seconds, code) => {
  expect(stepOfCode(rfcSecret, code.slice(2), seconds * 1_000)).toBe(Math.floor(seconds / 30));
});

test.each(vectors)("a code of %i s is good one step to either side, named by its own step, and no further", (seconds, code) => {
  const step = Math.floor(seconds / 30);
  const at = (steps: number) => stepOfCode(rfcSecret, code.slice(2), (step + steps) * 30_000 + 15_000);
  expect([at(-2), at(-1), at(0), at(1), at(2)]).toEqual([null, step, step, step, null]);
});

test.each([[""], ["28708"], ["2870822"], ["94287082"], ["abcdef"], ["287 0821"], ["２８７０８２"], ["287082\n"]])(
  "%j is no code",
  (text) => {
    expect(stepOfCode(rfcSecret, text, 59_000)).toBeNull();
  },
);

test("spaces are for people", () => {
  expect(stepOfCode(rfcSecret, "287 082", 59_000)).toBe(1);
});

test("a new secret has 160 random bits, and its address carries it to an authenticator", () => {
  const [one, two] = [newTotp("a@example.com"), newTotp("a@example.com")];
  expect(Secret.fromBase32(one.secret).bytes).toHaveLength(20);
  expect(one.secret).not.toBe(two.secret);
  const url = new URL(one.otpauth_url);
  expect([url.protocol, url.host, url.searchParams.get("secret"), url.searchParams.get("issuer")]).toEqual([
    "otpauth:",
    "totp",
    one.secret,
    "Kapstone",
  ]);
  expect(new TOTP({ secret: Secret.fromBase32(one.secret) }).generate({ timestamp: 0 })).toMatch(/^\d{6}$/);
  expect(createHash("sha256").update(one.qr_svg).digest("hex")).not.toBe(createHash("sha256").update(two.qr_svg).digest("hex"));
});
