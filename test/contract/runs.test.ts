import { connect } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { newId } from "../../platform/ids.ts";
import type { Answer } from "../harness/http.ts";
import { signUpOrg, type TestKap, type TestOrg } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";
import { until } from "../harness/wait.ts";

let platform: TestPlatform;
let org: TestOrg;
let kap: TestKap;
let base: string;

const program = `
import { db } from "kap";
export default async (request) => {
  const { pathname, searchParams } = new URL(request.url);
  if (pathname === "/throw") throw new Error("as asked");
  if (pathname === "/log") { for (let i = 0; i < Number(searchParams.get("n")); i++) console.log("line", i); return new Response("logged"); }
  if (pathname === "/odd") { console.log("nul \\u0000 and \\ud800 alone"); return new Response("odd"); }
  if (pathname === "/slow") { await new Promise((done) => setTimeout(done, 20_000)); }
  if (pathname === "/db") await db.query("select 1");
  return new Response("ok");
};`;

interface Run {
  id: string;
  status: string;
  outcome: string | null;
  what_to_do: string;
  message: string;
  detail: string | null;
  finished_at: string | null;
  duration_ms: number | null;
  cpu_ms: number | null;
  acknowledged_by: { name: string } | null;
}
interface Page {
  runs: Run[];
  next_cursor: string | null;
  has_more: boolean;
  status: string;
  message: string;
}

beforeAll(async () => {
  platform = await startTestPlatform();
  org = await signUpOrg(platform);
  kap = await org.createKap(program);
  base = `/v1/orgs/${org.id}/kaps/${kap.id}`;
});
afterAll(() => platform?.close());

const get = (path: string): Promise<Answer> => org.call({ path });
const runsPage = async (query = "", of = base): Promise<Page> => {
  const answer = await get(`${of}/runs${query}`);
  expect(answer.status, answer.text).toBe(200);
  return answer.json<Page>();
};
const runOf = async (answer: Answer, of = base): Promise<Run> =>
  until(async () => {
    const found = (await runsPage("?limit=100", of)).runs.find((run) => run.id === answer.headers["x-kap-run-id"]);
    return found?.finished_at && found;
  });
const codeOf = (answer: Answer): string => `${answer.status} ${answer.json<{ error: { code: string } }>().error.code}`;

test("a run tells how it ended, how long it took and what to do; the page tells the kap's state in words", async () => {
  const good = await runOf(await kap.call());
  expect(good).toMatchObject({
    status: "succeeded",
    outcome: "ok",
    what_to_do: expect.stringMatching(/^Nothing/),
    http_status: 200,
    version_id: kap.versionId,
    method: "GET",
  });
  expect(good.duration_ms).toBeGreaterThan(0);
  expect(good.cpu_ms).toBeGreaterThanOrEqual(0);
  const bad = await runOf(await kap.call({ path: "/throw" }));
  expect(bad).toMatchObject({ status: "failed", outcome: "error", detail: expect.stringContaining("as asked"), http_status: 500 });
  expect(bad.what_to_do).toMatch(/log of this run/);
  expect(await runsPage()).toMatchObject({ status: "active", message: expect.stringContaining("active") });
});

test("20 runs by default, 100 at most; pages neither repeat nor skip while new runs are made", async () => {
  const many = await org.createKap(program);
  const of = `/v1/orgs/${org.id}/kaps/${many.id}`;
  const answers: Answer[] = [];
  for (let i = 0; i < 45; i++) answers.push(await many.call());
  const first = await runsPage("", of);
  expect([first.runs.length, first.has_more]).toEqual([20, true]);
  await Promise.all(Array.from({ length: 10 }, () => many.call()));
  const seen = [...first.runs];
  for (let cursor = first.next_cursor; cursor !== null; ) {
    const page = await runsPage(`?cursor=${cursor}`, of);
    seen.push(...page.runs);
    cursor = page.next_cursor;
    await many.call();
  }
  expect(seen.map((run) => run.id)).toEqual(answers.map((answer) => answer.headers["x-kap-run-id"]).reverse());
  for (const query of ["?limit=0", "?limit=101", "?limit=x", "?cursor=nonsense", "?failed_since=yesterday", "?failed_since=2026-11-21"]) {
    expect(codeOf(await get(`${of}/runs${query}`)), query).toBe("422 VALIDATION_FAILED");
  }
});

