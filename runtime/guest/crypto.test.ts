import { describe, expect, test } from "vitest";
import { createHostOps } from "../host-ops.ts";
import { conformance } from "./testing-cases.ts";

const make = (algorithm: string, usages: string) => `const made = await crypto.subtle.generateKey(${algorithm}, true, ${usages});`;
const data = "const data = new TextEncoder().encode('the data');";

describe("crypto.subtle", () => {
  conformance({
    ...Object.fromEntries(
      ["SHA-1", "SHA-256", "SHA-384", "SHA-512"].map((name) => [
        `digest ${name}`,
        `${data} return [...new Uint8Array(await crypto.subtle.digest("${name}", data))];`,
      ]),
    ),
    "HMAC of an imported key": `${data} const k = await crypto.subtle.importKey("raw", new Uint8Array([1, 2, 3]), { name: "HMAC", hash: "SHA-256" }, false, ["sign", "verify"]); const s = await crypto.subtle.sign("HMAC", k, data); return [[...new Uint8Array(s)], await crypto.subtle.verify("HMAC", k, s, data), await crypto.subtle.verify("HMAC", k, new Uint8Array(32), data)];`,
    ...Object.fromEntries(
      ["AES-GCM", "AES-CBC", "AES-CTR"].map((name) => [
        `${name} there and back`,
        `${data} ${make(`{ name: "${name}", length: 256 }`, '["encrypt", "decrypt"]')} const p = { name: "${name}", iv: new Uint8Array(16), counter: new Uint8Array(16), length: 64 }; const c = await crypto.subtle.encrypt(p, made, data); return [new TextDecoder().decode(await crypto.subtle.decrypt(p, made, c)), c.byteLength, await caught(() => crypto.subtle.decrypt({ ...p, iv: new Uint8Array(3), counter: new Uint8Array(3) }, made, c))];`,
      ]),
    ),
    "a wrong tag is an OperationError": `${make('{ name: "AES-GCM", length: 128 }', '["encrypt", "decrypt"]')} return caught(() => crypto.subtle.decrypt({ name: "AES-GCM", iv: new Uint8Array(12) }, made, new Uint8Array(32)));`,
    "additional data": `${data} ${make('{ name: "AES-GCM", length: 128 }', '["encrypt", "decrypt"]')} const p = { name: "AES-GCM", iv: new Uint8Array(12), additionalData: new Uint8Array([9]), tagLength: 96 }; return (await crypto.subtle.encrypt(p, made, data)).byteLength;`,
    "RSA signs": `${data} ${make('{ name: "RSASSA-PKCS1-v1_5", modulusLength: 2048, publicExponent: new Uint8Array([1, 0, 1]), hash: "SHA-256" }', '["sign", "verify"]')} const s = await crypto.subtle.sign("RSASSA-PKCS1-v1_5", made.privateKey, data); const a = made.publicKey.algorithm; return [s.byteLength, await crypto.subtle.verify("RSASSA-PKCS1-v1_5", made.publicKey, s, data), a.name, a.modulusLength, [...a.publicExponent], a.hash.name, made.publicKey.usages, made.privateKey.usages];`,
    "RSA-OAEP encrypts": `${data} ${make('{ name: "RSA-OAEP", modulusLength: 2048, publicExponent: new Uint8Array([1, 0, 1]), hash: "SHA-256" }', '["encrypt", "decrypt"]')} const c = await crypto.subtle.encrypt("RSA-OAEP", made.publicKey, data); return new TextDecoder().decode(await crypto.subtle.decrypt("RSA-OAEP", made.privateKey, c));`,
    "ECDSA signs": `${data} ${make('{ name: "ECDSA", namedCurve: "P-256" }', '["sign", "verify"]')} const p = { name: "ECDSA", hash: "SHA-256" }; const s = await crypto.subtle.sign(p, made.privateKey, data); return [s.byteLength, await crypto.subtle.verify(p, made.publicKey, s, data)];`,
    "Ed25519 signs": `${data} ${make('"Ed25519"', '["sign", "verify"]')} const s = await crypto.subtle.sign("Ed25519", made.privateKey, data); return [s.byteLength, await crypto.subtle.verify("Ed25519", made.publicKey, s, data)];`,
    "ECDH agrees": `const a = await crypto.subtle.generateKey({ name: "ECDH", namedCurve: "P-256" }, false, ["deriveBits", "deriveKey"]); const b = await crypto.subtle.generateKey({ name: "ECDH", namedCurve: "P-256" }, false, ["deriveBits"]); const x = await crypto.subtle.deriveBits({ name: "ECDH", public: b.publicKey }, a.privateKey, 256); const y = await crypto.subtle.deriveBits({ name: "ECDH", public: a.publicKey }, b.privateKey, 256); const k = await crypto.subtle.deriveKey({ name: "ECDH", public: b.publicKey }, a.privateKey, { name: "AES-GCM", length: 256 }, true, ["encrypt"]); return [String(new Uint8Array(x)) === String(new Uint8Array(y)), k.algorithm.length];`,
    "PBKDF2 and HKDF": `${data} const p = await crypto.subtle.importKey("raw", data, "PBKDF2", false, ["deriveBits"]); const h = await crypto.subtle.importKey("raw", data, "HKDF", false, ["deriveBits"]); return [[...new Uint8Array(await crypto.subtle.deriveBits({ name: "PBKDF2", salt: new Uint8Array(8), iterations: 1000, hash: "SHA-256" }, p, 128))], [...new Uint8Array(await crypto.subtle.deriveBits({ name: "HKDF", salt: new Uint8Array(8), info: new Uint8Array(1), hash: "SHA-512" }, h, 128))]];`,
    "export and import": `${make('{ name: "ECDSA", namedCurve: "P-256" }', '["sign", "verify"]')} const out = []; for (const f of ["spki", "raw", "jwk"]) { const e = await crypto.subtle.exportKey(f, made.publicKey); const i = await crypto.subtle.importKey(f, e, { name: "ECDSA", namedCurve: "P-256" }, true, ["verify"]); out.push(i.type, i.extractable, i.algorithm); } const p = await crypto.subtle.exportKey("pkcs8", made.privateKey); out.push((await crypto.subtle.importKey("pkcs8", p, { name: "ECDSA", namedCurve: "P-256" }, false, ["sign"])).type); const j = await crypto.subtle.exportKey("jwk", made.privateKey); out.push(j.kty, j.crv, j.ext, j.key_ops); return out;`,
    "JWK of an HMAC key": `const k = await crypto.subtle.importKey("jwk", { kty: "oct", k: "AQID", alg: "HS256", ext: true }, { name: "HMAC", hash: "SHA-256" }, true, ["sign"]); return [k.algorithm, await crypto.subtle.exportKey("jwk", k)];`,
    "wrap and unwrap": `const w = await crypto.subtle.generateKey({ name: "AES-KW", length: 256 }, true, ["wrapKey", "unwrapKey"]); const k = await crypto.subtle.generateKey({ name: "AES-GCM", length: 256 }, true, ["encrypt"]); const x = await crypto.subtle.wrapKey("raw", k, w, "AES-KW"); const u = await crypto.subtle.unwrapKey("raw", x, w, "AES-KW", "AES-GCM", true, ["encrypt"]); return [x.byteLength, String(new Uint8Array(await crypto.subtle.exportKey("raw", u))) === String(new Uint8Array(await crypto.subtle.exportKey("raw", k)))];`,
    "a key that is not extractable stays in": `const k = await crypto.subtle.generateKey({ name: "AES-GCM", length: 256 }, false, ["encrypt"]); return [k.extractable, await caught(() => crypto.subtle.exportKey("raw", k)), Object.keys(k), JSON.stringify(k)];`,
    "usages hold": `const k = await crypto.subtle.generateKey({ name: "HMAC", hash: "SHA-256" }, false, ["sign"]); return caught(() => crypto.subtle.verify("HMAC", k, new Uint8Array(32), new Uint8Array(1)));`,
    "wrong arguments": `return [await caught(() => crypto.subtle.digest("SHA-256", "text")), await caught(() => crypto.subtle.digest({}, new Uint8Array())), await caught(() => crypto.subtle.sign("HMAC", {}, new Uint8Array())), await caught(() => crypto.subtle.importKey("raw", new Uint8Array(5), "AES-GCM", true, ["encrypt"]))];`,
    "unknown algorithms are not supported": `return [await caught(() => crypto.subtle.digest("MD5", new Uint8Array())), await caught(() => crypto.subtle.generateKey("nope", true, []))];`,
    "what would cost too much is refused": [
      `const k = await crypto.subtle.importKey("raw", new Uint8Array(1), "PBKDF2", false, ["deriveBits"]); return [await caught(() => crypto.subtle.deriveBits({ name: "PBKDF2", salt: new Uint8Array(1), iterations: 1e9, hash: "SHA-256" }, k, 128)), await caught(() => crypto.subtle.generateKey({ name: "RSA-PSS", modulusLength: 16384, publicExponent: new Uint8Array([1, 0, 1]), hash: "SHA-256" }, true, ["sign"])), await caught(() => crypto.subtle.generateKey({ name: "Argon2id" }, true, ["sign"]))];`,
      ["NotSupportedError", "NotSupportedError", "NotSupportedError"],
    ],
    "more calls at once than a run may have": [
      `const all = await Promise.allSettled(Array.from({ length: 100 }, () => crypto.subtle.digest("SHA-256", new Uint8Array(10)))); return [all.filter((r) => r.status === "fulfilled").length >= 64, all.find((r) => r.status === "rejected").reason.name];`,
      [true, "OperationError"],
    ],
  });
});

