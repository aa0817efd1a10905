import fc from "fast-check";
import { expect, test } from "vitest";
import { digestSecret, mintSecret, parseSecret, secretPattern, secretPrefixes } from "./secrets.ts";

test("every kind of secret is read back with its prefix and digest, and matches its published pattern", () => {
  for (const prefix of secretPrefixes) {
    const { secret, digest, keyPrefix } = mintSecret(prefix);
    expect(parseSecret(secret)).toEqual({ prefix, digest });
    expect(digest).toEqual(digestSecret(secret));
    expect(keyPrefix).toBe(secret.slice(0, prefix.length + 6));
    expect(new RegExp(secretPattern(prefix)).test(`token=${secret};`)).toBe(true);
  }
});

test("one changed, dropped or doubled character is refused before any look-up", () => {
  const { secret } = mintSecret("sk_live_");
  fc.assert(
    fc.property(fc.integer({ min: 8, max: secret.length - 1 }), fc.constantFrom(..."0aZ-"), (at, char) => {
      const changed = secret.slice(0, at) + char + secret.slice(at + 1);
      fc.pre(changed !== secret);
      expect(parseSecret(changed)).toBeNull();
      expect(parseSecret(secret.slice(0, at))).toBeNull();
      expect(parseSecret(secret.slice(0, at) + secret.slice(at - 1))).toBeNull();
    }),
  );
});

test("a secret of one kind is not one of another", () => {
  const { secret } = mintSecret("sk_live_");
  expect(parseSecret(secret.replace("sk_live_", "sk_test_"))).toBeNull();
});
