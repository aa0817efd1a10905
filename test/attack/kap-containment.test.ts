import { copyFile, writeFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Answer } from "../harness/http.ts";
import { until } from "../harness/wait.ts";
import { type Attack, type AttackOutcome, expectedStatuses, mainFile } from "./attack.ts";
import { containmentPage, type Measurement } from "./containment-page.ts";
import { type Ground, prepareGround, type RunRecord } from "./ground.ts";
import { type MemoryWatch, openMemoryWatch } from "./memory-watch.ts";
import { keepCalling, type Neighbour, p99 } from "./neighbour.ts";
import { bridgeAttacks } from "./programs/bridge.ts";
import { cpuAttacks } from "./programs/cpu.ts";
import { egressAttacks } from "./programs/egress.ts";
import { escapeAttacks } from "./programs/escape.ts";
import { lifetimeAttacks } from "./programs/lifetime.ts";
import { logAttacks } from "./programs/log.ts";
import { memoryAttacks } from "./programs/memory.ts";
import { sqlAttacks } from "./programs/sql.ts";

const ideas: Record<string, Attack[]> = {
  "Processor time": cpuAttacks,
  Memory: memoryAttacks,
  "What crosses the bridge": bridgeAttacks,
  "Escapes and credentials": escapeAttacks,
  "The life of a run": lifetimeAttacks,
  Logs: logAttacks,
  Database: sqlAttacks,
  "Outward fetch": egressAttacks,
};

const limits = { cpuMs: 400, wallMs: 8_000, memoryMb: 64 };
/** Machines that run tests are loaded: assertions are this much kinder than the goals on the page. */
const kindnessMs = 6_000;
const page = new URL("../../docs/containment.md", import.meta.url);

let ground: Ground;
let neighbour: Neighbour;
let memory: MemoryWatch;
const measured: Measurement[] = [];
const latenciesMs: number[] = [];

beforeAll(async () => {
  ground = await prepareGround({
    KAPSTONE_KAP_REQUEST_CPU_MS: String(limits.cpuMs),
    KAPSTONE_KAP_REQUEST_WALL_MS: String(limits.wallMs),
    KAPSTONE_KAP_MEMORY_MB: String(limits.memoryMb),
  });
  neighbour = keepCalling(ground.neighbour);
  memory = openMemoryWatch();
});

afterAll(async () => {
  await neighbour?.stop();
  await memory?.close();
  if (process.env.KAPSTONE_ATTACK_LOG && ground) await copyFile(ground.test.platform.logFile, process.env.KAPSTONE_ATTACK_LOG);
  await ground?.close();
  if (process.env.KAPSTONE_WRITE_CONTAINMENT === "1" && measured.length > 0)
    await writeFile(page, containmentPage(measured, { ...limits, overallP99Ms: p99(latenciesMs) }));
});

/** Carries an attack out, again when the run says that it was ended because others had the processor: nothing is learnt of the program then. */
async function untilItHadTheProcessor(attack: Attack, before: string | undefined) {
  for (let last = before; ; ) {
    const started = performance.now();
    const answer = await carryOut(attack);
    const answerMs = performance.now() - started;
    const run = await runOf(answer, last);
    if (!run?.detail?.includes("machine was too busy")) return { answer, answerMs, run };
    last = run.id;
  }
}

/** The first good answer of the attacked kap after an attack. */
async function servesAgain(): Promise<number> {
  const started = performance.now();
  let last = "";
  await until(
    async () => {
      const answer = await ground.subject.call({ path: "/ok" });
      last = `${answer.status} ${answer.text}`;
      return last === "200 ok";
    },
    { what: "the attacked kap to serve again" },
  ).catch(async (error: unknown) => {
    throw new Error(`it answered ${last}; its run says ${(await newestRun())?.detail}`, { cause: error });
  });
  return performance.now() - started;
}

