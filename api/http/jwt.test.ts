import { createHmac, createPrivateKey, generateKeyPairSync, type KeyObject, randomBytes, randomUUID, sign } from "node:crypto";
import { exportJWK, SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createKeyring, type Keyring } from "../../platform/keyring.ts";
import { createTestDatabase, type TestDatabase } from "../../test/harness/database.ts";
import { accessTokenSeconds, createJwt, type Jwt } from "./jwt.ts";

const issuer = "http://api.localhost:8080";
const minute = 60_000;
const claims = { sid: randomUUID(), sub: randomUUID(), org_id: randomUUID() };
let database: TestDatabase;
let keyring: Keyring;
let nowMs = Date.UTC(2026, 0, 1);
let jwt: Jwt;
beforeAll(async () => {
  database = await createTestDatabase();
  keyring = createKeyring([randomBytes(32)]);
  jwt = make();
});
afterAll(() => database.close());

const make = (): Jwt => createJwt({ postgres: database.postgres, keyring, issuer, clock: () => nowMs });
const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");
const headerOf = (token: string) =>
  JSON.parse(Buffer.from(token.split(".")[0] as string, "base64url").toString()) as Record<string, string>;
const payloadOf = (token: string) =>
  JSON.parse(Buffer.from(token.split(".")[1] as string, "base64url").toString()) as Record<string, unknown>;
const kidOf = (token: string) => headerOf(token).kid as string;

/** The platform's own private key, which an attacker has not: to make tokens that are right but for one thing. */
async function ownKey(): Promise<{ kid: string; key: KeyObject }> {
  const row = await database.postgres.knex("signing_keys").orderBy("signs_from").first();
  return { kid: row.kid, key: createPrivateKey(keyring.open(row.sealed_private_key, `signing-key:${row.kid}`)) };
}
async function signed(change: { header?: object; payload?: object } = {}): Promise<string> {
  await jwt.sign(claims);
  const { kid, key } = await ownKey();
  const now = Math.floor(nowMs / 1_000);
  const text = `${encode({ alg: "RS256", typ: "at+jwt", kid, ...change.header })}.${encode({ ...claims, iss: issuer, aud: issuer, iat: now, exp: now + 900, ...change.payload })}`;
  return `${text}.${sign("sha256", Buffer.from(text), key).toString("base64url")}`;
}

describe("tokens", () => {
  test("say who and where, for fifteen minutes, under a kid of the JWKS, RS256 (RFC 7519, RFC 9068)", async () => {
    const { token, expiresInSeconds } = await jwt.sign(claims, { email: "a@example.com" });
    expect(expiresInSeconds).toBe(900);
    expect(headerOf(token)).toEqual({ alg: "RS256", typ: "at+jwt", kid: (await jwt.jwks()).keys[0]?.kid });
    const iat = Math.floor(nowMs / 1_000);
    expect(payloadOf(token)).toMatchObject({
      ...claims,
      iss: issuer,
      aud: issuer,
      iat,
      exp: iat + accessTokenSeconds,
      email: "a@example.com",
    });
    expect(await jwt.verify(token)).toEqual({ ...claims, exp: iat + accessTokenSeconds });
    expect(await make().verify(token)).toEqual(await jwt.verify(token)); // another replica
  });

  test("end on their second, and never hold before they were made valid", async () => {
    const { token } = await jwt.sign(claims);
    const start = nowMs;
    nowMs = start + accessTokenSeconds * 1_000 - 1_000;
    expect(await jwt.verify(token)).not.toBeNull();
    nowMs = start + accessTokenSeconds * 1_000;
    expect(await jwt.verify(token)).toBeNull();
    nowMs = start;
    expect(await jwt.verify(await signed({ payload: { nbf: Math.floor(start / 1_000) + 60 } }))).toBeNull();
  });

  test("the JWKS holds public halves only", async () => {
    for (const key of (await jwt.jwks()).keys) expect(Object.keys(key).sort()).toEqual(["alg", "e", "kid", "kty", "n", "use"]);
  });
});

