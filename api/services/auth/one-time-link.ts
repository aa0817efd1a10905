import { createHash, randomBytes } from "node:crypto";

/** A token for a mailed link: 32 random bytes, of which only the SHA-256 digest is stored. */
export function mintLinkToken(): { token: string; digest: Buffer } {
  const token = randomBytes(32).toString("base64url");
  return { token, digest: digestLinkToken(token) };
}

export function digestLinkToken(token: string): Buffer {
  return createHash("sha256").update(token).digest();
}
