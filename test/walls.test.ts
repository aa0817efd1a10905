import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { expect, test } from "vitest";

const root = resolve(import.meta.dirname, "..");
const processes = ["api", "operator", "runtime", "mail-ingest"];

interface Import {
  from: string;
  to: string;
}

/** Every import between our own files, as paths from the root. */
function readImports(): Import[] {
  const imports: Import[] = [];
  const visit = (folder: string): void => {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) visit(path);
      else if (/\.tsx?$/.test(entry.name) && !/\.(test|child)\.ts$/.test(entry.name)) {
        for (const match of readFileSync(join(root, path), "utf8").matchAll(/(?:from|import)\s*\(?\s*"([.#][^"]+)"/g)) {
          const specifier = match[1] as string;
          const target = specifier.startsWith("#platform/")
            ? specifier.replace("#platform/", "platform/")
            : relative(root, resolve(root, dirname(path), specifier));
          imports.push({ from: path, to: target });
        }
      }
    }
  };
  for (const folder of ["platform", "local", "migrations", ...processes]) {
    try {
      visit(folder);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    }
  }
  return imports;
}

const imports = readImports();
const top = (path: string): string => path.split("/")[0] as string;
const serviceOf = (path: string): string | null => /^api\/services\/([^/]+)\//.exec(path)?.[1] ?? null;
const broken = (rule: (edge: Import) => boolean): string[] => imports.filter(rule).map(({ from, to }) => `${from} → ${to}`);

test("the walls are looked at over real imports", () => {
  expect(imports.length).toBeGreaterThan(100);
});

test("platform/ is the leaf: it imports nothing of ours", () => {
  expect(broken(({ from, to }) => top(from) === "platform" && top(to) !== "platform")).toEqual([]);
});

test("processes do not reach into each other; only local/ knows them all, and nobody knows local/", () => {
  expect(broken(({ from, to }) => processes.includes(top(from)) && processes.includes(top(to)) && top(from) !== top(to))).toEqual([]);
  expect(broken(({ from, to }) => top(from) !== "local" && top(to) === "local")).toEqual([]);
});

test("a service never imports another's store, routes or schema", () => {
  expect(
    broken(
      ({ from, to }) =>
        serviceOf(to) !== null &&
        serviceOf(from) !== serviceOf(to) &&
        /\/(?:[\w-]*store|[\w-]*routes|schema)\.ts$/.test(to) &&
        from !== "api/app.ts",
    ),
  ).toEqual([]);
});

test("the shared HTTP kit knows no service", () => {
  expect(broken(({ from, to }) => from.startsWith("api/http/") && serviceOf(to) !== null)).toEqual([]);
});

test("migrations stand on the platform alone", () => {
  expect(broken(({ from, to }) => top(from) === "migrations" && !["migrations", "platform"].includes(top(to)))).toEqual([]);
});
