import { createHash } from "node:crypto";

/** A name of more is refused by common file systems at 255 bytes; temporary suffixes and other systems' lower bounds have room below. */
const maxPlainLength = 200;
const keptOfLongNames = 100;
const suffix = "=";

/**
 * The file name of an object key: one safe name for any key, on any file system. Lowercase letters, digits, `-` and `_` stand for themselves, every other byte is
 * `%xx`: so case does not matter, Unicode is not normalised, nothing is a path, a hidden file or a reserved name. A name over 200 characters keeps its first
 * 100 and goes on with a digest; the object's footer holds the key.
 */
export function fileNameOf(key: Buffer): string {
  const plain = escapeBytes(key);
  if (plain.length <= maxPlainLength) return plain + suffix;
  return `${plain.slice(0, keptOfLongNames)}~${createHash("sha256").update(key).digest("hex")}${suffix}`;
}

/** The key of a file name; `{ startsWith }` when the name was too long to hold it; null for a file that is no object. */
export function keyOfFileName(name: string): { key: Buffer } | { startsWith: Buffer } | null {
  if (!name.endsWith(suffix)) return null;
  const [plain = "", digest] = name.slice(0, -suffix.length).split("~");
  if (digest === undefined) return { key: unescapeBytes(plain) };
  return { startsWith: unescapeBytes(plain.replace(/%.?$/, "")) };
}

function escapeBytes(bytes: Buffer): string {
  return bytes.toString("latin1").replace(/[^a-z0-9_-]/g, (char) => `%${char.charCodeAt(0).toString(16).padStart(2, "0")}`);
}

function unescapeBytes(text: string): Buffer {
  return Buffer.from(
    text.replace(/%([0-9a-f]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16))),
    "latin1",
  );
}
