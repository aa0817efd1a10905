/**
 * WebCrypto for the guest. Keys never lie inside the isolate: it holds a handle, the key sealed (AES-256-GCM) under a secret of this process.
 * So nothing has to be kept for a key, however long a program holds it, and none can be read or forged in the isolate; a small cache spares
 * the unsealing of keys in use.
 */
import {
  createCipheriv,
  createDecipheriv,
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  KeyObject,
  randomBytes,
  webcrypto,
} from "node:crypto";
import type { OpAnswer } from "./op-answer.ts";

const { subtle } = webcrypto;

/** The algorithms a program may name. Newer ones of Node are left out until their cost is bounded. */
const algorithms = new Set(
  [
    ...["SHA-1", "SHA-256", "SHA-384", "SHA-512", "HMAC", "HKDF", "PBKDF2"],
    ...["AES-CTR", "AES-CBC", "AES-GCM", "AES-KW"],
    ...["RSASSA-PKCS1-v1_5", "RSA-PSS", "RSA-OAEP", "ECDSA", "ECDH", "Ed25519", "X25519"],
  ].map((name) => name.toLowerCase()),
);

/** A thread of the pool works on these unaccounted, so they are bounded: about a second each on a slow core. */
const maxIterations = 2_000_000;
const maxKeyBytes = 65_536;
const maxModulusLength = 4096;
const maxDerivedBits = 1_048_576;
const maxHmacBits = 65_536;
const keyCacheSize = 256;

/** How binary values and keys are written inside the JSON of a call. */
type Wire = null | boolean | number | string | Wire[] | { [key: string]: Wire };
type Params = { name: string } & Record<string, unknown>;

interface SealedKey {
  kind: "secret" | "public" | "private";
  material: string;
  algorithm: Wire;
  extractable: boolean;
  usages: webcrypto.KeyUsage[];
}

export interface HostCrypto {
  call(method: string, input: unknown, data: Uint8Array<ArrayBuffer>): Promise<OpAnswer>;
}

