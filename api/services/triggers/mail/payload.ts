import { storableJson } from "../../runs/storable.ts";
import type { MailHead } from "./read-mail.ts";

/** Characters of each text of a mail that a run's payload keeps; the program is given all of it. */
const keptCharacters = 256 * 1024;
/** Shorter secrets are not redacted: replacing every "7" hides the mail, not a secret. */
const shortestSecret = 4;

/** What is kept of a mail for people to look at: its texts cut, exact values of the kap's secrets replaced (decided §7.3). */
export function payloadOf(head: MailHead, secrets: Record<string, string>): object {
  const redact = redactor(secrets);
  const cut = (text: string): string => (text.length > keptCharacters ? `${text.slice(0, keptCharacters)} … [cut]` : text);
  const kept = {
    ...head,
    subject: cut(head.subject),
    text: cut(head.text),
    html: cut(head.html),
    headers: head.headers.map(([name, value]) => [name, cut(value)]),
  };
  return storableJson(eachText(kept, redact)) as object;
}

function redactor(secrets: Record<string, string>): (text: string) => string {
  const values = Object.entries(secrets)
    .filter(([, value]) => value.length >= shortestSecret)
    .sort(([, a], [, b]) => b.length - a.length);
  return (text) => values.reduce((result, [name, value]) => result.replaceAll(value, `[secret ${name}]`), text);
}

function eachText(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === "string") return change(value);
  if (Array.isArray(value)) return value.map((item) => eachText(item, change));
  if (value !== null && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, eachText(item, change)]));
  return value;
}
