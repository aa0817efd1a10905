import { type BuildError, fileError, type SourceFile } from "./build-contract.ts";

/** Most files that one version may hold (decided §7.2). */
export const maxFiles = 200;
/** Longest path in bytes of UTF-8. */
const maxPathBytes = 512;

/** Why `path` cannot name a file of a kap, or null when it can. Paths are relative, `/`-separated, without `.` or `..`. */
export function pathProblem(path: string): string | null {
  if (path === "") return "a path must not be empty";
  if (Buffer.byteLength(path) > maxPathBytes) return `a path has at most ${maxPathBytes} bytes`;
  if (!path.isWellFormed()) return "a path must be valid Unicode (it holds half of a surrogate pair)";
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused here
  if (/[\u0000-\u001f\u007f]/.test(path)) return "a path must not hold NUL or other control characters";
  if (path.includes("\\")) return "folders are separated by /, not by a backslash";
  if (path.startsWith("/")) return "a path is relative to the kap: leave out the leading /";
  const segments = path.split("/");
  if (segments.includes("")) return "a path must not hold an empty segment (// or a trailing /)";
  if (segments.includes(".") || segments.includes("..")) return 'a path must not hold "." or ".." segments';
  return null;
}

/** All problems of a file list as a whole: too many, bad paths, duplicates, a main file that is not there. Empty when it can be built. */
export function fileListProblems(files: SourceFile[], mainFile: string): BuildError[] {
  const errors: BuildError[] = [];
  if (files.length > maxFiles)
    errors.push(fileError(mainFile, `A version holds at most ${maxFiles} files; this one has ${files.length}. Remove or join some.`));
  const seen = new Set<string>();
  for (const { path } of files.slice(0, maxFiles + 1)) {
    const problem = pathProblem(path);
    if (problem !== null) errors.push(fileError(path, `${JSON.stringify(path.slice(0, 200))} cannot be a file path: ${problem}.`));
    else if (seen.has(path)) errors.push(fileError(path, `The path ${JSON.stringify(path)} is there twice; keep one of the two files.`));
    seen.add(path);
  }
  if (!seen.has(mainFile))
    errors.push(fileError(mainFile, `The main file ${JSON.stringify(mainFile)} is not among the files; add it or name another.`));
  else if (!isScript(mainFile)) errors.push(fileError(mainFile, `The main file must be a program (${scriptExtensions.join(", ")}).`));
  return errors;
}

/** Extensions of program files. A default export in one of them makes it an entry, which a trigger can name. */
export const scriptExtensions = [".ts", ".tsx", ".mts", ".js", ".jsx", ".mjs"];

/** True for program files; declaration files (`.d.ts`) only describe types. */
export function isScript(path: string): boolean {
  return !isDeclaration(path) && scriptExtensions.some((extension) => path.endsWith(extension));
}

/** True for TypeScript declaration files. */
export function isDeclaration(path: string): boolean {
  return /\.d\.(ts|mts|cts)$/.test(path);
}
