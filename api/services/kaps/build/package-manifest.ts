import { BuildRefused, fileError } from "./build-contract.ts";
import { isExactVersion, isPackageName, type Pins, suggestion } from "./import-specifier.ts";
import type { OwnFiles } from "./own-files.ts";

const manifestPath = "package.json";

/**
 * The exact versions that the kap's own `package.json` pins under `dependencies`; `"alias": "npm:name@1.2.3"` works too. Other fields
 * (devDependencies, scripts) mean nothing here. Throws `BuildRefused` for unreadable JSON and for every range, tag, URL or git address.
 */
export function readPins(files: OwnFiles): Pins {
  const text = files.get(manifestPath);
  if (text === undefined) return new Map();
  const dependencies = readDependencies(text);
  const pins = new Map<string, { name: string; version: string }>();
  const errors = [];
  for (const [key, wanted] of Object.entries(dependencies)) {
    const pin = typeof wanted === "string" ? readPin(key, wanted) : null;
    if (pin !== null && isPackageName(key)) pins.set(key, pin);
    else errors.push({ file: manifestPath, ...placeOf(text, key), message: refusal(key, wanted) });
  }
  if (errors.length > 0) throw new BuildRefused(errors);
  return pins;
}

function readDependencies(text: string): Record<string, unknown> {
  let manifest: unknown;
  try {
    manifest = JSON.parse(text);
  } catch (error) {
    throw new BuildRefused([fileError(manifestPath, `package.json is not valid JSON: ${(error as Error).message}`)]);
  }
  const dependencies = manifest !== null && typeof manifest === "object" && "dependencies" in manifest ? manifest.dependencies : {};
  if (dependencies === null || typeof dependencies !== "object" || Array.isArray(dependencies)) {
    throw new BuildRefused([fileError(manifestPath, '"dependencies" in package.json must be an object of names and exact versions.')]);
  }
  return dependencies as Record<string, unknown>;
}

function readPin(key: string, wanted: string): { name: string; version: string } | null {
  const [, name = key, version = ""] = /^npm:(@?[^@]+)@(.+)$/.exec(wanted) ?? [null, key, wanted];
  return isPackageName(name) && isExactVersion(version) ? { name, version } : null;
}

function refusal(key: string, wanted: unknown): string {
  const shown = typeof wanted === "string" ? JSON.stringify(wanted.slice(0, 100)) : "something that is not text";
  const example = typeof wanted === "string" ? suggestion(wanted, (exact) => `"${exact}"`) : "";
  return `package.json asks for ${JSON.stringify(key)} at ${shown}, which is not one exact version and could change under a saved version. Pin it${example || ', for example "1.2.3"'}.`;
}

function placeOf(text: string, key: string): { line: number; column: number } {
  const index = Math.max(0, text.indexOf(JSON.stringify(key), Math.max(0, text.indexOf('"dependencies"'))));
  const before = text.slice(0, index).split("\n");
  return { line: before.length, column: (before.at(-1)?.length ?? 0) + 1 };
}
