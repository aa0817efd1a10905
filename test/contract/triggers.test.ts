import { afterAll, beforeAll, describe, expect, test } from "vitest";
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
export default {
  async fetch() { return new Response("called"); },
  async scheduled(event, ctx) {
    console.log("at", event.scheduledAt.toISOString());
    if (globalThis.mode === "throw") throw new Error("no work today");
  },
  async email() {},
};`;

interface Trigger {
  id: string;
  kind: string;
  enabled: boolean;
  cron?: string | null;
  interval_seconds?: number | null;
  next_runs?: string[];
  next_run_at: string | null;
  last_run_at: string | null;
  last_outcome: string | null;
  created_at: string;
  created_by: { kind: string; name: string };
  paused_by: { name: string } | null;
  paused_at: string | null;
}

beforeAll(async () => {
  platform = await startTestPlatform();
  org = await signUpOrg(platform);
  kap = await org.createKap({ "main.ts": program, "jobs.ts": "export default { async scheduled() {} }", "note.txt": "no program" });
  base = `/v1/orgs/${org.id}/kaps/${kap.id}/triggers`;
});
afterAll(() => platform?.close());

const post = (body: object, path = base): Promise<Answer> => org.call({ method: "POST", path, body });
const act = (id: string, verb: string): Promise<Answer> => org.call({ method: "POST", path: `${base}/${id}/${verb}` });
const codeOf = (answer: Answer): string => `${answer.status} ${answer.json<{ error: { code: string } }>().error.code}`;
const triggerOf = (answer: Answer): Trigger => answer.json<{ trigger: Trigger }>().trigger;
const list = async (): Promise<{ triggers: Trigger[]; mail_address: string; limits: Record<string, number> }> =>
  (await org.call({ path: base })).json();
const newSchedule = async (body: object = {}): Promise<Trigger> => {
  const answer = await post({ kind: "schedule", file_path: "main.ts", interval_seconds: 86_400, ...body });
  expect(answer.status, answer.text).toBe(201);
  return triggerOf(answer);
};
const remove = (id: string): Promise<Answer> => org.call({ method: "DELETE", path: `${base}/${id}` });

test("a new kap has one enabled request trigger; the list tells the mail address and the limits, on the id and the slug", async () => {
  const answer = await list();
  expect(answer.triggers).toHaveLength(1);
  expect(answer.triggers[0]).toMatchObject({ kind: "request", file_path: "main.ts", enabled: true, next_run_at: null });
  expect(answer.mail_address).toBe(`${kap.slug}@mail.localhost`);
  expect(answer.limits).toMatchObject({ schedules: 20, min_cadence_seconds: 900, mail_bytes: 31_457_280 });
  const bySlug = await org.call({ path: `/v1/orgs/${org.slug}/kaps/${kap.slug}/triggers` });
  expect(bySlug.json()).toEqual(answer);
});

describe("a schedule by cron", () => {
  test("answers 201 with its next five times, in UTC", async () => {
    const trigger = await newSchedule({ cron: "  30 4 * *  1 ", interval_seconds: undefined });
    expect(trigger).toMatchObject({
      kind: "schedule",
      cron: "30 4 * * 1",
      interval_seconds: null,
      enabled: true,
      last_run_at: null,
      last_outcome: null,
    });
    expect(trigger.created_by).toMatchObject({ kind: "member", name: "Owner" });
    expect(trigger.next_runs).toHaveLength(5);
    for (const time of trigger.next_runs ?? []) expect(time).toMatch(/T04:30:00\.000Z$/);
    for (const time of trigger.next_runs ?? []) expect(new Date(time).getUTCDay()).toBe(1);
    expect(trigger.next_run_at).toBe(trigger.next_runs?.[0]);
    expect((await remove(trigger.id)).status).toBe(204);
  });

  test.each(["* * * *", "60 * * * *", "5/15 * * * *", "0 22-2 * * *", "*/60 * * * *", "0 0 31 2 *", "@daily", "0 0 * * MON", ""])(
    "%j is 422 INVALID_CRON",
    async (cron) => {
      expect(codeOf(await post({ kind: "schedule", file_path: "main.ts", cron }))).toBe("422 INVALID_CRON");
    },
  );

  test.each(["* * * * *", "*/14 * * * *", "0,10 * * * *", "50,0 * * * *", "0 0 * * 0,1-6/1 "])(
    "%j: below 15 minutes is 422 CADENCE_TOO_SHORT",
    async (cron) => {
      const answer = await post({ kind: "schedule", file_path: "main.ts", cron });
      if (cron.startsWith("0 0 ")) {
        expect(answer.status).toBe(201);
        await remove(triggerOf(answer).id);
      } else expect(codeOf(answer)).toBe("422 CADENCE_TOO_SHORT");
    },
  );

  test("15 minutes is not too short", async () => {
    const trigger = await newSchedule({ cron: "*/15 * * * *", interval_seconds: undefined });
    await remove(trigger.id);
  });
});

describe("a schedule by interval", () => {
  test("900 seconds is taken and counted from the creation, 899 is 422 CADENCE_TOO_SHORT", async () => {
    const trigger = await newSchedule({ interval_seconds: 900 });
    const created = Date.parse(trigger.created_at);
    expect(trigger.next_runs?.map((time) => Date.parse(time) - created)).toEqual([900_000, 1_800_000, 2_700_000, 3_600_000, 4_500_000]);
    await remove(trigger.id);
    expect(codeOf(await post({ kind: "schedule", file_path: "main.ts", interval_seconds: 899 }))).toBe("422 CADENCE_TOO_SHORT");
  });

  test.each([
    [{ kind: "schedule", file_path: "main.ts" }, "cron"],
    [{ kind: "schedule", file_path: "main.ts", cron: "0 0 * * *", interval_seconds: 900 }, "cron"],
    [{ kind: "schedule", file_path: "main.ts", interval_seconds: 1000.5 }, "interval_seconds"],
    [{ kind: "schedule", file_path: "main.ts", interval_seconds: "900" }, "interval_seconds"],
    [{ kind: "schedule", file_path: "gone.ts", interval_seconds: 900 }, "file_path"],
    [{ kind: "schedule", file_path: "note.txt", interval_seconds: 900 }, "file_path"],
    [{ kind: "schedule", file_path: "main.ts", interval_seconds: 900, name: "x" }, "name"],
    [{ kind: "timer", file_path: "main.ts" }, "kind"],
  ])("%j is 422 naming %s", async (body, path) => {
    const answer = await post(body);
    expect(codeOf(answer)).toBe("422 VALIDATION_FAILED");
    expect(answer.json<{ error: { details: { path: string }[] } }>().error.details.map((detail) => detail.path)).toContain(path);
  });
});

test("20 schedules are taken, the next is 409 TRIGGER_LIMIT, also when they come at once", async () => {
  const answers = await Promise.all(
    Array.from({ length: 25 }, () => post({ kind: "schedule", file_path: "jobs.ts", interval_seconds: 900 })),
  );
  expect(answers.filter((answer) => answer.status === 201)).toHaveLength(20);
  for (const answer of answers.filter((one) => one.status !== 201)) expect(codeOf(answer)).toBe("409 TRIGGER_LIMIT");
  const { triggers } = await list();
  expect(triggers.filter((trigger) => trigger.kind === "schedule")).toHaveLength(20);
  for (const trigger of triggers) if (trigger.kind === "schedule") await remove(trigger.id);
  await remove((await newSchedule()).id); // a deleted one makes room
});

test("one inbox: the second is 409, after a delete another can be attached; a second request trigger is 409", async () => {
  const first = await post({ kind: "inbox", file_path: "main.ts" });
  expect(first.status).toBe(201);
  expect(triggerOf(first)).toMatchObject({ kind: "inbox", auto_replies: false });
  expect(codeOf(await post({ kind: "inbox", file_path: "main.ts", auto_replies: true }))).toBe("409 CONFLICT");
  await remove(triggerOf(first).id);
  const second = await post({ kind: "inbox", file_path: "main.ts", auto_replies: true });
  expect(triggerOf(second)).toMatchObject({ auto_replies: true });
  expect(codeOf(await act(triggerOf(second).id, "run-now"))).toBe("409 CONFLICT");
  await remove(triggerOf(second).id);
  expect(codeOf(await post({ kind: "request", file_path: "main.ts" }))).toBe("409 CONFLICT");
});

test("pause and resume are attributed, can be repeated, and stand in the history; a paused schedule has no next time", async () => {
  const trigger = await newSchedule({ cron: "0 0 1 1 *", interval_seconds: undefined });
  const paused = triggerOf(await act(trigger.id, "pause"));
  expect(paused).toMatchObject({ enabled: false, next_run_at: null, next_runs: [], paused_by: { name: "Owner" } });
  expect(paused.paused_at).not.toBeNull();
  expect(triggerOf(await act(trigger.id, "pause"))).toEqual(paused);
  const resumed = triggerOf(await act(trigger.id, "resume"));
  expect(resumed).toMatchObject({ enabled: true, paused_by: null, paused_at: null, next_run_at: trigger.next_run_at });
  await remove(trigger.id);
  const { events } = (await org.call({ path: `/v1/orgs/${org.id}/kaps/${kap.id}/history?limit=200` })).json<{
    events: { kind: string; client: string; actor: { name: string }; detail: { trigger_id?: string } }[];
  }>();
  const own = events.filter((event) => event.detail.trigger_id === trigger.id);
  expect(own.map((event) => event.kind)).toEqual(["trigger.created", "trigger.paused", "trigger.resumed", "trigger.deleted"]);
  for (const event of own) expect(event).toMatchObject({ client: "tests", actor: { name: "Owner" } });
});

test("the request trigger is changed with PUT: paused it answers callers 503 TRIGGER_PAUSED; it is neither deleted nor paused otherwise", async () => {
  const request = (await list()).triggers[0] as Trigger;
  const put = (body: object): Promise<Answer> => org.call({ method: "PUT", path: `${base}/${request.id}`, body });
  expect((await kap.call()).status).toBe(200);
  expect(triggerOf(await put({ kind: "request", file_path: "main.ts", enabled: false }))).toMatchObject({
    enabled: false,
    paused_by: { name: "Owner" },
  });
  expect(codeOf(await kap.call())).toBe("503 TRIGGER_PAUSED");
  expect(triggerOf(await put({ kind: "request", file_path: "main.ts", enabled: true }))).toMatchObject({ enabled: true, paused_by: null });
  expect((await kap.call()).text).toBe("called");
  expect(codeOf(await put({ kind: "request", file_path: "gone.ts", enabled: true }))).toBe("422 VALIDATION_FAILED");
  expect(codeOf(await put({ kind: "schedule", file_path: "main.ts", enabled: true }))).toBe("422 VALIDATION_FAILED");
  expect(codeOf(await remove(request.id))).toBe("409 CONFLICT");
  expect(codeOf(await act(request.id, "pause"))).toBe("409 CONFLICT");
  expect(codeOf(await act(request.id, "run-now"))).toBe("409 CONFLICT");
});

test("run-now runs a schedule and answers the ended run, paused or not; a deleted trigger is 404 and its runs stay", async () => {
  const trigger = await newSchedule();
  await act(trigger.id, "pause");
  const answer = await act(trigger.id, "run-now");
  const { run } = answer.json<{ run: Record<string, unknown> }>();
  expect(run, answer.text).toMatchObject({
    trigger_id: trigger.id,
    trigger_kind: "schedule",
    status: "succeeded",
    outcome: "ok",
    attempts: 1,
    due_at: null,
  });
  expect((await list()).triggers.find((one) => one.id === trigger.id)).toMatchObject({ last_outcome: "ok", last_run_at: run.started_at });
  expect((await remove(trigger.id)).status).toBe(204);
  expect((await act(trigger.id, "run-now")).status).toBe(404);
  const kept = await org.call({ path: `/v1/orgs/${org.id}/kaps/${kap.id}/trigger-runs/${run.id}` });
  expect(kept.status).toBe(200);
});

test("while a run is going on run-now answers a missed run with the reason", async () => {
  const slow = await org.createKap(`
