import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { newId } from "#platform/ids.ts";
import { createLogger } from "#platform/log.ts";
import { connectPostgres, type Knex } from "#platform/postgres.ts";
import { createTestDatabase, type TestDatabase } from "../../../test/harness/database.ts";
import { endAttempt } from "../runs/finish.ts";
import { fireDue } from "./fire.ts";
import { nextTime, recordedMissed } from "./schedule.ts";

let database: TestDatabase;
let db: Knex;
const log = createLogger("test", { level: "fatal" });
const start = new Date("2026-03-01T00:00:00Z");
const minuteMs = 60_000;
const actor = JSON.stringify({ kind: "member", id: "m", name: "M" });

beforeAll(async () => {
  database = await createTestDatabase();
  db = database.postgres.knex;
});
afterAll(() => database?.close());
beforeEach(() => db.raw("truncate kap_triggers, kap_events, runs cascade"));

async function newKap(): Promise<string> {
  const id = newId();
  const org = newId();
  await db("orgs").insert({ id: org, slug: `o${org}`, name: "o" });
  await db("kaps").insert({
    id,
    org_id: org,
    slug: `k${id}`,
    name: "k",
    current_version_id: newId(),
    schema_name: id,
    role_name: id,
    role_password: Buffer.from("x"),
    bucket: id,
    created_by: actor,
  });
  return id;
}

async function newSchedule(kap: string, cadence: { cron?: string; interval_seconds?: number }): Promise<string> {
  const id = newId();
  const full = { cron: cadence.cron ?? null, interval_seconds: cadence.interval_seconds ?? null, created_at: start };
  await db("kap_triggers").insert({
    id,
    kap_id: kap,
    kind: "schedule",
    file_path: "main.ts",
    ...full,
    next_run_at: nextTime(full, start),
    created_by: actor,
  });
  return id;
}

interface Recorded {
  id: string;
  due_at: Date;
  status: string;
  outcome: string | null;
  detail: string | null;
}
const runsOf = (trigger: string): Promise<Recorded[]> => db("runs").where({ trigger_id: trigger }).orderBy("due_at");
const jobsFor = async (name: string): Promise<string[]> => {
  const { rows } = await db.raw<{ rows: { payload: { run_id: string } }[] }>(
    "select j.payload from kapstone_jobs._private_jobs j join kapstone_jobs._private_tasks t on t.id = j.task_id where t.identifier = ?",
    [name],
  );
  return rows.map((row) => row.payload.run_id);
};
const at = (minutes: number): Date => new Date(start.getTime() + minutes * minuteMs);
const dues = (runs: Recorded[]): string[] => runs.map((run) => run.due_at.toISOString());
const endAll = async (): Promise<void> => {
  for (const { id } of await db("runs").whereIn("status", ["queued", "running"]).select("id"))
    await endAttempt(database.postgres, { id, attempt: 1, outcome: "ok", detail: null });
};

test("a due time makes one run with its job, however many fire at once and how often", async () => {
  const trigger = await newSchedule(await newKap(), { interval_seconds: 900 });
  expect(await fireDue({ db, log }, at(14))).toEqual({ fired: 0, missed: 0 });
  const rounds = await Promise.all(Array.from({ length: 6 }, () => fireDue({ db, log }, at(15))));
  expect(rounds.reduce((sum, round) => sum + round.fired, 0)).toBe(1);
  expect(await fireDue({ db, log }, at(15))).toEqual({ fired: 0, missed: 0 });
  const runs = await runsOf(trigger);
  expect(runs).toMatchObject([{ status: "queued", due_at: at(15) }]);
  expect(await jobsFor("scheduled-run")).toContain(runs[0]?.id);
});

test("while a run is going on the next time is missed, with the reason; after its end the one after it runs", async () => {
  const trigger = await newSchedule(await newKap(), { interval_seconds: 900 });
  await fireDue({ db, log }, at(15));
  expect(await fireDue({ db, log }, at(30))).toEqual({ fired: 0, missed: 1 });
  await endAll();
  expect(await fireDue({ db, log }, at(45))).toEqual({ fired: 1, missed: 0 });
  const runs = await runsOf(trigger);
  expect(runs.map((run) => run.outcome)).toEqual(["ok", "missed", null]);
  expect(runs[1]?.detail).toContain(at(15).toISOString());
});

test("after an outage the newest time runs and the others are recorded missed", async () => {
  const trigger = await newSchedule(await newKap(), { cron: "*/30 * * * *" });
  expect(await fireDue({ db, log }, at(24 * 60 + 10))).toEqual({ fired: 1, missed: 47 });
  const runs = await runsOf(trigger);
  expect(runs.at(-1)).toMatchObject({ status: "queued", due_at: at(24 * 60) });
  expect(new Set(runs.slice(0, -1).map((run) => run.outcome))).toEqual(new Set(["missed"]));
});

test("of a very long outage the newest thousand are recorded and the rest is counted in words", async () => {
  const trigger = await newSchedule(await newKap(), { interval_seconds: 900 });
  const total = 3_000;
  expect(await fireDue({ db, log }, at(total * 15))).toEqual({ fired: 1, missed: recordedMissed });
  const [oldest] = await runsOf(trigger);
  expect(oldest?.detail).toContain(`${total - 1 - recordedMissed} earlier ones are not listed`);
});

test("a clock that goes back repeats nothing, and what it skipped when it went forward is recorded", async () => {
  const trigger = await newSchedule(await newKap(), { interval_seconds: 900 });
  await fireDue({ db, log }, at(15));
  await endAll();
  await fireDue({ db, log }, at(120)); // two hours ahead
  await endAll();
  for (let minute = 16; minute <= 150; minute++) await fireDue({ db, log }, at(minute)); // and back
  expect(dues(await runsOf(trigger))).toEqual(Array.from({ length: 10 }, (_, i) => at(15 * (i + 1)).toISOString()));
});

