/** A node of a statement's parse tree, as libpg-query gives it: its members by name. */
export type SqlNode = { [key: string]: unknown };

/**
 * Every named member of every node of a tree, parents before what is in them. Without recursion: a long chain of operators is a deep tree although
 * it has no bracket. What is given to `further` meanwhile is walked too.
 */
export function* membersOf(root: unknown, further: unknown[] = []): Generator<[name: string, value: unknown]> {
  further.push(root);
  while (further.length > 0) {
    const node = further.pop();
    if (node === null || typeof node !== "object") continue;
    if (Array.isArray(node)) {
      for (const item of node) further.push(item);
      continue;
    }
    for (const member of Object.entries(node as SqlNode)) {
      yield member;
      further.push(member[1]);
    }
  }
}