test("failed_since shows failed runs only, from that moment on", async () => {
  const one = await org.createKap(program);
  const of = `/v1/orgs/${org.id}/kaps/${one.id}`;
  await runOf(await one.call(), of);
  const before = await runOf(await one.call({ path: "/throw" }), of);
  const since = new Date(Date.parse(before.finished_at as string) + 1).toISOString();
  const after = await runOf(await one.call({ path: "/throw" }), of);
  expect((await runsPage(`?failed_since=${since}`, of)).runs.map((run) => run.id)).toEqual([after.id]);
  expect((await runsPage(`?failed_since=${before.finished_at}`, of)).runs.map((run) => run.id)).toEqual([after.id, before.id]);
});

test("the log comes in order, 200 lines a page, and its cursor goes on where it ended, without a gap", async () => {
  const one = await org.createKap(program);
  const log = (query = "", path = `/v1/kaps/${one.id}/log`) =>
    get(`${path}${query}`).then((answer) =>
      answer.json<{ lines: { text: string; run_id: string }[]; next_cursor: string; has_more: boolean; status: string }>(),
    );
  const empty = await log();
  expect(empty).toMatchObject({ lines: [], has_more: false, status: "active" });
  await one.call({ path: "/log?n=450" });
  await until(async () => (await platform.database.postgres.knex("kap_log_lines").where({ kap_id: one.id })).length === 450);
  const lines: string[] = [];
  let cursor = empty.next_cursor;
  for (const expected of [200, 200, 50]) {
    const page = await log(`?after=${cursor}`);
    expect([page.lines.length, page.has_more]).toEqual([expected, lines.length + expected < 450]);
    lines.push(...page.lines.map((line) => line.text));
    cursor = page.next_cursor;
  }
  expect(lines).toEqual(Array.from({ length: 450 }, (_, i) => `line ${i}`));
  expect((await log(`?after=${cursor}`)).lines).toEqual([]);
  await Promise.all(Array.from({ length: 5 }, () => one.call({ path: "/log?n=3" })));
  await until(async () => (await log(`?after=${cursor}`)).lines.length === 15);
  expect((await log("?limit=1", `/v1/orgs/${org.slug}/kaps/${one.slug}/log`)).lines.map((line) => line.text)).toEqual(["line 0"]);
  expect(codeOf(await get(`/v1/kaps/${one.id}/log?after=zzz`))).toBe("422 VALIDATION_FAILED");
  expect(codeOf(await get(`/v1/kaps/${one.id}/log?limit=201`))).toBe("422 VALIDATION_FAILED");
});

test("text that PostgreSQL cannot hold is logged with a mark in its place", async () => {
  const one = await org.createKap(program);
  await one.call({ path: "/odd" });
  const [line] = await until(async () => {
    const { lines } = (await get(`/v1/kaps/${one.id}/log`)).json<{ lines: { text: string }[] }>();
    return lines.length > 0 && lines;
  });
  expect(line?.text).toBe("nul \uFFFD and \uFFFD alone");
});

test("usage adds up against a known workload", async () => {
  const one = await org.createKap(program);
  const calls = await Promise.all(Array.from({ length: 30 }, (_, i) => one.call({ path: i % 3 === 0 ? "/throw" : "/db" })));
  expect(calls.filter((call) => call.status === 500)).toHaveLength(10);
  const used = await until(async () => {
    const answer = (await get(`/v1/orgs/${org.id}/usage`)).json<{ usage: Record<string, number | string>[]; enforced: boolean }>();
    expect(answer.enforced).toBe(false);
    const days = answer.usage.filter((day) => day.kap_id === one.id);
    return days.reduce((sum, day) => sum + Number(day.runs), 0) === 30 && days;
  });
  const sum = (field: string): number => used.reduce((total, day) => total + Number(day[field]), 0);
  expect(sum("failed_runs")).toBe(10);
  const rows = await platform.database.postgres.knex("runs").where({ kap_id: one.id });
  expect(sum("duration_ms")).toBeCloseTo(
    rows.reduce((total, run) => total + run.duration_ms, 0),
    3,
  );
  expect(sum("cpu_ms")).toBeCloseTo(
    rows.reduce((total, run) => total + run.cpu_ms, 0),
    3,
  );
  expect(sum("db_ms")).toBeGreaterThan(0);
  expect(used[0]?.day).toMatch(/^\d{4}-\d\d-\d\d$/);
});

