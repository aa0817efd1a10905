import { availableParallelism } from "node:os";
import { expect, test } from "vitest";
import { isCommonPassword } from "./common-passwords.ts";
import { passwordProblems } from "./password.ts";
import { hashPassword, verifyPassword } from "./password-hash.ts";

const lax = { min_length: 8, uppercase: false, numbers: false, special: false };

test.each([
  "password",
  "PASSWORD",
  "12345678",
  "qwertyuiop",
  "iloveyou",
  "p@ssw0rd",
  "passwordpassword",
  "abcabcabcabcabc",
  "abcdefghijklmnop",
  "zyxwvutsrqponml",
  "0987654321098765",
  "Password2026!!!!",
  "sunshine1234567",
  "mnbvcxzlkjhgfdsa",
])("%s is common, dressed up as it may be", (password) => {
  expect(isCommonPassword(password)).toBe(true);
});

test.each([
  "a long walk over seven hills",
  "correct horse battery staple",
  "Xk4-quiet-otter-9",
  "dragonfly pond at dusk",
  "nineteen grey herons",
])("%s is not", (password) => {
  expect(isCommonPassword(password)).toBe(false);
});

test("each rule of a policy is told by itself; characters are counted, not code units", () => {
  const strict = { min_length: 12, uppercase: true, numbers: true, special: true };
  expect(passwordProblems("otter pond", strict)).toHaveLength(4); // a space is no special character
  expect(passwordProblems("Otter-pond-42", strict)).toEqual([]);
  expect(passwordProblems("🦦🐟🌊🪨🌿🐸🦆", lax)[0]).toMatch(/8 characters \(this has 7\)/);
  expect(passwordProblems("olga@example.com", lax, ["olga@example.com"])).toHaveLength(1);
  expect(passwordProblems("aaaaaaaabbbb", lax)).not.toEqual([]);
});

test("a hash is argon2id with a salt of its own, in the PHC format, and verifies its password only", async () => {
  const [one, two] = [await hashPassword("nineteen grey herons"), await hashPassword("nineteen grey herons")];
  expect(one).toMatch(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/);
  expect(one).not.toBe(two);
  expect(await verifyPassword("nineteen grey herons", one)).toBe(true);
  expect(await verifyPassword("nineteen grey heron", one)).toBe(false);
  expect(await verifyPassword("nineteen grey herons", null)).toBe(false);
});

test("a password typed in other code points is the same password", async () => {
  expect(await verifyPassword("cafe\u0301 au lait, twice", await hashPassword("caf\u00e9 au lait, twice"))).toBe(true);
});

test("hashes run off the event loop; past a hundred a thread the rest is refused at once with 503", async () => {
  const places = availableParallelism() > 2 ? 200 : 100;
  let turns = 0;
  const ticking = setInterval(() => turns++, 1);
  const settled = await Promise.allSettled(Array.from({ length: 210 }, () => verifyPassword("x", null)));
  clearInterval(ticking);
  const refused = settled.filter((result) => result.status === "rejected");
  expect(refused).toHaveLength(210 - places);
  expect(refused[0]?.reason).toMatchObject({ status: 503, options: { headers: { "retry-after": "5" } } });
  expect(turns).toBeGreaterThan(100);
}, 180_000);
