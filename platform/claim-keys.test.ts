import { createPublicKey, generateKeyPairSync, type KeyObject, sign, verify } from "node:crypto";
import { expect, test } from "vitest";
import { readClaimKey, readClaimPublicKey } from "./claim-keys.ts";

const pair = generateKeyPairSync("ed25519");
const text = Buffer.from("an assignment");
const fits = (privateKey: KeyObject, publicKey: KeyObject): boolean => verify(null, text, publicKey, sign(null, text, privateKey));

/** What Helm's genSelfSignedCertWithKey makes of its genPrivateKey "ed25519": the form in which a chart has the public half. */
const helmCertificate = `-----BEGIN CERTIFICATE-----
MIIBJDCB16ADAgECAhAKjmq5gDva7U07wl8FQl9IMAUGAytlcDATMREwDwYDVQQD
EwhrYXBzdG9uZTAgFw0yNjExMjExNjMzMzZaGA8yMTI2MTAyODE2MzMzNlowEzER
MA8GA1UEAxMIa2Fwc3RvbmUwKjAFBgMrZXADIQDFkiiPEA9gaBpQu1HNhs4NJaZY
DNpctHDbICbO/D2/eKM/MD0wDgYDVR0PAQH/BAQDAgWgMB0GA1UdJQQWMBQGCCsG
AQUFBwMBBggrBgEFBQcDAjAMBgNVHRMBAf8EAjAAMAUGAytlcANBAD1iX6/VjSrr
x708/fwv+CSA1lTpvgge6uHBu8uVzgQ9bHQtdGScmDe7U2JRr3yyCLokJnVFgO2T
w8v8Rl5HGQE=
-----END CERTIFICATE-----
`;

test("a claim key is read as base64 of PKCS#8 and as PEM", () => {
  const der = pair.privateKey.export({ format: "der", type: "pkcs8" }).toString("base64");
  const pem = pair.privateKey.export({ format: "pem", type: "pkcs8" }).toString();
  for (const form of [der, pem, `  ${pem}`]) expect(fits(readClaimKey(form), pair.publicKey)).toBe(true);
});

test("its public half is read as base64 of SPKI, as PEM and from a certificate", () => {
  const der = pair.publicKey.export({ format: "der", type: "spki" }).toString("base64");
  const pem = pair.publicKey.export({ format: "pem", type: "spki" }).toString();
  for (const form of [der, pem]) expect(fits(pair.privateKey, readClaimPublicKey(form))).toBe(true);
  const read = readClaimPublicKey(helmCertificate).export({ format: "der", type: "spki" }).toString("base64");
  expect(read).toBe("MCowBQYDK2VwAyEAxZIojxAPYGgaULtRzYbODSWmWAzaXLRw2yAmzvw9v3g=");
});

test("what is no Ed25519 key is refused in words that name the setting and do not quote it", () => {
  const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const pem = rsa.privateKey.export({ format: "pem", type: "pkcs8" }).toString();
  expect(() => readClaimKey(pem)).toThrow(/KAPSTONE_CLAIM_KEY must be an Ed25519 private key.*rsa/);
  expect(() => readClaimKey("c2VjcmV0")).toThrow(/^KAPSTONE_CLAIM_KEY must be an Ed25519 private key: PKCS#8, as base64 or PEM$/);
  expect(() => readClaimPublicKey(createPublicKey(pem).export({ format: "pem", type: "spki" }).toString())).toThrow(
    /KAPSTONE_CLAIM_PUBLIC_KEY/,
  );
  expect(() => readClaimPublicKey("")).toThrow(/KAPSTONE_CLAIM_PUBLIC_KEY/);
});
