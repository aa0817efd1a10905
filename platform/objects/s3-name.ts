import { createHash } from "node:crypto";

/*
 * Keys of ours and names in S3 differ, because S3-compatible servers that keep files refuse names that S3 takes: `a` beside `a/b`, `a//b`, a part over 255 bytes.
 * A name is the key with every byte that is not a letter, a digit or `-` written as two characters, closed by `!`. Where characters sort, so do the bytes they stand
 * for, and `!` sorts before them all: names have the order of keys. `versions/1/main.ts` is `versions.01.0main.-ts!`.
 */
const end = "!";
/** Sorted as ASCII sorts them. */
const digits = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";
/** First byte of a run of at most 64 escaped bytes → the character that leads their two-character form, which sorts between its plain neighbours. */
const leads: [from: number, to: number, lead: string][] = [
  [0x00, 0x2c, "'"],
  [0x2e, 0x2f, "."],
  [0x3a, 0x40, "="],
  [0x5b, 0x60, "_"],
  [0x7b, 0x7f, "{"],
  [0x80, 0xbf, "}"],
  [0xc0, 0xff, "~"],
];

/** Every 200 characters a `/`: a part of a name stays below 255 bytes. A closed part differs from a folder in `!`, so no name is a folder of another. */
const partLength = 200;
/** Longer names keep this much, and `"` and a digest in place of the rest: S3 takes 1,024 bytes. The object's metadata holds the key. */
const keptLength = 880;
const digestMark = '"';

const encoded = Array.from({ length: 256 }, (_, byte) => {
  const run = leads.find(([from, to]) => byte >= from && byte <= to);
  return run ? run[2] + digits.charAt(byte - run[0]) : String.fromCharCode(byte);
});
const decoded = new Map(encoded.map((text, byte) => [text, byte]));

/** The S3 name of a key. */
export function s3NameOf(key: Buffer): string {
  const text = encodeBytes(key);
  if (text.length <= keptLength) return inParts(text + end);
  return inParts(text.slice(0, keptLength) + digestMark + createHash("sha256").update(key).digest("base64url") + end);
}

/** The prefix in S3 that all keys with this prefix share. Of a very long prefix it is a shorter one. */
export function s3PrefixOf(prefix: Buffer): string {
  return inParts(encodeBytes(prefix).slice(0, keptLength));
}

/** The name after which (exclusive) all keys greater than `key` lie, and none that must not be missed. */
export function s3StartAfter(key: Buffer): string {
  return inParts(encodeBytes(key).slice(0, keptLength) + end);
}

/** The key of a name; `{ group }` for a digest: names of one group stand together and share their first 880 characters; null for a name that is not ours. */
export function keyOfS3Name(name: string): { key: Buffer } | { group: string } | null {
  if (!name.endsWith(end)) return null;
  const text = name.slice(0, -end.length).replaceAll("/", "");
  const at = text.indexOf(digestMark);
  if (at !== -1) return { group: text.slice(0, at) };
  const bytes = (text.match(/['.=_{}~].|./gs) ?? []).map((char) => decoded.get(char) ?? 0);
  return { key: Buffer.from(bytes) };
}

function encodeBytes(bytes: Buffer): string {
  let text = "";
  for (const byte of bytes) text += encoded[byte];
  return text;
}

function inParts(text: string): string {
  return (text.match(new RegExp(`.{1,${partLength}}`, "gs")) ?? []).join("/");
}
