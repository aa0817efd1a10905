import { createHash, createHmac, pbkdf2, randomBytes } from "node:crypto";
import { promisify } from "node:util";

const iterations = 4_096; // PostgreSQL's own default; our passwords are 32 random bytes, so more would buy nothing

/**
 * The verifier PostgreSQL stores for a password (RFC 5802, `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`). Sent in place of
 * the password it keeps the password out of the server's log and statistics. ASCII passwords only (no SASLprep).
 */
export async function scramVerifier(password: string): Promise<string> {
  const salt = randomBytes(16);
  const salted = await promisify(pbkdf2)(password, salt, iterations, 32, "sha256");
  const keyed = (text: string): Buffer => createHmac("sha256", salted).update(text).digest();
  const storedKey = createHash("sha256").update(keyed("Client Key")).digest("base64");
  return `SCRAM-SHA-256$${iterations}:${salt.toString("base64")}$${storedKey}:${keyed("Server Key").toString("base64")}`;
}
