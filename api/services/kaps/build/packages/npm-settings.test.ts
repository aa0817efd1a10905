import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { readNpmSettings } from "./npm-settings.ts";

const folder = mkdtempSync(join(tmpdir(), "kapstone-npmrc-"));
afterAll(() => rmSync(folder, { recursive: true }));
const file = (name: string, text: string) => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};

test("the user's npmrc wins over the global one, a variable over both; comments, quotes and variables in braces are understood", () => {
  const env = {
    npm_config_globalconfig: file("global", "registry=http://global.test/\nproxy = http://proxy.test\n"),
    npm_config_userconfig: file(
      "user",
      `; a comment\n# another\n\nregistry = "http://user.test/"\n@org:registry=http://org.test/\n//org.test/:_authToken=\${TOKEN}\naudit=false\n`,
    ),
    TOKEN: "t0ken",
  };
  expect(readNpmSettings(env)).toMatchObject({
    registry: "http://user.test/",
    proxy: "http://proxy.test",
    "@org:registry": "http://org.test/",
    "//org.test/:_authToken": "t0ken",
  });
  expect(readNpmSettings({ ...env, NPM_CONFIG_REGISTRY: "http://env.test/", npm_config_https_proxy: "http://p.test" })).toMatchObject({
    registry: "http://env.test/",
    httpsProxy: "http://p.test",
  });
  expect(readNpmSettings(env)).not.toHaveProperty("audit");
});

test("strict-ssl and a bundle of certificates become what TLS takes", () => {
  const certificate = (n: number) => `-----BEGIN CERTIFICATE-----\n${n}\n-----END CERTIFICATE-----`;
  const bundle = file("ca.pem", `${certificate(1)}\n${certificate(2)}\n`);
  const settings = readNpmSettings({
    npm_config_userconfig: file("tls", `strict-ssl=false\ncafile=${bundle}\n`),
    npm_config_globalconfig: join(folder, "absent"),
  });
  expect(settings).toMatchObject({ strictSSL: false, ca: [certificate(1), certificate(2)] });
});
