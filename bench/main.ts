import { mkdirSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { firstCall } from "./first-call.ts";
import { growth } from "./growth.ts";
import { kapData } from "./kap-data.ts";
import { keyCheck } from "./key-check.ts";
import { killsLeftBehind } from "./kills.ts";
import { endOnSignals } from "./leftovers.ts";
import { mail } from "./mail.ts";
import type { Measure, Row } from "./measure.ts";
import { benchSettings } from "./platform.ts";
import { isPinned, leaveMeasuredCore } from "./processes.ts";
import { runtimeAlone } from "./runtime.ts";
import { start } from "./start.ts";
import { tick } from "./tick.ts";
import { wholePath } from "./whole-path.ts";

const measures: Measure[] = [runtimeAlone, wholePath, firstCall, start, keyCheck, mail, kapData];
/** These take many minutes each: they run when they are named. */
const longMeasures: Measure[] = [killsLeftBehind, growth, tick];

/** `npm run bench [measure …]`: runs all but the long measures, or those named, prints the table, and writes it to bench/results. */
const wanted = process.argv.slice(2);
const known = [...measures, ...longMeasures];
const unknown = wanted.filter((name) => !known.some((measure) => measure.name === name));
if (unknown.length > 0) {
  console.error(`No measure is called ${unknown.join(", ")}: there are ${known.map((measure) => measure.name).join(", ")}.`);
  process.exit(1);
}
endOnSignals();
leaveMeasuredCore();
const rows: Row[] = [];
for (const measure of wanted.length === 0 ? measures : known.filter(({ name }) => wanted.includes(name))) {
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
