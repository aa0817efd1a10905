import { createHash } from "node:crypto";

const kib = 1024;
/** Bytes of each image at most, before base64; both fit the service's body limit together. */
export const imageLimits = { logo: 128 * kib, background_image: 512 * kib } as const;

const signatures: readonly { type: string; matches: (bytes: Buffer) => boolean }[] = [
  { type: "image/png", matches: (bytes) => bytes.subarray(0, 8).equals(Buffer.from("89504e470d0a1a0a", "hex")) },
  { type: "image/jpeg", matches: (bytes) => bytes.subarray(0, 3).equals(Buffer.from("ffd8ff", "hex")) },
  { type: "image/gif", matches: (bytes) => /^GIF8[79]a/.test(bytes.toString("latin1", 0, 6)) },
  { type: "image/webp", matches: (bytes) => bytes.toString("latin1", 0, 4) === "RIFF" && bytes.toString("latin1", 8, 12) === "WEBP" },
];

/** The type of an image by its first bytes; null for anything that is none of PNG, JPEG, GIF and WebP. SVG is left out: it can carry script. */
export function imageTypeOf(bytes: Buffer): string | null {
  return signatures.find(({ matches }) => matches(bytes))?.type ?? null;
}

/** Makes the stored form of an image's bytes; a sentence says why not. */
export function storedImage(bytes: Buffer, limitBytes: number): { dataUrl: string } | { problem: string } {
  if (bytes.length > limitBytes) return { problem: `must be at most ${limitBytes / kib} KiB (this has ${Math.ceil(bytes.length / kib)})` };
  const type = imageTypeOf(bytes);
  if (type === null) return { problem: "must be a PNG, JPEG, GIF or WebP image, by its content" };
  return { dataUrl: `data:${type};base64,${bytes.toString("base64")}` };
}

/** What names an image for good: SHA-256 of its bytes, in hex. */
export function digestOfImage(bytes: Buffer): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** The bytes of a base64 data URL; null when it is none. The type it claims is not looked at. */
export function bytesOfDataUrl(text: string): Buffer | null {
  const match = /^data:[\w.+/-]*(?:;[\w=.-]+)*;base64,([A-Za-z0-9+/]*={0,2})$/.exec(text);
  return match ? Buffer.from(match[1] ?? "", "base64") : null;
}
