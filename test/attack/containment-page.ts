import { cpus } from "node:os";

/** One row of the page: what one attack did and cost. */
export interface Measurement {
  idea: string;
  name: string;
  outcome: string;
  status: number | null;
  /** From the call to its typed answer or broken connection. */
  answerMs: number;
  /** From then to the next good answer of the same kap. */
  againMs: number;
  /** Highest sum of resident memory of the runtime's processes. */
  peakMb: number;
  neighbourP99Ms: number;
}

const cell = (text: string): string => text.replaceAll("|", "\\|");

/** The page of the last measured run, as Markdown. */
export function containmentPage(
  rows: readonly Measurement[],
  facts: { cpuMs: number; wallMs: number; memoryMb: number; overallP99Ms: number },
): string {
  const ideas = [...new Set(rows.map((row) => row.idea))];
  const worst = (key: "againMs" | "peakMb"): Measurement | undefined => rows.toSorted((a, b) => b[key] - a[key])[0];
  const sections = ideas.map((idea) => {
    const own = rows.filter((row) => row.idea === idea);
    const lines = own.map(
      (row) =>
        `| ${cell(row.name)} | ${row.outcome} | ${row.status ?? "cut"} | ${row.answerMs.toFixed(0)} | ${row.againMs.toFixed(0)} | ${row.peakMb.toFixed(0)} | ${row.neighbourP99Ms.toFixed(0)} |`,
    );
    return `## ${idea}\n\n| Program | Outcome | Status | Answer ms | Serves again ms | Peak MB | Neighbour p99 ms |\n|---|---|---|---:|---:|---:|---:|\n${lines.join("\n")}\n`;
  });
  return `# Containment

What ${rows.length} hostile programs do to a kap, to its runtime and to its neighbour. This page is written by the attack suite
(\`KAPSTONE_WRITE_CONTAINMENT=1 npm test -- test/attack/kap-containment.test.ts\`); the programs are in [\`test/attack/programs\`](../test/attack/programs),
and the suite fails when one ends otherwise. Each program runs on a whole platform, called through its public listener; another kap of the same
organisation is called every ten milliseconds all the while and must never fail.

* **Outcome** and **status**: what the run record says and what the caller saw; *cut* is a broken connection, *unsaved* a program the build refuses.
* **Answer**: from the call to its typed answer. Goal: the limit and one second more.
* **Serves again**: from then to the next good answer of the same kap. Goal: 300 ms.
* **Peak**: resident memory of the runtime's processes together (supervisor, serving child, spare; shared pages counted in each).
* **Neighbour p99**: latency of the other kap while the program ran. Goal: under 50 ms.

Measured with limits of ${facts.cpuMs} ms of CPU time, ${facts.wallMs} ms of wall time and ${facts.memoryMb} MiB, on ${cpus().length} cores that also ran the tests, the
API and PostgreSQL. The default limits are proven once each by \`test/attack/kap-limits.test.ts\`, what stays behind after many kills by
\`test/attack/kap-kills.test.ts\`.

The neighbour's p99 over all of it: **${facts.overallP99Ms.toFixed(0)} ms**. Longest pause of the attacked kap: **${worst("againMs")?.againMs.toFixed(0)} ms** (${worst("againMs")?.name}). Highest memory:
**${worst("peakMb")?.peakMb.toFixed(0)} MB** (${worst("peakMb")?.name}).

${sections.join("\n")}`;
}
