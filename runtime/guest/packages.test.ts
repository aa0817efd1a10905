import { build } from "esbuild";
import Handlebars from "handlebars";
import { expect, test } from "vitest";
import { TestHost } from "./testing-host.ts";

/** Bundles a program with the packages it imports and runs it: what libraries ask of the API is more than any table of cases. */
async function run(code: string): Promise<unknown> {
  const result = await build({
    stdin: { contents: `${code}\nglobalThis.answer = await main();`, resolveDir: import.meta.dirname },
    bundle: true,
    write: false,
    format: "esm",
    platform: "browser",
    target: "esnext",
    logLevel: "error",
  });
  const host = await TestHost.boot({
    "main.ts": `${result.outputFiles[0]?.text} return { default: () => Response.json({ answer: globalThis.answer }) };`,
  });
  const { body, detail } = await host.request();
  host.close();
  expect(detail).toBe("");
  return (JSON.parse(body.toString()) as { answer: unknown }).answer;
}

test("jose signs, verifies, encrypts and reads keys", async () => {
  const answer = await run(`
    import * as jose from "jose";
    async function main() {
      const out = [];
      const secret = new TextEncoder().encode("a secret of at least 32 characters!");
      const hs = await new jose.SignJWT({ a: 1 }).setProtectedHeader({ alg: "HS256" }).setIssuedAt().setExpirationTime("2h").sign(secret);
      out.push((await jose.jwtVerify(hs, secret)).payload.a);
      for (const alg of ["RS256", "ES256", "EdDSA", "PS256"]) {
        const { publicKey, privateKey } = await jose.generateKeyPair(alg, { extractable: true });
        const jwk = await jose.exportJWK(publicKey);
        const pem = await jose.exportPKCS8(privateKey);
        const token = await new jose.SignJWT({ alg }).setProtectedHeader({ alg }).sign(await jose.importPKCS8(pem, alg));
        out.push((await jose.jwtVerify(token, await jose.importJWK(jwk, alg))).payload.alg);
        out.push(await jose.jwtVerify(token.slice(0, -8) + "AAAAAAAA", publicKey).catch((e) => e.code));
      }
      for (const alg of ["dir", "RSA-OAEP-256", "ECDH-ES+A128KW", "PBES2-HS256+A128KW"]) {
        const key = alg === "dir" ? crypto.getRandomValues(new Uint8Array(32)) : alg.startsWith("PBES2") ? secret : await jose.generateKeyPair(alg);
        const jwe = await new jose.CompactEncrypt(new TextEncoder().encode("hidden")).setProtectedHeader({ alg, enc: "A256GCM" }).encrypt(key.publicKey ?? key);
        const options = { keyManagementAlgorithms: [alg], maxPBES2Count: 10000 };
        out.push(new TextDecoder().decode((await jose.compactDecrypt(jwe, key.privateKey ?? key, options)).plaintext));
      }
      return out;
    }`);
  const bad = "ERR_JWS_SIGNATURE_VERIFICATION_FAILED";
  expect(answer).toEqual([1, "RS256", bad, "ES256", bad, "EdDSA", bad, "PS256", bad, "hidden", "hidden", "hidden", "hidden"]);
});

test("zod checks without making code", async () => {
  const answer = await run(`
    import { z } from "zod";
    async function main() {
      const schema = z.object({ name: z.string().min(1), mail: z.email(), when: z.coerce.date(), site: z.url(), n: z.array(z.number()).optional() });
      const good = schema.safeParse({ name: "Ann", mail: "a@b.co", when: "2026-01-01", site: "https://e.com" });
      const bad = schema.safeParse({ name: "", mail: "x", when: "?", site: "nope", n: ["1"] });
      return [good.success, bad.error.issues.map((issue) => issue.path.join("."))];
    }`);
  expect(answer).toEqual([true, ["name", "mail", "when", "site", "n.0"]]);
});

test("Handlebars fills templates that were compiled before the save; compiling inside would need code from strings", async () => {
  const page = Handlebars.precompile("{{#each names}}<li>{{this}}</li>{{/each}}");
  const answer = await run(`
    import runtime from "handlebars/runtime";
    import Handlebars from "handlebars/dist/cjs/handlebars.js";
    async function main() {
      const filled = runtime.template(${page})({ names: ["Ann", "a<b"] });
      try {
        return [filled, Handlebars.compile("{{name}}")({ name: "x" })];
      } catch (error) {
        return [filled, error.name];
      }
    }`);
  expect(answer).toEqual(["<li>Ann</li><li>a&lt;b</li>", "EvalError"]);
});