const newestRun = async (): Promise<RunRecord | undefined> => (await ground.runs(ground.subject, 1))[0];

/** Calls the attacked kap as the attack says; null is a broken connection. */
async function carryOut(attack: Attack): Promise<Answer | null> {
  if (attack.send) return attack.send(ground);
  return ground.subject.call({ timeoutMs: 25_000, ...attack.request }).catch((error: unknown) => {
    if (error instanceof Error && error.name === "TimeoutError") throw error;
    return null;
  });
}

const harmless = "export default () => new Response('ok');";

/** The run of an attack once it has ended; null when the call was refused before there was one. */
async function runOf(answer: Answer | null, before: string | undefined): Promise<RunRecord | null> {
  const named = answer?.headers["x-kap-run-id"];
  const id = named ?? (answer === null ? (await newestRun())?.id : undefined);
  if (id === undefined || id === before) return null;
  return ground.ended(ground.subject, id);
}

async function measure(idea: string, attack: Attack): Promise<void> {
  const outcomes: readonly AttackOutcome[] = typeof attack.outcome === "string" ? [attack.outcome] : attack.outcome;
  const saved = await ground.subject.save(mainFile(attack, ground));
  if (saved.status === 422) {
    expect(outcomes, saved.text).toContain("unsaved");
    expect(saved.json<{ error: { code: string } }>().error.code).toBe("BUILD_FAILED");
    measured.push({ idea, name: attack.name, outcome: "unsaved", status: 422, answerMs: 0, againMs: 0, peakMb: 0, neighbourP99Ms: 0 });
    return;
  }
  expect(saved.status, saved.text).toBe(200);
  const before = (await newestRun())?.id;
  const peak = memory.watch(await ground.supervisorOf(ground.subject));
  const calm = neighbour.watch();
  const { answer, answerMs, run } = await untilItHadTheProcessor(attack, before);
  if (attack.breaksItself) expect((await ground.subject.save(harmless)).status).toBe(200);
  const againMs = await servesAgain();
  const peakMb = await peak();
  const near = calm();
  const outcome = (run?.outcome ?? "refused") as AttackOutcome;
  measured.push({
    idea,
    name: attack.name,
    outcome,
    status: answer?.status ?? null,
    answerMs,
    againMs,
    peakMb,
    neighbourP99Ms: p99(near.latenciesMs),
  });
  latenciesMs.push(...near.latenciesMs);

  expect(outcomes, `${run?.detail?.slice(0, 500) ?? ""} ${answer?.status} ${answer?.text.slice(0, 500)}`).toContain(outcome);
  expect(expectedStatuses(attack, outcome), answer?.text.slice(0, 500)).toContain(answer?.status ?? null);
  // The record says what the caller saw.
  if (answer !== null && run !== null) expect([null, answer.status]).toContain(run.http_status);
  expect(near.failures).toEqual([]);
  const limitMs = attack.send ? 15_000 : outcome === "cpu-exceeded" ? limits.cpuMs * 2 : limits.wallMs;
  expect(answerMs).toBeLessThan(limitMs + 1_000 + kindnessMs);
  expect(againMs).toBeLessThan(3_000 + kindnessMs);
  await attack.expect?.({ answer, run, ground, lines: () => (run ? ground.lines(ground.subject, run.id) : Promise.resolve([])) });
  expect(ground.canary.hits()).toBe(0);
}

for (const [idea, attacks] of Object.entries(ideas)) {
  describe(idea, () => {
    test.each(attacks.map((attack) => [attack.name, attack] as const))("%s", (_name, attack) => measure(idea, attack));
  });
}

test("the neighbour was calm all the while", () => {
  const all = p99(latenciesMs);
  console.info(`neighbour: p99 ${all.toFixed(1)} ms over ${latenciesMs.length} calls; ${measured.length} programs`);
  expect(latenciesMs.length).toBeGreaterThan(measured.length);
  expect(all).toBeLessThan(1_000);
});
