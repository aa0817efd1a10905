import { createHash } from "node:crypto";
import type { Db } from "#platform/postgres.ts";
import type { Detail } from "../../http/refusal.ts";
import { isScript, maxFiles, pathProblem } from "./build/file-paths.ts";

/** A file of a kap as its author sends it. */
export interface SourceFile {
  path: string;
  content: string;
}

/** A file as a version records it; `size` in bytes of UTF-8, `sha256` of its bytes in hex. */
export interface VersionFile {
  path: string;
  size: number;
  sha256: string;
}

/** What is wrong with a file set, a line per problem; empty when it can be a version. `main` is the name of the main file, when it was sent. */
export function fileSetProblems(files: readonly SourceFile[], main: string | undefined): Detail[] {
  const problems: Detail[] = [];
  if (files.length === 0) problems.push({ path: "files", message: "must hold at least one file" });
  if (files.length > maxFiles)
    return [{ path: "files", message: `a version holds at most ${maxFiles} files, this one has ${files.length}: remove or join some` }];
  const seen = new Set<string>();
  for (const [index, { path, content }] of files.entries()) {
    const problem = pathProblem(path);
    if (problem !== null) problems.push({ path: `files.${index}.path`, message: problem });
    else if (seen.has(path)) problems.push({ path: `files.${index}.path`, message: `${path} is there twice: keep one of the two` });
    if (content.includes("\0") || !content.isWellFormed())
      problems.push({ path: `files.${index}.content`, message: "must be text: it holds a NUL character or half of a surrogate pair" });
    seen.add(path);
  }
  for (const [index, { path }] of files.entries()) {
    const folder = foldersOf(path).find((candidate) => seen.has(candidate));
    if (folder !== undefined) problems.push({ path: `files.${index}.path`, message: `${folder} is a file, so it cannot be a folder too` });
  }
  if (main !== undefined && problems.length === 0) {
    if (!seen.has(main))
      problems.push({ path: "main_file", message: `${JSON.stringify(main)} is not among the files: add it or name another` });
    else if (!isScript(main)) problems.push({ path: "main_file", message: "must be a program, for example main.ts" });
  }
  return problems;
}

function foldersOf(path: string): string[] {
  const parts = path.split("/");
  return parts.slice(1).map((_, index) => parts.slice(0, index + 1).join("/"));
}

/** The files as a version records them, in the order of their paths. */
export function describeFiles(files: readonly SourceFile[]): VersionFile[] {
  return files
    .map(({ path, content }) => ({ path, size: Buffer.byteLength(content), sha256: createHash("sha256").update(content).digest("hex") }))
    .sort((a, b) => (a.path < b.path ? -1 : 1));
}

/** Stores the contents a kap does not have yet: each distinct text once, whatever versions share it. */
export async function storeContents(db: Db, kapId: string, files: readonly SourceFile[]): Promise<void> {
  const bySha = new Map(files.map((file) => [createHash("sha256").update(file.content).digest("hex"), file.content]));
  await db.raw(
    `insert into kap_blobs (kap_id, sha256, content) select ?, * from unnest(?::text[], ?::text[]) as t (sha256, content)
     on conflict do nothing`,
    [kapId, [...bySha.keys()], [...bySha.values()]] as string[],
  );
}

/** The files of a version with their contents, in the order recorded. */
export async function readContents(db: Db, kapId: string, files: readonly VersionFile[]): Promise<(VersionFile & SourceFile)[]> {
  const rows: { sha256: string; content: string }[] = await db("kap_blobs")
    .where({ kap_id: kapId })
    .whereIn("sha256", [...new Set(files.map((file) => file.sha256))])
    .select("sha256", "content");
  const contents = new Map(rows.map((row) => [row.sha256, row.content]));
  return files.map((file) => {
    const content = contents.get(file.sha256);
    if (content === undefined) throw new Error(`the content of ${file.path} (${file.sha256}) of the kap ${kapId} is missing`);
    return { ...file, content };
  });
}
