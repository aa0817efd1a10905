import { mkdir, readdir, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { crashLostRuns, crashRunsOf } from "../../api/services/runs/crash.ts";
import { readReport, takeReport } from "../../api/services/runs/report.ts";
import { dropOldRuns } from "../../api/services/runs/retention.ts";
import { newId } from "../../platform/ids.ts";
import { signUpOrg, type TestKap, type TestOrg } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";
import { until } from "../harness/wait.ts";

let platform: TestPlatform;
let org: TestOrg;
const program = `export default () => new Response("ok");`;

beforeAll(async () => {
  platform = await startTestPlatform();
  org = await signUpOrg(platform);
});
afterAll(() => platform?.close());

test("a runtime's report is taken once, however often it comes; another kap's runs and an ended run stay as they are", async () => {
  const { knex } = platform.database.postgres;
  const { deps } = platform.platform.api;
  const [mine, other] = await Promise.all([org.createKap(program), org.createKap(program)]);
  const open = async (of: TestKap): Promise<string> => {
    const id = newId();
    await knex("runs").insert({ id, kap_id: of.id, org_id: org.id, trigger_kind: "request", status: "running" });
    return id;
  };
  const [first, foreign] = [await open(mine), await open(other)];
  const end = (id: string, outcome = "ok") => ({
    id,
    outcome,
    detail: "d",
    http_status: 200,
    started_at: new Date().toISOString(),
    finished_at: new Date().toISOString(),
    duration_ms: 5,
    cpu_ms: 2,
    phases: { handler_ms: 4 },
    egress_bytes: 10,
    db_ms: 1,
  });
  const line = (run_id: string, n: number) => ({ run_id, n, at: new Date().toISOString(), level: "info", text: `line ${n}` });
  const report = {
    runs: [end(first), end(foreign), { id: "nonsense" }],
    lines: [line(first, 1), line(first, 2), line(foreign, 1), 7],
    idle_since: null,
  };
  const runtime = { id: newId(), kap_id: mine.id };
  for (let i = 0; i < 3; i++) await takeReport(deps.postgres.hot, runtime, readReport(report, deps.log));
  await Promise.all(
    Array.from({ length: 5 }, () =>
      takeReport(deps.postgres.hot, runtime, readReport({ runs: [end(first, "error")] }, deps.log)).catch(() => undefined),
    ),
  );
  expect(await knex("runs").where({ id: first }).first()).toMatchObject({ status: "succeeded", outcome: "ok" });
  expect(await knex("runs").where({ id: foreign }).first()).toMatchObject({ status: "running", cpu_ms: null });
  expect(await knex("kap_log_lines").where({ kap_id: mine.id }).orderBy("position").pluck("n")).toEqual([1, 2]);
  expect(await knex("kap_log_lines").where({ run_id: foreign })).toEqual([]);
  expect(await knex("kap_usage").where({ kap_id: mine.id }).first()).toMatchObject({ runs: 1, failed_runs: 0 });
});

test("a run whose runtime is killed is crashed, and says so", async () => {
  const one = await org.createKap(program);
  const { knex } = platform.database.postgres;
  const id = newId();
  const runtime = newId();
  await knex("runs").insert({ id, kap_id: one.id, org_id: org.id, trigger_kind: "request", status: "running", runtime_id: runtime });
  expect(await crashRunsOf(platform.database.postgres, runtime, "the runtime was killed")).toBe(1);
  expect(await crashRunsOf(platform.database.postgres, runtime, "again")).toBe(0);
  const page = await org.call({ path: `/v1/orgs/${org.id}/kaps/${one.id}/runs` });
  const [run] = page.json<{ runs: unknown[] }>().runs;
  expect(run).toMatchObject({
    status: "failed",
    outcome: "crashed",
    detail: "the runtime was killed",
    what_to_do: expect.stringContaining("in part"),
  });
});

test("runs that nobody ends are ended by the sweep: no runtime took them, it is gone, or their time is over", async () => {
  const one = await org.createKap(program);
  const { knex } = platform.database.postgres;
  const ago = (seconds: number) => knex.raw("now() - make_interval(secs => ?)", [seconds]);
  const rows = {
    orphan: { trigger_kind: "request", runtime_id: newId(), started_at: ago(61) },
    fresh: { trigger_kind: "request", runtime_id: newId(), started_at: ago(5) },
    unclaimed: { trigger_kind: "schedule", started_at: ago(130) },
    overdue: { trigger_kind: "request", started_at: ago(151) },
    working: { trigger_kind: "request", started_at: ago(100) },
  };
  const ids: Record<string, string> = {};
  for (const [name, row] of Object.entries(rows)) {
    ids[name] = newId();
    await knex("runs").insert({ id: ids[name], kap_id: one.id, org_id: org.id, status: "running", ...row });
  }
  await crashLostRuns(platform.database.postgres, { requestWallMs: 30_000, backgroundWallMs: 900_000 });
  const status = async (name: string) => (await knex("runs").where({ id: ids[name] }).first()).outcome;
  expect([await status("orphan"), await status("unclaimed"), await status("overdue")]).toEqual(["crashed", "crashed", "crashed"]);
  expect([await status("fresh"), await status("working")]).toEqual([null, null]);
});

test("runs past their time go with their lines; open ones and newer ones stay", async () => {
  const one = await org.createKap(program);
  const { deps } = platform.platform.api;
  const { knex } = platform.database.postgres;
  const dayMs = 86_400_000;
  const now = Date.now();
  // Ids as they would have been made then: a generator of its own, since that of the process only goes forward.
  const idOf = (days: number, n: number): string => {
    const time = (now - days * dayMs).toString(16).padStart(12, "0");
    return `${time.slice(0, 8)}-${time.slice(8)}-7000-8000-${String(n).padStart(12, "0")}`;
  };
  const insert = async (id: string, status: string) => {
    await knex("runs").insert({ id, kap_id: one.id, org_id: org.id, trigger_kind: "request", status });
    await knex("kap_log_lines").insert({
      run_id: id,
      n: 1,
      kap_id: one.id,
      position: Math.floor(Math.random() * 1e9),
      at: new Date(),
      level: "info",
      text: "x",
    });
  };
  await insert(idOf(91, 1), "succeeded");
  await insert(idOf(91, 2), "running");
  await insert(idOf(89, 3), "failed");
  await dropOldRuns(deps);
  expect((await knex("runs").where({ kap_id: one.id }).pluck("id")).sort()).toEqual([idOf(91, 2), idOf(89, 3)].sort());
  expect(await knex("kap_log_lines").where({ kap_id: one.id }).pluck("run_id")).toEqual([idOf(89, 3)]);
});

test("the hourly round removes what killed uploads have left, of mails and of kaps, and puts the next round into the queue", async () => {
  const one = await org.createKap(program);
  const { deps } = platform.platform.api;
  const { bucket }: { bucket: string } = await deps.db("kaps").where({ id: one.id }).first("bucket");
  const dayAgo = new Date(Date.now() - 86_400_000 - 60_000);
  const folders = [bucket, "mail"].map((name) => join(deps.config.dataDir, "objects", name, "uploads"));
  for (const folder of folders) {
    await mkdir(folder, { recursive: true });
    for (const name of ["left-behind", "under-way"]) await writeFile(join(folder, name), "part of an object");
    await utimes(join(folder, "left-behind"), dayAgo, dayAgo);
  }
  const itsJobs = "task_id in (select id from kapstone_jobs._private_tasks where identifier = 'runs-retention')";
  const waiting = async (): Promise<{ run_at: Date } | undefined> =>
    (await deps.db.raw(`select run_at from kapstone_jobs._private_jobs where ${itsJobs} and locked_at is null and run_at > now()`)).rows[0];
  await until(waiting, { what: "the end of the first round, which comes with the start" });
  await deps.db.raw(`update kapstone_jobs._private_jobs set run_at = now() where ${itsJobs}`);
  for (const folder of folders) await until(async () => (await readdir(folder)).join() === "under-way");
  expect((await until(waiting)).run_at.getTime()).toBeLessThan(Date.now() + 3_600_000);
});
