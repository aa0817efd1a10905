import { parentPort, workerData } from "node:worker_threads";
import { createTypeChecker, type TypeCheckInput } from "./type-program.ts";

/** What the worker is started with. */
export interface TypeWorkerData {
  kapTypes: string;
  unpackFolder: string;
}

/** A first program, so that libraries are parsed and the checker's code is compiled before a save needs them. */
const warmUp: TypeCheckInput = {
  files: [
    [
      "main.ts",
      'import { lines } from "./lib";\nexport default { async fetch() { const all = await Promise.all(lines.map(async (line: string) => line.length)); return { n: [...new Map(all.entries())].length }; } };\n',
    ],
    ["lib.ts", 'export const lines = ["a"].map((text) => text.repeat(2)) satisfies string[];\n'],
  ],
  unchecked: [],
  packages: { pins: [], tree: [] },
  jsxImportSource: "preact",
};

const port = parentPort;
if (port === null) throw new Error("The type checker runs in a worker thread.");
const { kapTypes, unpackFolder } = workerData as TypeWorkerData;
const check = createTypeChecker(new URL(kapTypes), unpackFolder);
for (let round = 0; round < 3; round++) check(warmUp);
port.postMessage("ready");
port.on("message", ({ id, input }: { id: number; input: TypeCheckInput }) => {
  try {
    port.postMessage({ id, diagnostics: check(input) });
  } catch (error) {
    port.postMessage({
      id,
      problem: error instanceof RangeError ? "the program is nested too deeply for the type checker" : String(error),
    });
  }
});
