import { createPrivateKey, createPublicKey, type KeyObject, X509Certificate } from "node:crypto";

/**
 * The Ed25519 key that signs what runtimes are assigned, as settings carry it: PKCS#8 as base64 or PEM. Throws with words for the operator when it is
 * none; they never quote it.
 */
export function readClaimKey(text: string): KeyObject {
  return ed25519("KAPSTONE_CLAIM_KEY must be an Ed25519 private key: PKCS#8, as base64 or PEM", () =>
    isPem(text) ? createPrivateKey(text.trim()) : createPrivateKey({ key: Buffer.from(text, "base64"), format: "der", type: "pkcs8" }),
  );
}

/** Its public half, which every runtime has: SPKI as base64 or PEM, or a PEM certificate of the key (what Helm can make without a job). Throws likewise. */
export function readClaimPublicKey(text: string): KeyObject {
  return ed25519("KAPSTONE_CLAIM_PUBLIC_KEY must be an Ed25519 public key: SPKI, as base64 or PEM, or a PEM certificate", () => {
    if (text.includes("-----BEGIN CERTIFICATE-----")) return new X509Certificate(text).publicKey;
    return isPem(text) ? createPublicKey(text.trim()) : createPublicKey({ key: Buffer.from(text, "base64"), format: "der", type: "spki" });
  });
}

const isPem = (text: string): boolean => text.includes("-----BEGIN ");

function ed25519(message: string, read: () => KeyObject): KeyObject {
  let key: KeyObject;
  try {
    key = read();
  } catch (cause) {
    throw new Error(message, { cause });
  }
  if (key.asymmetricKeyType !== "ed25519") throw new Error(`${message} (this one is ${key.asymmetricKeyType ?? "symmetric"})`);
  return key;
}