describe("what is refused (RFC 8725)", () => {
  test("the forge makes tokens that hold, so that each refusal below is for its own reason", async () => {
    expect(await jwt.verify(await signed())).toMatchObject(claims);
  });

  test.each([["none"], ["None"], ["NONE"], ["nOnE"]])("alg %s, with and without a signature", async (alg) => {
    const [, payload] = (await signed()).split(".");
    for (const tail of ["", "AAAA"])
      expect(await jwt.verify(`${encode({ alg, typ: "at+jwt", kid: (await ownKey()).kid })}.${payload}.${tail}`)).toBeNull();
  });

  test.each([["HS256"], ["HS384"], ["HS512"]])("%s keyed with the public key, in every form it is published in", async (alg) => {
    const { kid } = await ownKey();
    const { keys } = await jwt.jwks();
    const publicKey = createPrivateKey((await ownKey()).key.export({ format: "pem", type: "pkcs8" })) as KeyObject;
    const { createPublicKey } = await import("node:crypto");
    const forms = [
      createPublicKey(publicKey).export({ format: "pem", type: "spki" }),
      createPublicKey(publicKey).export({ format: "der", type: "spki" }),
      createPublicKey(publicKey).export({ format: "pem", type: "pkcs1" }),
      JSON.stringify(keys[0]),
      keys[0]?.n as string,
    ];
    const payload = (await signed()).split(".")[1];
    for (const secret of forms) {
      const text = `${encode({ alg, typ: "at+jwt", kid })}.${payload}`;
      const mac = createHmac(alg.replace("HS", "sha"), secret).update(text).digest("base64url");
      expect(await jwt.verify(`${text}.${mac}`)).toBeNull();
    }
  });

  test.each([["RS384"], ["RS512"], ["PS256"], ["ES256"], ["EdDSA"]])("another algorithm: %s", async (alg) => {
    expect(await jwt.verify(await signed({ header: { alg } }))).toBeNull();
  });

  test.each([["JWT"], ["jwt"], ["kap-assignment"], [""], [undefined]])("typ %j", async (typ) => {
    expect(await jwt.verify(await signed({ header: { typ } }))).toBeNull();
  });

  test.each([
    [undefined],
    [null],
    [""],
    ["../../../../dev/null"],
    ["' or 1=1 --"],
    ["00000000-0000-0000-0000-000000000000"],
    [{ toString: "x" }],
    [["a"]],
    ["__proto__"],
  ])("kid %j", async (kid) => {
    expect(await jwt.verify(await signed({ header: { kid } }))).toBeNull();
  });

  test("a key that the token brings along: jwk, jku, x5u, x5c", async () => {
    const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    const jwk = await exportJWK(publicKey);
    const own = (await ownKey()).kid;
    const forge = (header: object) =>
      new SignJWT({ ...claims })
        .setProtectedHeader({ alg: "RS256", typ: "at+jwt", ...header })
        .setIssuer(issuer)
        .setAudience(issuer)
        .setSubject(claims.sub)
        .setIssuedAt(Math.floor(nowMs / 1_000))
        .setExpirationTime(Math.floor(nowMs / 1_000) + 900)
        .sign(privateKey);
    for (const header of [
      { jwk },
      { jwk, kid: own },
      { kid: own },
      { jku: "http://127.0.0.1:1/jwks.json", kid: "theirs" },
      { x5u: "http://127.0.0.1:1/", kid: own },
      { x5c: ["AAAA"], kid: own },
    ]) {
      expect(await jwt.verify(await forge(header))).toBeNull();
    }
  });

  test.each([
    ["another issuer", { iss: "http://evil.example" }],
    ["no issuer", { iss: undefined }],
    ["another audience", { aud: "http://share.localhost:8080" }],
    ["no audience", { aud: undefined }],
    ["no end", { exp: undefined }],
    ["an end that is text", { exp: "9999999999" }],
    ["no time of issue", { iat: undefined }],
    ["no subject", { sub: undefined }],
    ["no session", { sid: undefined }],
    ["a session that is no text", { sid: 1 }],
    ["no organisation", { org_id: undefined }],
  ])("%s", async (_, payload) => {
    expect(await jwt.verify(await signed({ payload }))).toBeNull();
  });

  test("unknown critical headers, and an unencoded payload", async () => {
    expect(await jwt.verify(await signed({ header: { crit: ["x"], x: 1 } }))).toBeNull();
    expect(await jwt.verify(await signed({ header: { crit: ["b64"], b64: false } }))).toBeNull();
  });

  test("a payload, a header or a signature of another token; texts that are no token", async () => {
    const [header, , signature] = (await signed()).split(".");
    const [, other] = (await signed({ payload: { org_id: randomUUID() } })).split(".");
    const texts = [
      `${header}.${other}.${signature}`,
      `${header}.${other}.`,
      `${header}..${signature}`,
      `${header}.${other}`,
      "a.b.c",
      "..",
      "",
      `${header}.${other}.${signature}.x`,
      "[]",
    ];
    for (const text of texts) expect(await jwt.verify(text)).toBeNull();
  });

  test("a key of the deployment's that was sealed for another row does not sign", async () => {
    const { kid } = await ownKey();
    const row = await database.postgres.knex("signing_keys").where({ kid }).first();
    expect(() => keyring.open(row.sealed_private_key, "signing-key:other")).toThrow();
  });
});

describe("rotation", () => {
  test("a key is published an hour before it signs; tokens of the old one hold to their end; then it leaves", async () => {
    const rotation = 30 * 24 * 60 * minute;
    const { token: old } = await make().sign(claims);
    const first = kidOf(old);
    const kids = async () => (await jwt.jwks()).keys.map(({ kid }) => kid);
    expect(await kids()).toEqual([first]);
    const start = (await database.postgres.knex("signing_keys").where({ kid: first }).first()).signs_from.getTime() as number;
    nowMs = start + rotation - 61 * minute;
    expect(await kids()).toEqual([first]);
    nowMs = start + rotation - 60 * minute;
    const both = await kids();
    expect([both.length, both[1]]).toEqual([2, first]);
    const second = both[0];
    nowMs += 59 * minute;
    expect(kidOf((await jwt.sign(claims)).token)).toBe(first); // published, does not sign yet
    const { token: last } = await jwt.sign(claims);
    nowMs += minute;
    const { token: fresh } = await jwt.sign(claims);
    expect(kidOf(fresh)).toBe(second);
    nowMs += 13 * minute;
    for (const replica of [jwt, make()]) {
      expect(await replica.verify(last)).not.toBeNull();
      expect(await replica.verify(fresh)).not.toBeNull();
    }
    nowMs += 47 * minute;
    expect(await kids()).toEqual([second]);
  });

  test("replicas that start together on an empty database make one key", async () => {
    await database.postgres.knex("signing_keys").delete();
    const tokens = await Promise.all(Array.from({ length: 4 }, () => make().sign(claims)));
    expect(new Set(tokens.map(({ token }) => kidOf(token))).size).toBe(1);
  });
});