test("a disabled kap runs nothing, and nothing of that time is made up for when it is enabled", async () => {
  const kap = await newKap();
  const trigger = await newSchedule(kap, { interval_seconds: 900 });
  await db("kaps").where({ id: kap }).update({ state: "disabled" });
  expect(await fireDue({ db, log }, at(20))).toEqual({ fired: 0, missed: 0 });
  // Enabled at minute 100 without a round since: a driver with no cadence in use does not call.
  await db("kaps").where({ id: kap }).update({ state: "active" });
  await db("kap_events").insert({ id: newId(), kap_id: kap, kind: "enabled", at: at(100), actor });
  expect(await fireDue({ db, log }, at(136))).toEqual({ fired: 1, missed: 2 });
  expect(dues(await runsOf(trigger))).toEqual([at(105), at(120), at(135)].map((time) => time.toISOString()));
});

test("paused and deleted schedules are not fired", async () => {
  const kap = await newKap();
  const paused = await newSchedule(kap, { interval_seconds: 900 });
  const deleted = await newSchedule(kap, { interval_seconds: 900 });
  await db("kap_triggers").where({ id: paused }).update({ enabled: false });
  await db("kap_triggers").where({ id: deleted }).update({ deleted_at: db.fn.now() });
  expect(await fireDue({ db, log }, at(60))).toEqual({ fired: 0, missed: 0 });
});

test("a schedule that cannot be read does not keep the others from firing", async () => {
  const kap = await newKap();
  const broken = await newSchedule(kap, { cron: "0 0 * * *" });
  await db("kap_triggers")
    .where({ id: broken })
    .update({ cron: "61 * * * *", next_run_at: at(1) });
  await newSchedule(kap, { interval_seconds: 900 });
  expect(await fireDue({ db, log }, at(15))).toEqual({ fired: 1, missed: 0 });
});

test("a time that comes within seconds gets a job of its own, so that a driver ahead of the database does not pass it by", async () => {
  await newSchedule(await newKap(), { interval_seconds: 900 });
  await fireDue({ db, log }, new Date(at(15).getTime() - 5_000));
  const { rows } = await db.raw("select run_at from kapstone_jobs._private_jobs where key like 'schedules-fire:%'");
  expect(rows).toEqual([{ run_at: at(15) }]);
});

/** A random number generator with a seed, so that a failure can be repeated. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32;
    return state / 2 ** 32;
  };
}

test("over 500 fires with restarts, outages, jumps and connections killed in between, every due time has exactly one record", async () => {
  const next = random(20_261_121);
  const kap = await newKap();
  const cadences = [
    { cron: "*/15 * * * *" },
    { cron: "7 */2 * * *" },
    { interval_seconds: 900 },
    { interval_seconds: 3_700 },
    { cron: "0,30 9-17 * * 1-5" },
  ];
  const triggers = await Promise.all(cadences.map((cadence) => newSchedule(kap, cadence)));
  let replicas = [
    connectPostgres({ url: database.url, applicationName: "fire-test", max: 3, log }),
    connectPostgres({ url: database.url, applicationName: "fire-test", max: 3, log }),
  ];
  let clock = 0;
  let newest = 0;
  let fired = 0;
  let killed = 0;
  for (let round = 0; fired < 500; round++) {
    const chance = next();
    if (chance < 0.05)
      clock += 60 + Math.floor(next() * 600); // an outage of hours
    else if (chance < 0.1)
      clock = Math.max(0, clock - Math.floor(next() * 90)); // the clock is set back
    else clock += 1 + Math.floor(next() * 15);
    newest = Math.max(newest, clock);
    if (round % 40 === 39) {
      // A restart in the middle of a round: its connections are gone, its work is not waited for.
      const [old] = replicas.splice(0, 1);
      const cut = old ? fireDue({ db: old.knex, log }, at(clock)).catch(() => undefined) : undefined;
      await delay(next() * 5);
      await db.raw("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'fire-test' and state <> 'idle'");
      killed++;
      await cut;
      await old?.close();
      replicas.push(connectPostgres({ url: database.url, applicationName: "fire-test", max: 3, log }));
    }
    const results = await Promise.all(
      replicas.map(({ knex }) => fireDue({ db: knex, log }, at(clock)).catch(() => ({ fired: 0, missed: 0 }))),
    );
    for (const result of results) fired += result.fired;
    if (next() < 0.8) await endAll(); // some runs take longer than their cadence
  }
  await Promise.all(replicas.map((replica) => replica.close()));
  replicas = [];
  await fireDue({ db, log }, at(newest));
  expect(killed).toBeGreaterThan(5);
  for (const [index, trigger] of triggers.entries()) {
    const cadence = { cron: null, interval_seconds: null, created_at: start, ...cadences[index] };
    const expected: string[] = [];
    for (let time = nextTime(cadence, start); time <= at(newest); time = nextTime(cadence, time)) expected.push(time.toISOString());
    const runs = await runsOf(trigger);
    expect(dues(runs)).toEqual(expected);
    for (const run of runs) expect(run.outcome === null || ["ok", "missed"].includes(run.outcome)).toBe(true);
  }
  // Every run that was made has its job, and no missed time has one.
  const withJob = new Set(await jobsFor("scheduled-run"));
  const all: Recorded[] = await db("runs").where({ kap_id: kap });
  expect(all.filter((run) => withJob.has(run.id) !== (run.outcome !== "missed"))).toEqual([]);
}, 240_000);