export function createHostCrypto(): HostCrypto {
  const sealing = randomBytes(32);
  const cache = new Map<string, webcrypto.CryptoKey>();

  function remember(handle: string, key: webcrypto.CryptoKey): void {
    cache.delete(handle);
    cache.set(handle, key);
    const [oldest] = cache.keys();
    if (cache.size > keyCacheSize && oldest !== undefined) cache.delete(oldest);
  }

  /**
   * Seals a key and answers what the guest is told of it. Every key is made extractable here, so that it can be sealed; `extractable` is what the
   * program asked for and what holds from now on.
   */
  function seal(key: webcrypto.CryptoKey, extractable: boolean): Wire {
    const object = KeyObject.from(key);
    const material =
      object.type === "secret" ? object.export() : object.export({ type: object.type === "public" ? "spki" : "pkcs8", format: "der" });
    return sealMaterial(object.type, material, key.algorithm, extractable, [...key.usages]);
  }

  function sealMaterial(
    kind: SealedKey["kind"],
    material: Uint8Array,
    algorithm: unknown,
    extractable: boolean,
    usages: webcrypto.KeyUsage[],
  ): Wire {
    const sealed: SealedKey = {
      kind,
      material: Buffer.from(material).toString("base64"),
      algorithm: toWire(algorithm),
      extractable,
      usages,
    };
    const iv = randomBytes(12);
    const cipher = createCipheriv("aes-256-gcm", sealing, iv);
    const content = Buffer.concat([cipher.update(JSON.stringify(sealed), "utf8"), cipher.final()]);
    const handle = Buffer.concat([iv, cipher.getAuthTag(), content]).toString("base64url");
    remember(handle, open(sealed));
    return { handle, type: kind, extractable, algorithm: sealed.algorithm, usages };
  }

  function keyOf(handle: unknown): webcrypto.CryptoKey {
    if (typeof handle !== "string") throw new TypeError("A CryptoKey is expected.");
    const known = cache.get(handle);
    if (known !== undefined) {
      remember(handle, known);
      return known;
    }
    const bytes = Buffer.from(handle, "base64url");
    const decipher = createDecipheriv("aes-256-gcm", sealing, bytes.subarray(0, 12));
    decipher.setAuthTag(bytes.subarray(12, 28));
    const text = Buffer.concat([decipher.update(bytes.subarray(28)), decipher.final()]).toString("utf8");
    const sealed = JSON.parse(text) as SealedKey;
    const key = open(sealed);
    remember(handle, key);
    return key;
  }

  /** The WebCrypto key of what was sealed. */
  function open(sealed: SealedKey): webcrypto.CryptoKey {
    const material = Buffer.from(sealed.material, "base64");
    const object =
      sealed.kind === "secret"
        ? createSecretKey(material)
        : sealed.kind === "public"
          ? createPublicKey({ key: material, type: "spki", format: "der" })
          : createPrivateKey({ key: material, type: "pkcs8", format: "der" });
    return object.toCryptoKey(fromWire(sealed.algorithm) as webcrypto.Algorithm, sealed.extractable, sealed.usages);
  }

  function fromWire(value: unknown): unknown {
    if (Array.isArray(value)) return value.map(fromWire);
    if (typeof value !== "object" || value === null) return value;
    const record = value as Record<string, unknown>;
    if (typeof record.$bytes === "string") return new Uint8Array(Buffer.from(record.$bytes, "base64"));
    if (typeof record.$key === "string") return keyOf(record.$key);
    return Object.fromEntries(Object.entries(record).map(([key, item]) => [key, fromWire(item)]));
  }

  /** An algorithm's parameters, within bounds. */
  function paramsOf(value: unknown): Params {
    const given = fromWire(value);
    const params = (typeof given === "string" ? { name: given } : given) as Params;
    if (typeof params?.name !== "string") throw new TypeError("An algorithm must have a name.");
    if (!algorithms.has(params.name.toLowerCase()))
      refuse("NotSupportedError", `The algorithm ${params.name.slice(0, 40)} is not supported.`);
    const hash = typeof params.hash === "string" ? params.hash : (params.hash as { name?: unknown } | undefined)?.name;
    if (hash !== undefined && !algorithms.has(String(hash).toLowerCase())) refuse("NotSupportedError", "The hash is not supported.");
    if (Number(params.iterations ?? 0) > maxIterations) refuse("NotSupportedError", `PBKDF2 is limited to ${maxIterations} iterations.`);
    if (Number(params.modulusLength ?? 0) > maxModulusLength)
      refuse("NotSupportedError", `RSA keys are limited to ${maxModulusLength} bits.`);
    if (Number(params.length ?? 0) > maxHmacBits) refuse("NotSupportedError", `Keys are limited to ${maxHmacBits} bits.`);
    return params;
  }

  /** The number of bits to derive; PBKDF2 works through its iterations once for every 160 to 512 of them. */
  const bits = (params: Params, length: unknown): number => {
    if (Number(length) > maxDerivedBits) refuse("OperationError", `At most ${maxDerivedBits} bits are derived at once.`);
    const rounds = Math.ceil(Number(length) / 256) * Number(params.iterations ?? 0);
    if (rounds > 2 * maxIterations) refuse("NotSupportedError", "So many bits with so many iterations cost too much.");
    return length as number;
  };

  const methods: Record<string, (input: Record<string, unknown>, data: Uint8Array<ArrayBuffer>) => Promise<OpAnswer>> = {
    digest: async ({ algorithm }, data) => ({ bytes: await subtle.digest(paramsOf(algorithm), data) }),
    encrypt: async ({ algorithm, key }, data) => ({ bytes: await subtle.encrypt(paramsOf(algorithm), keyOf(key), data) }),
    decrypt: async ({ algorithm, key }, data) => ({ bytes: await subtle.decrypt(paramsOf(algorithm), keyOf(key), data) }),
    sign: async ({ algorithm, key }, data) => ({ bytes: await subtle.sign(paramsOf(algorithm), keyOf(key), data) }),
    verify: async ({ algorithm, key, signature }, data) => ({
      text: String(await subtle.verify(paramsOf(algorithm), keyOf(key), fromWire(signature) as Uint8Array<ArrayBuffer>, data)),
    }),
    async generateKey({ algorithm, extractable, usages }) {
      const made = await subtle.generateKey(
        paramsOf(algorithm) as unknown as webcrypto.RsaHashedKeyGenParams,
        true,
        usages as webcrypto.KeyUsage[],
      );
      return "privateKey" in made
        ? { text: JSON.stringify({ publicKey: seal(made.publicKey, true), privateKey: seal(made.privateKey, Boolean(extractable)) }) }
        : { text: JSON.stringify(seal(made as webcrypto.CryptoKey, Boolean(extractable))) };
    },
    async importKey({ format, algorithm, extractable, usages, jwk }, data) {
      const params = paramsOf(algorithm) as unknown as webcrypto.RsaHashedImportParams;
      const use = usages as webcrypto.KeyUsage[];
      if (data.length > maxKeyBytes) refuse("DataError", `A key has at most ${maxKeyBytes} bytes.`);
      // Keys to derive from may never be extractable, and are nothing but their bytes.
      if (isDerivation(params.name)) {
        const key = await subtle.importKey(format as "raw", data, params, extractable as boolean, use);
        return { text: JSON.stringify(sealMaterial("secret", data, key.algorithm, false, [...key.usages])) };
      }
      const key =
        format === "jwk"
          ? await subtle.importKey("jwk", importableJwk(jwk, Boolean(extractable)), params, true, use)
          : await subtle.importKey(format as "raw", data, params, true, use);
      const { modulusLength } = key.algorithm as { modulusLength?: number };
      if ((modulusLength ?? 0) > maxModulusLength * 2) refuse("NotSupportedError", "The RSA key is too long.");
      return { text: JSON.stringify(seal(key, Boolean(extractable))) };
    },
    async exportKey({ format, key }) {
      const exported = await subtle.exportKey(format as "jwk", keyOf(key));
      return exported instanceof ArrayBuffer ? { bytes: exported } : { text: JSON.stringify(exported) };
    },
    async deriveBits({ algorithm, key, length }) {
      const params = paramsOf(algorithm);
      return { bytes: await subtle.deriveBits(params as unknown as webcrypto.HkdfParams, keyOf(key), bits(params, length)) };
    },
    async deriveKey({ algorithm, key, derived, extractable, usages }) {
      const params = paramsOf(algorithm);
      const wanted = sealable(paramsOf(derived));
      bits(params, wanted.length ?? 1024);
      const made = await subtle.deriveKey(
        params as unknown as webcrypto.HkdfParams,
        keyOf(key),
        wanted as unknown as webcrypto.HmacImportParams,
        true,
        usages as webcrypto.KeyUsage[],
      );
      return { text: JSON.stringify(seal(made, Boolean(extractable))) };
    },
    wrapKey: async ({ format, key, wrappingKey, algorithm }) => ({
      bytes: await subtle.wrapKey(format as "raw", keyOf(key), keyOf(wrappingKey), paramsOf(algorithm)),
    }),
    async unwrapKey({ format, unwrappingKey, algorithm, unwrapped, extractable, usages }, data) {
      const key = await subtle.unwrapKey(
        format as "raw",
        data,
        keyOf(unwrappingKey),
        paramsOf(algorithm),
        sealable(paramsOf(unwrapped)),
        true,
        usages as webcrypto.KeyUsage[],
      );
      return { text: JSON.stringify(seal(key, Boolean(extractable))) };
    },
  };

  return {
    async call(method, input, data) {
      if (!Object.hasOwn(methods, method)) throw new TypeError(`There is no crypto operation ${method}.`);
      return (methods[method] as (typeof methods)[string])(input as Record<string, unknown>, data);
    },
  };
}

const isDerivation = (name: string) => /^(?:hkdf|pbkdf2)$/i.test(name);

/** Parameters of a key that can be made extractable: what is derived or unwrapped cannot serve HKDF or PBKDF2. */
function sealable(params: Params): Params {
  if (isDerivation(params.name)) refuse("NotSupportedError", `A key for ${params.name} can only be imported: derive bits and import them.`);
  return params;
}

/** A JWK that says it must not be exported is still imported as extractable here, for sealing; asked for as extractable it is refused as usual. */
function importableJwk(jwk: unknown, extractable: boolean): webcrypto.JsonWebKey {
  const { ext, ...rest } = jwk as webcrypto.JsonWebKey;
  return extractable && ext !== undefined ? { ...rest, ext } : rest;
}

function refuse(name: string, message: string): never {
  throw new DOMException(message, name);
}

/** An algorithm as JSON, its bytes as base64. */
function toWire(value: unknown): Wire {
  if (value instanceof Uint8Array) return { $bytes: Buffer.from(value).toString("base64") };
  if (typeof value !== "object" || value === null) return value as Wire;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, toWire(item)]));
}
