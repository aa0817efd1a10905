import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, test } from "vitest";
import { until } from "../harness/wait.ts";
import { Ledger } from "./ledger.ts";
import { killProcess, type TreeProcess } from "./processes.ts";
import { proveCallRuns, proveClearAnswers, proveMails, proveRows, proveSaves } from "./proof.ts";
import { chance } from "./random.ts";
import { createSubject, type Subject } from "./subject.ts";
import { startTraffic } from "./traffic.ts";
import { createTree, type Tree } from "./tree.ts";

/** Times each part is killed. */
const rounds = Number(process.env.KAPSTONE_FAULT_ROUNDS ?? 2);
/** By when a part must be back. PostgreSQL replays its log first; loaded machines get more than anybody should wait. */
const backMs = 60_000;
const parts = ["runtime child", "runtime supervisor", "warm runtime", "postgres backend", "postmaster", "postgres guard", "build"] as const;
type Part = (typeof parts)[number];

let tree: Tree;
let subject: Subject;
beforeAll(async () => {
  tree = await createTree();
  await tree.start();
  subject = await createSubject(tree);
}, 180_000);
afterAll(() => tree?.close());

/** The process to kill for a part; the runtime's are those that serve the kap now. Null while there is none. */
async function victim(part: Part, pick: (from: TreeProcess[]) => TreeProcess): Promise<TreeProcess | null> {
  const one = (all: TreeProcess[]): TreeProcess | null => (all.length === 0 ? null : pick(all));
  if (part === "runtime child" || part === "runtime supervisor" || part === "warm runtime") {
    const [row] = await tree.query<{ control_address: string }>(
      "select control_address from runtimes where kap_id = $1 and state = 'ready' and control_address is not null",
      [subject.kap.id],
    );
    const serving = row ? tree.supervisorAt(row.control_address) : null;
    if (!serving) return null;
    if (part === "runtime supervisor") return serving;
    if (part === "warm runtime") return one(tree.processes("runtime supervisor").filter((process) => process.pid !== serving.pid));
    const children = tree.processes("runtime child").filter((process) => process.parent === serving.pid);
    return children.sort((a, b) => a.startedAt - b.startedAt)[0] ?? null; // the spare is the younger one
  }
  return one(tree.processes(part));
}

test("whichever process is killed under calls, saves and mails: nothing acknowledged is lost and the part comes back by itself", {
  timeout: 480_000,
}, async () => {
  const random = chance("any process");
  const ledger = new Ledger();
  const traffic = startTraffic(tree, subject, ledger);
  const back: Record<string, number>[] = [];
  const plan = random.shuffled(Array.from({ length: rounds }, () => parts).flat());
  for (const part of plan) {
    const goal = ledger.acknowledged() + random.between(3, 25);
    await until(() => ledger.acknowledged() >= goal, { timeoutMs: backMs, what: `traffic before the next kill (${part})` });
    const target = await until(() => victim(part, random.pick), { timeoutMs: backMs, what: `a ${part} to kill` });
    await delay(random.between(0, 30)); // a moment of its own inside the calls under way
    const at = Date.now();
    ledger.kills.push({ role: part, at });
    if (!killProcess(target)) continue; // it ended by itself meanwhile
    const kinds = ["call", "save", "mail"] as const;
    await until(() => !tree.isRunning() || kinds.every((kind) => ledger.firstOkSince(kind, at)), {
      timeoutMs: backMs,
      what: `calls, saves and mails after the kill of ${part}`,
    }).catch((error: Error) => {
      throw new Error(`${error.message}; the newest failures:\n${ledger.troubles}`);
    });
    if (!tree.isRunning()) throw new Error(`the platform ended with its ${part}:\n${(await tree.ended()).output}`);
    back.push(Object.fromEntries(kinds.map((kind) => [kind, (ledger.firstOkSince(kind, at)?.endedAt ?? at) - at])));
    console.log(`${part} killed; again served after ms: ${JSON.stringify(back.at(-1))}`);
  }
  await traffic.stop();
  console.log(
    `acknowledged: ${ledger.acknowledged("call")} calls of ${ledger.calls.length}, ${ledger.acknowledged("save")} saves of ${ledger.saves.length}, ` +
      `${ledger.acknowledged("mail")} mails in ${ledger.mails.length} tries; ${ledger.calls.filter((call) => call.isCut).length} answers were cut`,
  );
  proveClearAnswers(ledger, { mayBeUnreachable: false });
  await proveRows(tree, subject, ledger);
  await proveSaves(tree, subject, ledger);
  console.log("mails", await proveMails(tree, subject, ledger));
  console.log("call runs", await proveCallRuns(tree, subject, ledger));
  await until(async () => (await tree.http.call({ host: tree.host("api"), path: "/readyz" })).status === 200, { what: "readiness" });
});
