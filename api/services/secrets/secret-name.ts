import { invalid, Refusal } from "../../http/refusal.ts";

const form = /^[A-Z][A-Z0-9_]{0,127}$/;
const reservedNames: ReadonlySet<string> = new Set(["PATH", "HOME", "USER", "SHELL", "PWD", "LANG", "TMPDIR", "TZ"]);
const reservedPrefixes = ["LD_", "LC_", "DENO_", "NODE_", "NPM_", "KAP_", "KAPSTONE_"];

/**
 * Refuses a text that cannot name a secret: an uppercase ASCII environment identifier, a letter first, at most 128 bytes; names of the
 * runtime are 422 `RESERVED_SECRET_NAME` (spec 3 §4 B, decided §7.3).
 */
export function checkSecretName(name: string): void {
  if (!form.test(name)) {
    throw invalid({
      path: "name",
      message: `${JSON.stringify(name.slice(0, 200))} cannot name a secret: use uppercase letters, digits and _, a letter first, at most 128 bytes`,
    });
  }
  const prefix = reservedPrefixes.find((candidate) => name.startsWith(candidate));
  if (!reservedNames.has(name) && prefix === undefined) return;
  throw new Refusal(
    422,
    "RESERVED_SECRET_NAME",
    `${name} is reserved for the runtime${prefix === undefined ? "" : ` (names starting ${prefix} are)`}: choose another name`,
    { details: [{ path: "name", message: "is reserved" }] },
  );
}
