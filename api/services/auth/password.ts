import { invalid } from "../../http/refusal.ts";
import { isCommonPassword } from "./common-passwords.ts";
import type { PasswordPolicy } from "./sign-in-policy.ts";

/** What a new password lacks, as sentences; empty when it may be used. `related` are texts an attacker would try first: email, name, organisation. */
export function passwordProblems(password: string, policy: PasswordPolicy, related: readonly string[] = []): string[] {
  const text = password.normalize("NFKC");
  const length = [...text].length;
  const folded = text.toLowerCase();
  const isRelated = related.some(
    (word) => word.length >= 4 && (folded === word.toLowerCase() || folded === `${word.toLowerCase()}`.repeat(2)),
  );
  const problems: [boolean, string][] = [
    [length < policy.min_length, `must have at least ${policy.min_length} characters (this has ${length})`],
    [policy.uppercase && !/\p{Lu}/u.test(text), "must contain an uppercase letter"],
    [policy.numbers && !/\p{Nd}/u.test(text), "must contain a number"],
    [policy.special && !/[^\p{L}\p{N}\s]/u.test(text), "must contain a special character"],
    [new Set(text).size < 5, "must have at least 5 different characters"],
    [isRelated, "must not be your email, name or organisation"],
    [isCommonPassword(text), "is on the list of common and breached passwords: choose another"],
  ];
  return problems.filter(([isBroken]) => isBroken).map(([, message]) => message);
}

/** Refuses a password the policy does not allow: 422, a line per rule broken. */
export function checkNewPassword(password: string, policy: PasswordPolicy, path: string, related: readonly string[] = []): void {
  const problems = passwordProblems(password, policy, related);
  if (problems.length > 0) throw invalid(...problems.map((message) => ({ path, message })));
}
