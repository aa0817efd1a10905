import { afterAll, beforeAll, expect, test } from "vitest";
import { until } from "../harness/wait.ts";
import { Ledger } from "./ledger.ts";
import { proveCallRuns, proveClearAnswers, proveMails, proveRows, proveSaves } from "./proof.ts";
import { chance } from "./random.ts";
import { createSubject, type Subject } from "./subject.ts";
import { startTraffic } from "./traffic.ts";
import { createTree, type Tree } from "./tree.ts";

const trafficMs = 60_000;
const settings = { KAPSTONE_WARM_RUNTIMES: "2" };
let tree: Tree;
let subject: Subject;
beforeAll(async () => {
  tree = await createTree(settings);
  await tree.start();
  subject = await createSubject(tree);
}, 180_000);
afterAll(() => tree?.close());

/** How a whole platform ends. The main process holds the API, mail ingest and the schedules. */
const ends: Record<string, () => Promise<void>> = {
  "SIGKILL of the main process": () => tree.killMain(),
  "SIGKILL of every process": () => tree.killAll(),
  "Ctrl-C": () => tree.stop(),
};

test("however a platform ends under load, the next start on its data folder has everything that was acknowledged, and serves", {
  timeout: 480_000,
}, async () => {
  const random = chance("whole tree");
  const ledger = new Ledger();
  const secret = await subject.org.call({ method: "POST", path: `${subject.path}/endpoint-secrets`, body: { name: "kept" } });
  expect(secret.status).toBe(201);
  const endpoint = /kes_[0-9A-Za-z]+/.exec(secret.text)?.[0] as string;
  const traffic = startTraffic(tree, subject, ledger);
  for (const [name, end] of random.shuffled(Object.entries(ends))) {
    const goal = ledger.acknowledged() + random.between(10, 60);
    await until(() => ledger.acknowledged() >= goal, { timeoutMs: trafficMs, what: `traffic before ${name}` }).catch((error: Error) => {
      throw new Error(`${error.message}; the newest failures:\n${ledger.troubles}`);
    });
    const at = Date.now();
    ledger.kills.push({ role: "everything", at });
    await end();
    const endedMs = Date.now() - at;
    ledger.kills.push({ role: "everything", at: Date.now() });
    const readyMs = await tree.start();
    console.log(`${name}: ended after ${endedMs} ms, ready again ${readyMs} ms after its start`);

    // Old token, session, endpoint secret and file, on the ports of before.
    const since = Date.now();
    expect((await subject.kap.call({ path: "/kept" })).text).toBe("kept bytes");
    const byEndpoint = await tree.http.call({ host: tree.host("kaps"), path: `/__kaps/e/${endpoint}/kept` });
    expect([byEndpoint.status, byEndpoint.text]).toEqual([200, "kept bytes"]);
    expect((await subject.org.call({ path: subject.path })).status).toBe(200);
    await proveRows(tree, subject, ledger);
    await proveSaves(tree, subject, ledger);
    const kinds = ["call", "save", "mail"] as const;
    await until(() => kinds.every((kind) => ledger.firstOkSince(kind, since)), {
      timeoutMs: trafficMs,
      what: `calls, saves and mails after ${name}`,
    }).catch((error: Error) => {
      throw new Error(`${error.message}; the newest failures:\n${ledger.troubles}`);
    });
  }
  await traffic.stop();
  console.log(
    `acknowledged: ${ledger.acknowledged("call")} calls, ${ledger.acknowledged("save")} saves, ${ledger.acknowledged("mail")} mails in ${ledger.mails.length} tries`,
  );
  proveClearAnswers(ledger, { mayBeUnreachable: true });
  await proveRows(tree, subject, ledger);
  await proveSaves(tree, subject, ledger);
  const began = Date.now();
  console.log("mails", await proveMails(tree, subject, ledger), `settled in ${Date.now() - began} ms`);
  console.log("call runs", await proveCallRuns(tree, subject, ledger));
});
