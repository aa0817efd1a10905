import type { SourceFile } from "./file-set.ts";

/** One file that two versions do not share alike; `before` and `after` are whole texts, null where there is none. */
export interface FileChange {
  path: string;
  kind: "added" | "removed" | "modified";
  before: string | null;
  after: string | null;
}

/** What changed between two file sets, in the order of the paths; what is the same in both is left out. */
export function diffFiles(before: readonly SourceFile[], after: readonly SourceFile[]): FileChange[] {
  const old = new Map(before.map((file) => [file.path, file.content]));
  const fresh = new Map(after.map((file) => [file.path, file.content]));
  const changes: FileChange[] = [];
  for (const path of [...new Set([...old.keys(), ...fresh.keys()])].sort()) {
    const from = old.get(path) ?? null;
    const to = fresh.get(path) ?? null;
    if (from === to) continue;
    changes.push({ path, kind: from === null ? "added" : to === null ? "removed" : "modified", before: from, after: to });
  }
  return changes;
}
