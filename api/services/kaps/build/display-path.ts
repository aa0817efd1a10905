import { relative, sep } from "node:path";
import type { Message } from "esbuild";
import type { BuildError } from "./build-contract.ts";
import type { PackageTree, TreePackage } from "./packages/package-tree.ts";

/** esbuild's namespace of the kap's own files. */
export const ownNamespace = "kap-file";

/** Turns esbuild's names of modules back into names that an author knows: `lib/a.ts`, `npm:zod@4.1.0/index.js`. */
export interface ModuleNames {
  /** The package that a file on disk belongs to. */
  packageOf(absolutePath: string): TreePackage | undefined;
  /** For a path as esbuild prints it: `kap-file:lib/a.ts`, or relative to the unpack folder. Null when it is neither. */
  display(path: string): string | null;
  /** Replaces such paths inside a sentence. */
  readable(text: string): string;
  error(message: Message): BuildError;
}

export function moduleNames(tree: PackageTree, unpackFolder: string): ModuleNames {
  const byRoot = new Map([...tree.values()].map((each) => [relative(unpackFolder, each.root), each]));

  const split = (path: string): { owner: TreePackage; rest: string } | undefined => {
    const [first = "", ...rest] = path.split("/");
    const owner = byRoot.get(first);
    const inside = owner && `node_modules/${owner.name}/`;
    const tail = rest.join("/");
    return owner && inside !== undefined && tail.startsWith(inside) ? { owner, rest: tail.slice(inside.length) } : undefined;
  };

  const names: ModuleNames = {
    packageOf: (absolutePath) => split(relative(unpackFolder, absolutePath).split(sep).join("/"))?.owner,
    display(path) {
      if (path.startsWith(`${ownNamespace}:`)) return path.slice(ownNamespace.length + 1);
      const found = split(path);
      return found ? `npm:${found.owner.name}@${found.owner.version}/${found.rest}` : null;
    },
    readable(text) {
      let result = text.replaceAll(`${ownNamespace}:`, "").replaceAll(`${unpackFolder}/`, "");
      for (const [root, owner] of byRoot)
        result = result.replaceAll(`${root}/node_modules/${owner.name}`, `npm:${owner.name}@${owner.version}`);
      return result;
    },
    error(message) {
      const { location } = message;
      const file = location === null ? null : names.display(location.file);
      if (location === null || file === null)
        return { file: "", line: 1, column: 1, message: location === null ? names.readable(message.text) : outsideRefusal };
      const before = Buffer.from(location.lineText, "utf8").subarray(0, location.column).toString("utf8");
      return { file, line: location.line, column: before.length + 1, message: names.readable(message.text) };
    },
  };
  return names;
}

/** The program's errors in what esbuild threw. A fault of ours (it has no such list, or a plugin of ours threw) is thrown on. */
export function programErrors(failure: { errors?: Message[] }): Message[] {
  const messages = failure.errors ?? [];
  const fault = messages.find(({ detail }) => detail instanceof Error);
  if (fault) throw fault.detail;
  if (messages.length === 0) throw failure;
  return messages;
}

/** What is said of a package that reads files of the machine; nothing of those files is repeated. */
export const outsideRefusal = "A package reads a file outside its own folder, which is not allowed. Remove the package.";
