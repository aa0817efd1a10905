import { createHmac, timingSafeEqual } from "node:crypto";
import { Refusal } from "../http/refusal.ts";

/** Seconds by which the timestamp of a signed request may differ from the service clock (spec 3 §8). */
export const signatureSkewSeconds = 300;

/** A parsed `X-Kaps-Signature: t=<unix seconds>,v1=<lowercase hex HMAC-SHA256>`. */
export interface Signature {
  timestamp: number;
  timestampText: string;
  mac: Buffer;
}

const form = /^t=(\d{1,12}),v1=([0-9a-f]{64})$/;

/** Reads the header; 401 when it has another form or its time is out of the window. */
export function readSignature(header: string, nowMs: number): Signature {
  const match = form.exec(header.trim());
  if (!match) throw new Refusal(401, "INVALID_SIGNATURE", "X-Kaps-Signature must be t=<unix seconds>,v1=<64 lowercase hex digits>");
  const timestampText = match[1] as string;
  const timestamp = Number(timestampText);
  if (Math.abs(nowMs / 1000 - timestamp) > signatureSkewSeconds) {
    throw new Refusal(
      401,
      "STALE_SIGNATURE",
      `the signature's time is more than ${signatureSkewSeconds} seconds from the service clock: sign again with the current time`,
    );
  }
  return { timestamp, timestampText, mac: Buffer.from(match[2] as string, "hex") };
}

/** The signed message: five parts joined by newlines, the last one the exact body bytes (spec 3 §5 B.5). The key is the secret's full text (decided §7.4). */
export function signRequest(secret: string, parts: { method: string; target: string; timestamp: string; body: Buffer }): Buffer {
  return createHmac("sha256", secret)
    .update(`kaps-endpoint-v1\n${parts.method}\n${parts.target}\n${parts.timestamp}\n`)
    .update(parts.body)
    .digest();
}

/** The index of the secret that made a signature, or -1. Every secret is tried, in constant time each, whichever fits. */
export function matchingSecret(
  secrets: readonly string[],
  signature: Signature,
  parts: { method: string; target: string; body: Buffer },
): number {
  let found = -1;
  secrets.forEach((secret, index) => {
    const expected = signRequest(secret, { ...parts, timestamp: signature.timestampText });
    if (timingSafeEqual(expected, signature.mac) && found === -1) found = index;
  });
  return found;
}