test("usage counts every run that a kap has a record of: those the platform ended or refused, a caller that went away, times that were missed", async () => {
  const { knex } = platform.database.postgres;
  const one = await org.createKap(`import { store } from "kap";
  export default {
    async fetch(request) {
      if (new URL(request.url).pathname === "/slow") {
        await store.put("begun", "x");
        if (!request.signal.aborted) await new Promise((resolve) => request.signal.addEventListener("abort", resolve));
      }
      if (new URL(request.url).pathname === "/throw") throw new Error("no");
      return new Response("ok");
    },
    async scheduled() {},
  };`);
  expect((await one.call()).status).toBe(200);
  expect((await one.call({ path: "/throw" })).status).toBe(500);
  const caller = connect(platform.platform.port, "127.0.0.1");
  caller.write(`GET /slow HTTP/1.1\r\nhost: ${platform.host(`${one.slug}.kaps`)}\r\nauthorization: Bearer ${one.token}\r\n\r\n`);
  await until(async () => (await get(`/v1/kaps/${one.id}/store/files/object?key=begun`)).status === 200);
  caller.destroy();
  await until(async () => (await knex("runs").where({ kap_id: one.id, outcome: "client-gone" })).length === 1);
  // Its runtime is gone, and a body that is streamed cannot be sent to another: the gateway ends the run.
  await knex("runtimes").where({ kap_id: one.id }).update({ data_address: "tcp:127.0.0.1:1" });
  expect((await one.call({ method: "POST", body: Buffer.alloc(300_000, 97) })).status).toBe(503);
  // No runtime can be claimed: its database login cannot be unsealed.
  const { role_password } = await knex("kaps").where({ id: one.id }).first("role_password");
  await knex("runtimes").where({ kap_id: one.id }).delete();
  await knex("kaps")
    .where({ id: one.id })
    .update({ role_password: Buffer.from("broken") });
  expect((await one.call()).status).toBe(500);
  await knex("kaps").where({ id: one.id }).update({ role_password });
  // A schedule that was not fired for three of its times.
  const made = await org.call({
    method: "POST",
    path: `/v1/orgs/${org.id}/kaps/${one.id}/triggers`,
    body: { kind: "schedule", file_path: "main.ts", interval_seconds: 900 },
  });
  const { trigger } = made.json<{ trigger: { id: string } }>();
  await knex("kap_triggers")
    .where({ id: trigger.id })
    .update({ created_at: knex.raw("created_at - interval '1 hour'"), next_run_at: knex.raw("next_run_at - interval '1 hour'") });
  const { fireDue } = await import("../../api/services/triggers/fire.ts");
  await fireDue(platform.platform.api.deps);
  const runs = await until(async () => {
    const all: { status: string; outcome: string }[] = await knex("runs").where({ kap_id: one.id });
    return all.every((run) => run.status === "succeeded" || run.status === "failed") && all;
  });
  const outcomes = runs.map((run) => run.outcome).sort();
  expect(outcomes.filter((outcome) => outcome === "missed").length).toBeGreaterThanOrEqual(2);
  expect(outcomes.filter((outcome) => outcome !== "missed")).toEqual(["client-gone", "crashed", "error", "ok", "ok", "refused"]);
  await until(async () => {
    const { usage } = (await get(`/v1/orgs/${org.id}/usage`)).json<{ usage: { kap_id: string; runs: number; failed_runs: number }[] }>();
    const days = usage.filter((day) => day.kap_id === one.id);
    const sum = (field: "runs" | "failed_runs"): number => days.reduce((total, day) => total + day[field], 0);
    expect([sum("runs"), sum("failed_runs")]).toEqual([runs.length, runs.filter((run) => run.status === "failed").length]);
    return true;
  });
});

