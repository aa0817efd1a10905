import fc from "fast-check";
import { expect, test } from "vitest";
import { reservedSlugs, slugPattern } from "../../http/hosts.ts";
import { isAllowedSlug, slugOf, suffixedSlug } from "./slug.ts";

test.each([
  ["Order Desk", "order-desk"],
  ["  Über-Größe!! ", "uber-gro-e"],
  ["7 zwerge", "kap-7-zwerge"],
  ["a", "a-kap"],
  ["日本", "kap"],
  ["---", "kap"],
  ["a--b__c", "a-b-c"],
  [`${"x".repeat(62)} y`, "x".repeat(62)],
])("the name %j asks for %s", (name, slug) => {
  expect(slugOf(name)).toBe(slug);
});

test("every name gets a slug of the right form, and so does its suffixed form, which is another each time and never reserved", () => {
  fc.assert(
    fc.property(
      fc.oneof(fc.string({ unit: "binary", maxLength: 200 }), fc.string({ maxLength: 200 }), fc.constantFrom(...reservedSlugs)),
      (name) => {
        const slug = slugOf(name);
        expect(slug).toMatch(slugPattern);
        const [one, other] = [suffixedSlug(slug), suffixedSlug(slug)];
        expect(one).toMatch(slugPattern);
        expect(isAllowedSlug(one)).toBe(true);
        expect(one).not.toBe(other);
        expect(slugOf(slug)).toBe(slug);
      },
    ),
  );
});

test("what the platform uses itself is no kap's slug", () => {
  for (const slug of ["api", "share", "kaps", "mail", "www", "admin"]) expect(isAllowedSlug(slug)).toBe(false);
});