describe("crypto", () => {
  conformance({
    "getRandomValues fills and gives back": `const a = new Uint32Array(8); const b = crypto.getRandomValues(a); return [a === b, a.some((x) => x > 0), new Set(crypto.getRandomValues(new Uint8Array(60000))).size > 200];`,
    "getRandomValues refuses": `return [await caught(() => crypto.getRandomValues(new Float32Array(1))), await caught(() => crypto.getRandomValues(new Uint8Array(65537))), await caught(() => crypto.getRandomValues([]))];`,
    randomUUID: `const u = crypto.randomUUID(); return [/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(u), u === crypto.randomUUID(), new Set(Array.from({ length: 500 }, () => crypto.randomUUID())).size];`,
    "illegal constructors": `return [await caught(() => new Crypto()), await caught(() => new SubtleCrypto()), await caught(() => new CryptoKey())];`,
    names: `return [Object.prototype.toString.call(crypto), Object.prototype.toString.call(crypto.subtle), crypto.subtle === crypto.subtle];`,
  });
});

describe("host crypto", () => {
  test("a handle outlives the cache of open keys, and a forged one opens nothing", async () => {
    const ops = createHostOps();
    const makeKey = async () => {
      const input = { format: "raw", algorithm: { name: "HMAC", hash: "SHA-256" }, extractable: false, usages: ["sign"] };
      const { text } = await ops.call(1, "crypto.importKey", JSON.stringify(input), new Uint8Array([1, 2, 3]).buffer);
      return (JSON.parse(text as string) as { handle: string }).handle;
    };
    const sign = async (key: string) => {
      const { bytes } = await ops.call(1, "crypto.sign", JSON.stringify({ algorithm: { name: "HMAC" }, key }), new Uint8Array([5]).buffer);
      return Buffer.from(bytes as ArrayBuffer).toString("hex");
    };
    const handle = await makeKey();
    const before = await sign(handle);
    for (let count = 0; count < 300; count++) await makeKey();
    expect(await sign(handle)).toBe(before);
    expect(handle).not.toContain(Buffer.from([1, 2, 3]).toString("base64url"));
    const forged = `${handle.slice(0, -4)}AAAA`;
    await expect(sign(forged)).rejects.toThrow();
    await expect(ops.call(1, "crypto.exportKey", JSON.stringify({ format: "raw", key: handle }), undefined)).rejects.toThrow(/extractable/);
  });

  test("parameters are bounded before they are read", async () => {
    const ops = createHostOps();
    await expect(ops.call(1, "crypto.digest", `[${"[],".repeat(100_000)}[]]`, undefined)).rejects.toThrow(/too large/);
    const key = { format: "raw", algorithm: { name: "PBKDF2" }, extractable: false, usages: ["deriveBits"] };
    const { text } = await ops.call(1, "crypto.importKey", JSON.stringify(key), new ArrayBuffer(8));
    const { handle } = JSON.parse(text as string) as { handle: string };
    const algorithm = { name: "PBKDF2", hash: "SHA-256", iterations: 1_900_000, salt: { $bytes: "AA==" } };
    await expect(
      ops.call(1, "crypto.deriveBits", JSON.stringify({ algorithm, key: handle, length: 1_000_000 }), undefined),
    ).rejects.toThrow(/too much/);
    await expect(ops.call(1, "crypto.importKey", JSON.stringify(key), new ArrayBuffer(100_000))).rejects.toThrow(/at most/);
  });

  test("what a run leaves of compression is dropped with it", async () => {
    const ops = createHostOps();
    await ops.call(7, "compress.new", JSON.stringify({ id: 1, format: "gzip", direction: "compress" }), undefined);
    ops.forget(7);
    await expect(ops.call(7, "compress.write", JSON.stringify({ id: 1 }), new ArrayBuffer(1))).rejects.toThrow(/closed/);
  });

  test("a run holds a bounded number of compression streams", async () => {
    const ops = createHostOps();
    const open = (id: number) => ops.call(7, "compress.new", JSON.stringify({ id, format: "gzip", direction: "decompress" }), undefined);
    for (let id = 0; id < 32; id++) await open(id);
    await expect(open(99)).rejects.toThrow(RangeError);
    ops.forget(7);
    await expect(open(100)).resolves.toEqual({});
    ops.forget(7);
  });

  test("synchronous operations answer errors as data and never throw", () => {
    const ops = createHostOps();
    expect(ops.sync("nope", "", undefined)).toMatch(/^!\{"name":"TypeError"/);
    expect(ops.sync("url.set", "not json", undefined)).toMatch(/^!/);
    expect(ops.sync("constructor", "", undefined)).toMatch(/^!/);
    expect(ops.sync("url.parse", JSON.stringify(["x".repeat(2_000_000)]), undefined)).toBe("=");
  });
});