import { store } from "kap";
export default { async scheduled() { while (!(await store.get("enough"))) await new Promise((done) => setTimeout(done, 50)); } };`);
  const triggers = `/v1/orgs/${org.id}/kaps/${slow.id}/triggers`;
  const { id } = triggerOf(await post({ kind: "schedule", file_path: "main.ts", interval_seconds: 900 }, triggers));
  const now = (): Promise<Answer> => org.call({ method: "POST", path: `${triggers}/${id}/run-now` });
  const first = now();
  await until(async () => (await platform.database.postgres.knex("runs").where({ trigger_id: id, status: "running" })).length === 1);
  const second = (await now()).json<{ run: Record<string, string> }>().run;
  expect(second).toMatchObject({ status: "failed", outcome: "missed", detail: expect.stringContaining("one run at a time") });
  expect(second.what_to_do).toContain("run-now");
  await org.call({ method: "PUT", path: `/v1/kaps/${slow.id}/store/files/object?key=enough`, body: "x" });
  expect((await first).json<{ run: object }>().run).toMatchObject({ outcome: "ok", detail: null });
});

test("what a run throws is told; a file without a scheduled handler is told too", async () => {
  const failing = await org.createKap({
    "main.ts": "export default { async scheduled() { throw new Error('the moon is full'); } }",
    "none.ts": "export default { async fetch() { return new Response('x'); } }",
  });
  const triggers = `/v1/orgs/${org.id}/kaps/${failing.id}/triggers`;
  const run = async (file_path: string) => {
    const { id } = triggerOf(await post({ kind: "schedule", file_path, interval_seconds: 900 }, triggers));
    return (await org.call({ method: "POST", path: `${triggers}/${id}/run-now` })).json<{ run: Record<string, string> }>().run;
  };
  expect(await run("main.ts")).toMatchObject({ status: "failed", outcome: "error", detail: expect.stringContaining("the moon is full") });
  expect(await run("none.ts")).toMatchObject({ status: "failed", detail: expect.stringMatching(/scheduled/) });
});

test("a disabled kap runs nothing: run-now is 409 KAP_DISABLED with who, when and why; a deleted one is 410", async () => {
  const other = await org.createKap(program);
  const kaps = `/v1/orgs/${org.id}/kaps/${other.id}`;
  const { id } = triggerOf(await post({ kind: "schedule", file_path: "main.ts", interval_seconds: 900 }, `${kaps}/triggers`));
  await org.call({ method: "POST", path: `${kaps}/disable`, body: { reason: "too loud" } });
  const refused = await org.call({ method: "POST", path: `${kaps}/triggers/${id}/run-now` });
  expect(codeOf(refused)).toBe("409 KAP_DISABLED");
  expect(refused.json<{ error: { details: object } }>().error.details).toMatchObject({ reason: "too loud", by: { name: "Owner" } });
  await org.call({ method: "DELETE", path: kaps });
  expect(codeOf(await org.call({ method: "POST", path: `${kaps}/triggers/${id}/run-now` }))).toBe("410 KAP_DELETED");
  expect(codeOf(await org.call({ method: "POST", path: `${kaps}/triggers/${id}/pause` }))).toBe("410 KAP_DELETED");
  expect((await org.call({ path: `${kaps}/triggers` })).status).toBe(200);
});

test("who may not: no credential 401, no client header 400, another organisation 404, unknown ids 404", async () => {
  const trigger = await newSchedule();
  const bare = { host: platform.host(org.slug), path: `${base}/${trigger.id}/pause`, method: "POST" };
  expect((await platform.http.call(bare)).status).toBe(401);
  expect(codeOf(await org.call({ ...bare, headers: { "x-service-client": "" } }))).toBe("400 CLIENT_HEADER_REQUIRED");
  const stranger = await signUpOrg(platform);
  expect((await stranger.call({ path: `/v1/orgs/${stranger.id}/kaps/${kap.id}/triggers` })).status).toBe(404);
  expect((await stranger.call({ ...bare, path: `/v1/orgs/${stranger.id}/kaps/${kap.id}/triggers/${trigger.id}/pause` })).status).toBe(404);
  expect((await act("0190b0b0-0000-7000-8000-000000000000", "pause")).status).toBe(404);
  expect((await act("not-an-id", "pause")).status).toBe(404);
  await remove(trigger.id);
});

test("the driver's route needs its token and fires what is due", async () => {
  const trigger = await newSchedule();
  const origin = `http://127.0.0.1:${platform.platform.internalPort}/internal/fire`;
  expect((await fetch(origin, { method: "POST" })).status).toBe(401);
  const { knex } = platform.database.postgres;
  await knex("kap_triggers")
    .where({ id: trigger.id })
    .update({ created_at: knex.raw("now() - interval '1 day'"), next_run_at: knex.raw("now()") });
  const fired = await fetch(origin, {
    method: "POST",
    headers: { authorization: `Bearer ${platform.platform.api.deps.config.fireToken}` },
  });
  expect(fired.status).toBe(200);
  const run = await until(
    async () =>
      (await knex("runs").where({ trigger_id: trigger.id, status: "succeeded" }).first()) as { id: string; due_at: Date } | undefined,
  );
  const shown = await org.call({ path: `/v1/orgs/${org.id}/kaps/${kap.id}/trigger-runs/${run.id}` });
  expect(shown.json()).toMatchObject({ run: { outcome: "ok", due_at: run.due_at.toISOString() } });
  await remove(trigger.id);
});
