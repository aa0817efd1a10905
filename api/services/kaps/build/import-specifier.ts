import { isBuiltin } from "node:module";
import semver from "semver";

/** What an import statement of a kap's own file asks for. `refused` carries the sentence for the author. */
export type ImportTarget =
  | { kind: "platform" }
  | { kind: "own"; specifier: string }
  | { kind: "package"; name: string; version: string; subpath: string }
  | { kind: "refused"; message: string };

/** Exact versions by the name they are imported as, from the kap's `package.json`; `name` differs from the key for an alias. */
export type Pins = ReadonlyMap<string, { name: string; version: string }>;

const npmForm = /^npm:(@[^/@]+\/[^/@]+|[^/@]+)(?:@([^/]*))?(\/.*)?$/;
const bareForm = /^(@[^/]+\/[^/]+|[^/]+)(\/.*)?$/;

/**
 * Reads one import specifier (decided §7.1): `kap`, a relative path, `npm:name@1.2.3/sub/path`, or a bare name that `pins` gives a version.
 * Node's modules, URLs, absolute paths and unpinned packages are refused.
 */
export function readSpecifier(specifier: string, pins: Pins): ImportTarget {
  if (specifier === "kap") return { kind: "platform" };
  if (/^\.\.?(\/|$)/.test(specifier)) return { kind: "own", specifier };
  if (specifier.startsWith("/"))
    return refuse(`"${specifier}" is an absolute path. Import the kap's own files relatively, for example "./lib.ts".`);
  if (specifier.startsWith("node:")) return refuse(nodeRefusal(specifier));
  if (specifier.startsWith("npm:")) return readNpm(specifier);
  if (/^[a-z][a-z0-9+.-]*:/i.test(specifier)) {
    return refuse(
      `"${specifier.slice(0, 200)}" is an address. Programs are built from their own files and npm packages: import "npm:name@1.2.3".`,
    );
  }
  if (specifier.startsWith("#"))
    return refuse(`"${specifier}" is a package-internal name. Import the kap's own files relatively, for example "./lib.ts".`);
  const [, name = "", subpath = ""] = bareForm.exec(specifier) ?? [];
  const pin = pins.get(name);
  if (pin) return { kind: "package", ...pin, subpath };
  if (isBuiltin(specifier)) return refuse(nodeRefusal(specifier));
  if (!isPackageName(name))
    return refuse(`"${specifier.slice(0, 200)}" is neither a relative path (they start with ./ or ../) nor the name of an npm package.`);
  return refuse(
    `"${name}" has no pinned version. Write "npm:${name}@1.2.3${subpath}" with the version you want, or add a package.json with {"dependencies": {"${name}": "1.2.3"}} to the files.`,
  );
}

function readNpm(specifier: string): ImportTarget {
  const [, name, version, subpath = ""] = npmForm.exec(specifier) ?? [];
  if (name === undefined || !isPackageName(name))
    return refuse(`"${specifier.slice(0, 200)}" is not of the form "npm:name@1.2.3" or "npm:name@1.2.3/path".`);
  if (version === undefined || version === "")
    return refuse(`"${specifier}" has no version. Pin one exactly: "npm:${name}@1.2.3${subpath}".`);
  if (!isExactVersion(version)) {
    return refuse(
      `"${specifier}" asks for "${version}", which can change under a saved version. Pin one exactly${suggestion(version, (exact) => `"npm:${name}@${exact}${subpath}"`)}.`,
    );
  }
  return { kind: "package", name, version, subpath };
}

function refuse(message: string): ImportTarget {
  return { kind: "refused", message };
}

function nodeRefusal(specifier: string): string {
  return `"${specifier}" is a module of Node, which a kap does not have. Use the web's own API instead (fetch, crypto, URL, streams, TextEncoder …) or the "kap" module (db, store, secrets).`;
}

/** `: for example "…"` when a range has an obvious exact version in it, else nothing. */
export function suggestion(range: string, form: (exact: string) => string): string {
  const exact = range.length < 100 && semver.validRange(range) !== null ? semver.minVersion(range)?.version : undefined;
  return exact === undefined || exact === "0.0.0" ? "" : `, for example ${form(exact)}`;
}

/** True for a full version such as `4.1.0` or `1.0.0-rc.2`; ranges, tags and `v` prefixes are not exact. */
export function isExactVersion(version: string): boolean {
  return version.length <= 100 && semver.valid(version) === version;
}

/** True for what npm accepts as a package name, scoped or not. */
export function isPackageName(name: string): boolean {
  return name.length <= 214 && name !== "node_modules" && /^(?:@[a-z0-9~-][a-z0-9._~-]*\/)?[a-z0-9~-][a-z0-9._~-]*$/i.test(name);
}
