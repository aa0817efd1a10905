import { mkdirSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { firstCall } from "./first-call.ts";
import { keyCheck } from "./key-check.ts";
import type { Measure, Row } from "./measure.ts";
import { benchSettings } from "./platform.ts";
import { isPinned } from "./processes.ts";
import { runtimeAlone } from "./runtime.ts";
import { start } from "./start.ts";
import { wholePath } from "./whole-path.ts";

const measures: Measure[] = [runtimeAlone, wholePath, firstCall, start, keyCheck];

/** `npm run bench [measure …]`: runs all measures or those named, prints the table, and writes it to bench/results. */
const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !measures.some((measure) => measure.name === name));
if (unknown.length > 0) {
  console.error(`No measure is called ${unknown.join(", ")}: there are ${measures.map((measure) => measure.name).join(", ")}.`);
  process.exit(1);
}
const rows: Row[] = [];
for (const measure of measures.filter(({ name }) => wanted.length === 0 || wanted.includes(name))) {
  console.log(`Measuring ${measure.name} …`);
  rows.push(...(await measure.run()));
}
const table = [
  `${new Date().toISOString().slice(0, 10)}, Node ${process.version}, ${cpus()[0]?.model ?? "unknown"} × ${cpus().length}, ${isPinned ? "measured things on one core, PostgreSQL and load on another" : "not pinned to cores"}`,
  `Limits raised by configuration, the limiter running: ${Object.entries(benchSettings)
    .filter(([name]) => name.endsWith("_PER_MINUTE"))
    .map(([name, value]) => `${name}=${value}`)
    .join(", ")}`,
  "",
  "| Measure | Value | Peer in the same run | Result | Goal | Met |",
  "|---|---|---|---|---|---|",
  ...rows.map((row) => `| ${row.measure} | ${row.value} | ${row.peer} | ${row.result} | ${row.goal} | ${row.isMet ? "yes" : "no"} |`),
  "",
].join("\n");
console.log(`\n${table}`);
const folder = new URL("results/", import.meta.url);
mkdirSync(folder, { recursive: true });
writeFileSync(new URL(`${wanted.length === 0 ? "all" : wanted.join("-")}.md`, folder), table);
