import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { until } from "../harness/wait.ts";
import { Ledger } from "./ledger.ts";
import { killProcess } from "./processes.ts";
import { proveClearAnswers, proveMails } from "./proof.ts";
import { chance } from "./random.ts";
import { createSubject, type Subject } from "./subject.ts";
import { startTraffic } from "./traffic.ts";
import { createTree, freePort, type Tree } from "./tree.ts";

const mails = Number(process.env.KAPSTONE_FAULT_MAILS ?? 600);
/** Kills among them; one in five is the API's. */
const kills = Math.min(40, Math.max(5, Math.round(mails / 20)));
const trafficMs = 90_000;
const ingestEntry = fileURLToPath(new URL("../../mail-ingest/main.ts", import.meta.url));

let tree: Tree;
let subject: Subject;
let smtpPort: number;
let monitoringPort: number;
let ingest: ChildProcess | undefined;

/** Mail ingest as a process of its own, as a cluster runs it: it holds no database credentials and reaches the API over its internal listener. */
async function startIngest(): Promise<void> {
  const started = spawn(process.execPath, ["--no-node-snapshot", ingestEntry], {
    env: {
      PATH: process.env.PATH ?? "",
      KAPSTONE_SMTP_PORT: String(smtpPort),
      KAPSTONE_MONITORING_PORT: String(monitoringPort),
      KAPSTONE_INTERNAL_URL: `http://127.0.0.1:${tree.internalPort}`,
      KAPSTONE_INGEST_TOKEN: await readFile(join(tree.dataDir, "keys/ingest.token"), "utf8"),
      KAPSTONE_LOG_LEVEL: "warn",
    },
    stdio: ["ignore", "ignore", "inherit"],
  });
  ingest = started;
  await until(async () => (await fetch(`http://127.0.0.1:${monitoringPort}/healthz`)).ok, { timeoutMs: trafficMs, what: "mail ingest" });
}

async function killIngest(): Promise<void> {
  if (!ingest || ingest.exitCode !== null || ingest.signalCode !== null) return;
  ingest.kill("SIGKILL");
  await once(ingest, "exit");
}

beforeAll(async () => {
  tree = await createTree({ KAPSTONE_WARM_RUNTIMES: "2" });
  [smtpPort, monitoringPort] = [await freePort(), await freePort()];
  await tree.start();
  subject = await createSubject(tree);
  await startIngest();
}, 180_000);
afterAll(async () => {
  await killIngest();
  await tree?.close();
});

test(`${mails} mails while mail ingest, the API and runtimes are killed: as many runs as 250s, each mail once`, {
  timeout: 300_000 + mails * 1_000,
}, async () => {
  const random = chance("mail");
  const ledger = new Ledger();
  const traffic = startTraffic(tree, subject, ledger, { callers: 0, savers: 0, senders: 4, mails, smtpPort });
  const plan = random.shuffled(
    Array.from(
      { length: kills },
      (_, i) => (["ingest", "API", "runtime supervisor", "ingest", "runtime child"] as const)[i % 5] ?? "ingest",
    ),
  );
  for (const [index, part] of plan.entries()) {
    // Somewhere in this kill's share of the mails.
    const goal = Math.floor(((index + random.between(1, 9) / 10) * mails) / kills);
    await until(() => ledger.acknowledged() >= goal, { timeoutMs: trafficMs, what: `${goal} mails` }).catch((error: Error) => {
      throw new Error(`${error.message}; the newest failures:\n${ledger.troubles}`);
    });
    const at = Date.now();
    ledger.kills.push({ role: part, at });
    if (part === "ingest") {
      await killIngest();
      await startIngest();
    } else if (part === "API") {
      await tree.killMain();
      await tree.start();
    } else {
      const found = tree.processes(part);
      if (found.length > 0) killProcess(random.pick(found));
    }
    // The last mails may all have been begun before the kill: then there is no other to wait for.
    await until(() => ledger.firstOkSince("mail", at) ?? ledger.acknowledged("mail") >= mails, {
      timeoutMs: trafficMs,
      what: `a mail after the kill of ${part}`,
    });
    const back = ledger.firstOkSince("mail", at);
    console.log(
      `${part} killed at ${ledger.acknowledged()} mails; ${back ? `the next mail was taken after ${back.endedAt - at} ms` : "no mail after it"}`,
    );
  }
  await until(() => ledger.acknowledged("mail") >= mails, { timeoutMs: trafficMs + mails * 500, what: "the last mail" });
  await traffic.stop();
  proveClearAnswers(ledger, { mayBeUnreachable: true });
  expect(ledger.acknowledged("mail")).toBe(mails);
  const began = Date.now();
  const { runs, failed } = await proveMails(tree, subject, ledger);
  console.log(
    `${mails} mails in ${ledger.mails.length} tries: ${runs} runs, ${failed} failed after three attempts; settled in ${Date.now() - began} ms`,
  );
});
