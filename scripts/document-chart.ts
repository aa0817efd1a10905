import { readFileSync, writeFileSync } from "node:fs";

/** One value of the chart: its path, its default as YAML on one line, and what its comment says. */
interface ChartValue {
  path: string;
  fallback: string;
  meaning: string;
}

const chart = new URL("../charts/kapstone/", import.meta.url);

/**
 * The values that a comment beginning with `# --` describes. Reads the plain YAML that values.yaml is written in: two spaces a level, a described
 * key on the line after its comment, its default beside it or in the lines below it. Throws on a comment that describes nothing.
 */
export function describedValues(yaml: string): ChartValue[] {
  const lines = yaml.split("\n");
  const path: string[] = [];
  const found: ChartValue[] = [];
  let meaning: string | undefined;
  for (const [at, line] of lines.entries()) {
    const comment = /^ *# -- (.+)$/.exec(line)?.[1];
    const key = /^( *)([A-Za-z0-9]+):(?: +(.*))?$/.exec(line);
    if (meaning !== undefined && !key) throw new Error(`line ${at}: the comment "${meaning}" is not followed by the value it describes`);
    if (comment !== undefined) meaning = comment;
    if (!key) continue;
    const [, indent = "", name = "", beside = ""] = key;
    path.splice(indent.length / 2, path.length, name);
    if (meaning === undefined) continue;
    found.push({ path: path.join("."), fallback: beside === "" ? below(lines.slice(at + 1), indent.length) : beside, meaning });
    meaning = undefined;
  }
  return found;
}

/** The lines below a key that belong to it, on one line. */
function below(lines: string[], indent: number): string {
  const end = lines.findIndex((line) => line.trim() !== "" && line.search(/\S/) <= indent);
  const block = (end === -1 ? lines : lines.slice(0, end)).map((line) => line.trim()).filter((line) => line !== "");
  const isList = block.every((line) => line.startsWith("- "));
  const items = block.map((line) => line.replace(/^- /, ""));
  return isList ? `[${items.join(", ")}]` : block[0]?.startsWith("- ") ? `[{${items.join(", ")}}]` : `{${block.join(", ")}}`;
}

/** charts/kapstone/README.md, made from values.yaml. */
export function chartPage(): string {
  const cell = (text: string): string => text.replaceAll("|", "\\|");
  const rows = describedValues(readFileSync(new URL("values.yaml", chart), "utf8")).map(
    ({ path, fallback, meaning }) => `| \`${path}\` | \`${cell(fallback)}\` | ${cell(meaning)} |`,
  );
  return `# The chart of Kapstone

Kubernetes 1.30 or newer. One release per namespace.

\`\`\`sh
helm install kapstone charts/kapstone --namespace kapstone --create-namespace                     # quickstart: brings its own PostgreSQL and S3 server
helm install kapstone charts/kapstone -n kapstone -f charts/kapstone/values-production.yaml …   # production: external servers by existingSecret
helm test kapstone -n kapstone                                                                   # every part is ready; a kap is made, called and deleted
\`\`\`

The notes that \`helm install\` prints say how to sign up and create the first kap. [docs/operations.md](../../docs/operations.md) says how to size, upgrade, back up, watch and
uninstall it. Settings of the processes that have no value here go into \`api.env\`, \`operator.env\` and \`mailIngest.env\`; [docs/configuration.md](../../docs/configuration.md) lists
them.

- Secrets that the chart makes are made once. They stay over upgrades and after an uninstall, like the volumes and the \`Kap\` definition. Tools that render charts
  without a cluster (\`helm template\`, some GitOps controllers) cannot look them up: give them \`keys.existingSecret\` and external servers.
- Every pod meets the Pod Security Standard _restricted_, and only the API and the operator have a service-account token.
- With \`networkPolicy.enabled\` every part is closed but for what it needs, in and out. Whether that holds is up to the cluster's network plugin.

## Values

Made from the comments in \`values.yaml\`; run \`npm run docs\` after changing one.

| Value | Default | Meaning |
|---|---|---|
${rows.join("\n")}
`;
}

if (import.meta.main) writeFileSync(new URL("README.md", chart), chartPage());
