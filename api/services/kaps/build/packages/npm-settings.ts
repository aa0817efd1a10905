import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";

/** npm's settings as pacote takes them: `registry`, `@scope:registry`, `//host/path/:_authToken`, proxies and certificates. */
export type NpmSettings = Record<string, string | string[] | boolean>;

/** npm's own names on the left, pacote's on the right; everything else in an npmrc (save, audit, fund …) has no meaning here. */
const optionNames: Record<string, string> = {
  registry: "registry",
  proxy: "proxy",
  "https-proxy": "httpsProxy",
  noproxy: "noProxy",
  ca: "ca",
  cert: "cert",
  key: "key",
};

/**
 * Reads where this machine gets npm packages from, in npm's order: the global npmrc, the user's npmrc, then `npm_config_*` variables. When
 * none says anything the result is empty and pacote's own default registry holds.
 */
export function readNpmSettings(env: NodeJS.ProcessEnv): NpmSettings {
  const prefix = env.npm_config_prefix ?? env.PREFIX ?? dirname(dirname(process.execPath));
  const files = [
    "/etc/npmrc",
    env.npm_config_globalconfig ?? join(prefix, "etc", "npmrc"),
    env.npm_config_userconfig ?? env.NPM_CONFIG_USERCONFIG ?? join(env.HOME ?? homedir(), ".npmrc"),
  ];
  const raw = Object.assign({}, ...files.map((file) => readNpmrc(file, env)), fromEnvironment(env)) as Record<string, string>;
  const settings: NpmSettings = {};
  for (const [name, value] of Object.entries(raw)) {
    const option = optionNames[name];
    if (name.startsWith("//") || /^@[^:]+:registry$/.test(name)) settings[name] = value;
    else if (option !== undefined && value !== "") settings[option] = value;
  }
  if (raw["strict-ssl"] === "false") settings.strictSSL = false;
  const cafile = raw.cafile;
  if (cafile !== undefined && cafile !== "" && settings.ca === undefined) settings.ca = readCertificates(cafile);
  return settings;
}

/** The assignments of one npmrc; `${NAME}` is replaced from the environment. A file that is not there has none. */
function readNpmrc(file: string, env: NodeJS.ProcessEnv): Record<string, string> {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    if (["ENOENT", "EACCES", "ENOTDIR", "EISDIR"].includes((error as NodeJS.ErrnoException).code ?? "")) return {};
    throw error;
  }
  const settings: Record<string, string> = {};
  for (const line of text.split(/\r?\n/)) {
    const [, name, value] = /^\s*([^;#=\s][^=]*?)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (name === undefined || value === undefined) continue;
    settings[name] = value.replace(/^"(.*)"$/, "$1").replace(/\$\{([^}]+)\}/g, (whole, variable: string) => env[variable] ?? whole);
  }
  return settings;
}

function fromEnvironment(env: NodeJS.ProcessEnv): Record<string, string> {
  const settings: Record<string, string> = {};
  for (const [variable, value] of Object.entries(env)) {
    const [, name] = /^npm_config_(.+)$/i.exec(variable) ?? [];
    if (name === undefined || value === undefined || value === "") continue;
    settings[name.startsWith("//") || name.startsWith("@") ? name : name.toLowerCase().replaceAll("_", "-")] = value;
  }
  return settings;
}

/** The certificates of a PEM bundle, one a string, as Node's TLS wants them. */
function readCertificates(cafile: string): string[] {
  const end = "-----END CERTIFICATE-----";
  return readFileSync(cafile, "utf8")
    .split(end)
    .filter((part) => part.includes("-----BEGIN CERTIFICATE-----"))
    .map((part) => part.trimStart() + end);
}