test("acknowledging: a failed run once and for all, attributed; a run that has not failed 409; an unknown one 404", async () => {
  const one = await org.createKap(
    "export default { async scheduled(event, ctx) { if (ctx.kap.name.startsWith('x')) return; throw new Error('no') } }",
  );
  const of = `/v1/orgs/${org.id}/kaps/${one.id}`;
  const trigger = (
    await org.call({ method: "POST", path: `${of}/triggers`, body: { kind: "schedule", file_path: "main.ts", interval_seconds: 900 } })
  ).json<{ trigger: { id: string } }>().trigger;
  const { run } = (await org.call({ method: "POST", path: `${of}/triggers/${trigger.id}/run-now` })).json<{ run: Run }>();
  expect(run, run.detail ?? "").toMatchObject({ status: "failed", outcome: "error" });
  const { knex } = platform.database.postgres;
  // What the runtime reports of the run comes a moment later, and belongs to what is shown.
  await until(async () => (await knex("runs").where({ id: run.id }).first()).measured_at);
  const acknowledge = (id: string) => org.call({ method: "POST", path: `${of}/trigger-runs/${id}/acknowledge` });
  const first = (await acknowledge(run.id)).json<{ run: Run }>().run;
  expect(first.acknowledged_by).toMatchObject({ name: "Owner" });
  expect((await acknowledge(run.id)).json<{ run: Run }>().run).toEqual(first);
  const good = newId();
  await knex("runs").insert({ id: good, kap_id: one.id, org_id: org.id, trigger_kind: "schedule", status: "succeeded", outcome: "ok" });
  expect(codeOf(await acknowledge(good))).toBe("409 CONFLICT");
  expect((await acknowledge(newId())).status).toBe(404);
  expect((await acknowledge("x")).status).toBe(404);
});

test("trigger runs page by `before`, newest first; a run of a request is not among them", async () => {
  const one = await org.createKap(program);
  const { knex } = platform.database.postgres;
  const ids = Array.from({ length: 250 }, () => newId());
  await knex("runs").insert(
    ids.map((id) => ({ id, kap_id: one.id, org_id: org.id, trigger_kind: "schedule", status: "succeeded", outcome: "ok" })),
  );
  await one.call();
  const of = `/v1/orgs/${org.id}/kaps/${one.id}/trigger-runs`;
  const seen: string[] = [];
  const sizes: number[] = [];
  for (let before: string | null = ""; before !== null; ) {
    const page: Page = (await get(`${of}${before ? `?before=${before}` : ""}`)).json<Page>();
    sizes.push(page.runs.length);
    seen.push(...page.runs.map((run) => run.id));
    expect(page.has_more).toBe(page.next_cursor !== null);
    if (page.next_cursor) expect(page.next_cursor).toBe(page.runs.at(-1)?.id);
    before = page.next_cursor;
  }
  expect(sizes).toEqual([100, 100, 50]);
  expect(seen).toEqual(ids.reverse());
  expect(codeOf(await get(`${of}?before=x`))).toBe("422 VALIDATION_FAILED");
});

test("what belongs to another organisation is 404, whatever is asked", async () => {
  const stranger = await signUpOrg(platform);
  for (const path of ["runs", "trigger-runs", "log"])
    expect((await stranger.call({ path: `/v1/orgs/${stranger.id}/kaps/${kap.id}/${path}` })).status, path).toBe(404);
  expect((await stranger.call({ path: `/v1/kaps/${kap.id}/log` })).status).toBe(404);
  expect((await stranger.call({ path: `/v1/orgs/${org.id}/usage` })).status).toBe(404);
  expect((await stranger.call({ path: `/v1/orgs/${stranger.id}/usage` })).json()).toEqual({ usage: [], enforced: false });
});
