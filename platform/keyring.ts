import { createCipheriv, createDecipheriv, createHash, randomBytes } from "node:crypto";

/** Seals values at rest (AES-256-GCM) under the deployment's keys. The first key seals; every key opens, so keys rotate without a stop. */
export interface Keyring {
  /** Seals a text. `context` (what the value is and whose) is authenticated: a sealed value moved to another row does not open. */
  seal(plaintext: string, context: string): Buffer;
  /** Opens what `seal` made. Throws when no key of the ring fits or the value was moved or changed. */
  open(sealed: Buffer, context: string): string;
  /** Whether a value was sealed by another key than the first, so that a rotation knows what to seal anew. */
  isStale(sealed: Buffer): boolean;
}

const formatVersion = 1;
const keyIdBytes = 4;
const nonceBytes = 12;
const tagBytes = 16;
const headerBytes = 1 + keyIdBytes + nonceBytes;

/** Makes a keyring of 32-byte keys, newest first. Layout of a sealed value: version 1 byte, key id 4, nonce 12, tag 16, ciphertext. */
export function createKeyring(keys: readonly Buffer[]): Keyring {
  const ring = keys.map((key) => {
    if (key.length !== 32)
      throw new Error(`a deployment key must be 32 bytes, this one has ${key.length}: make one with \`openssl rand -base64 32\``);
    return { key, id: createHash("sha256").update("key-id").update(key).digest().subarray(0, keyIdBytes) };
  });
  const [current] = ring;
  if (!current) throw new Error("no deployment key: set KAPSTONE_KEYS to at least one base64 key of 32 bytes");
  return {
    seal(plaintext, context) {
      const nonce = randomBytes(nonceBytes);
      const cipher = createCipheriv("aes-256-gcm", current.key, nonce).setAAD(Buffer.from(context));
      const body = Buffer.concat([cipher.update(plaintext, "utf8"), cipher.final()]);
      return Buffer.concat([Buffer.of(formatVersion), current.id, nonce, cipher.getAuthTag(), body]);
    },
    open(sealed, context) {
      if (sealed[0] !== formatVersion || sealed.length < headerBytes + tagBytes)
        throw new Error(`the sealed value of ${context} has an unknown form`);
      const id = sealed.subarray(1, 1 + keyIdBytes);
      const entry = ring.find((candidate) => candidate.id.equals(id));
      if (!entry)
        throw new Error(`no deployment key opens the sealed value of ${context}: put the key it was sealed with back into KAPSTONE_KEYS`);
      const decipher = createDecipheriv("aes-256-gcm", entry.key, sealed.subarray(1 + keyIdBytes, headerBytes), { authTagLength: tagBytes })
        .setAAD(Buffer.from(context))
        .setAuthTag(sealed.subarray(headerBytes, headerBytes + tagBytes));
      return decipher.update(sealed.subarray(headerBytes + tagBytes), undefined, "utf8") + decipher.final("utf8");
    },
    isStale(sealed) {
      return !current.id.equals(sealed.subarray(1, 1 + keyIdBytes));
    },
  };
}
