import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { Metafile } from "esbuild";
import { bundle, unbundled } from "../local/bundle.ts";
import { bundleGuest } from "../runtime/guest-script.ts";

/** What a process's image holds besides its bundled entries. */
interface Target {
  entries: string[];
  /** Files of ours that are read as they are, by their place in the sources. */
  files?: string[];
  /** Packages whose files are served, with those that are. */
  packages?: Record<string, string[]>;
}

const targets: Record<string, Target> = {
  api: {
    entries: ["api/main", "api/migrate"],
    files: ["web", "runtime/guest/kap.d.ts"],
    packages: { "swagger-ui-dist": ["swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"] },
  },
  operator: { entries: ["operator/main", "operator/fire", "operator/uninstall"] },
  runtime: { entries: ["runtime/main"] },
  "mail-ingest": { entries: ["mail-ingest/main"] },
};

/** The part of a package that is used at run time, where that is a small part of it. */
const usedParts: Record<string, (path: string) => boolean> = {
  typescript: (path) => /^lib(?:\/(?:typescript\.js|lib\.[^/]*\.d\.ts))?$/.test(path),
  "isolated-vm": (path) => !/^(?:src|vendor|native-example|scripts)$|\.tgz$/.test(path) && isOwnPrebuild(path),
};

const isOwnPrebuild = (path: string): boolean => {
  const [, platform, file = ""] = /^prebuilds\/([^/]+)\/?(.*)$/.exec(path) ?? [];
  if (platform === undefined) return true;
  return platform === `${process.platform}-${process.arch}` && (file === "" || file.includes(`abi${process.versions.modules}.glibc`));
};

const root = fileURLToPath(new URL("../", import.meta.url));

/** Writes everything an image of this process holds into a folder: bundles, files read as they are, packages that cannot be bundled. */
export async function bundleImage(name: string, folder: string): Promise<void> {
  const target = targets[name];
  if (!target) throw new Error(`${name} is none of ${Object.keys(targets).join(", ")}`);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const metafile = await bundleWithStarted(target.entries, folder);
  for (const file of target.files ?? []) cpSync(join(root, file), join(folder, file), { recursive: true });
  if (name === "runtime") writeFileSync(join(folder, "runtime/guest.js"), await bundleGuest());
  for (const each of outsideImports(metafile)) copyPackage(each, folder);
  for (const [each, files] of Object.entries(target.packages ?? {})) {
    for (const file of ["package.json", "LICENSE", ...files])
      cpSync(join(packageFolder(each), file), join(folder, "node_modules", each, file));
  }
}

/** Bundles entries together with the modules they start as processes or threads (`entryFile("…")` in their sources), and those of these. */
async function bundleWithStarted(entries: string[], folder: string): Promise<Metafile> {
  for (let known = entries; ; ) {
    const metafile = await bundle(root, known, folder);
    const started = Object.keys(metafile.inputs)
      .filter((input) => !input.includes("node_modules/"))
      .flatMap((input) =>
        [...readFileSync(join(root, input), "utf8").matchAll(/\bentryFile\("([^"]+)"\)/g)].map((match) => match[1] as string),
      );
    const all = [...new Set([...entries, ...started])];
    if (all.length === known.length) return metafile;
    known = all;
    rmSync(folder, { recursive: true });
    mkdirSync(folder);
  }
}

/**
 * Packages the bundles need at run time: those that are imported by a statement. What is asked for by a call is used only if it happens to be there (a
 * library's TypeScript to read a configuration nobody writes, esbuild where the guest kit is not made yet).
 */
function outsideImports({ outputs }: Metafile): Set<string> {
  const imports = Object.values(outputs).flatMap((output) => output.imports);
  return new Set(
    imports
      .filter(({ external, kind }) => external && kind === "import-statement")
      .map(({ path }) => path)
      .filter((name) => unbundled.includes(name)),
  );
}

/** Copies a package with those it needs. */
function copyPackage(name: string, folder: string): void {
  const source = packageFolder(name);
  const destination = join(folder, "node_modules", name);
  if (existsSync(destination)) return;
  const isUsed = usedParts[name];
  cpSync(source, destination, {
    recursive: true,
    dereference: true,
    filter: (path) => {
      const inside = path.slice(source.length + 1);
      return inside === "" || inside === "package.json" || /^LICENSE/i.test(inside) || !isUsed || isUsed(inside);
    },
  });
  const { dependencies = {}, optionalDependencies = {} } = JSON.parse(readFileSync(join(source, "package.json"), "utf8")) as {
    dependencies?: Record<string, string>;
    optionalDependencies?: Record<string, string>;
  };
  for (const each of Object.keys(dependencies)) copyPackage(each, folder);
  // Native programs, one package a platform: the one of this machine is installed.
  for (const each of Object.keys(optionalDependencies)) if (existsSync(packageFolder(each))) copyPackage(each, folder);
}

const packageFolder = (name: string): string => join(root, "node_modules", name);

if (import.meta.main) {
  const [folder, ...names] = process.argv.slice(2);
  if (!folder || names.length === 0) {
    process.stderr.write(`usage: bundle-images.ts FOLDER TARGET…   (targets: ${Object.keys(targets).join(", ")})\n`);
    process.exit(2);
  }
  for (const name of names) await bundleImage(name, join(resolve(folder), name));
}
