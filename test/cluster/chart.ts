import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { loadAllYaml } from "@kubernetes/client-node";

export const chartFolder = fileURLToPath(new URL("../../charts/kapstone", import.meta.url));

/** An object as a manifest has it; tests look at fields by their names. */
// biome-ignore lint/suspicious/noExplicitAny: manifests of thirty kinds, read by the tests that know them
export type Manifest = any;

/** Rendering takes a second; an uninstall waits for its clean-up, at most five minutes by Helm's own word. */
const helmMs = 330_000;

/** Runs helm. Rejects with what it said. */
export async function helm(...args: string[]): Promise<string> {
  try {
    return (await promisify(execFile)("helm", args, { timeout: helmMs, maxBuffer: 64 * 1024 * 1024 })).stdout;
  } catch (error) {
    throw new Error(error instanceof Error && "stderr" in error ? String(error.stderr) : String(error));
  }
}

/** Renders the chart without a cluster, as `helm template` does, with its hooks and tests. */
export async function render(...args: string[]): Promise<{ text: string; objects: Manifest[] }> {
  const text = await helm("template", "kapstone", chartFolder, "--namespace", "there", ...args);
  return { text, objects: (loadAllYaml(text) as Manifest[]).filter((each) => each !== null && each !== undefined) };
}

/** Every pod template (and pod) of a rendering, by the kind and name of what makes it. */
export function podsOf(objects: Manifest[]): { of: string; metadata: Manifest; spec: Manifest }[] {
  return objects.flatMap(({ kind, metadata, spec }) => {
    const of = `${kind}/${metadata.name}`;
    if (kind === "Pod") return [{ of, metadata, spec }];
    return spec?.template?.spec ? [{ of, metadata: spec.template.metadata, spec: spec.template.spec }] : [];
  });
}
