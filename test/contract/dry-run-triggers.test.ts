import { afterAll, describe, expect, test } from "vitest";
import type { Answer } from "../harness/http.ts";
import { signUpOrg } from "../harness/org.ts";
import { until } from "../harness/wait.ts";
import { openDryRunGround } from "./dry-run-ground.ts";

const { platform, org, kap, base, triggers, send, dry, state } = await openDryRunGround();
afterAll(() => platform.close());

const { request, schedule, inbox } = triggers;
const codeOf = (answer: Answer): string => `${answer.status} ${answer.json<{ error: { code: string } }>().error.code}`;
const mail = (more = ""): string =>
  `From: Ann <ann@sender.example>\nTo: kap@mail.localhost\nSubject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?=\nMessage-ID: <1@sender.example>\n${more}MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain; charset=utf-8\n\nHallo Kap\n--b\nContent-Type: application/octet-stream\nContent-Disposition: attachment; filename=a.bin\nContent-Transfer-Encoding: base64\n\nAAEC\n--b--\n`;

/** Everything the platform itself keeps of a kap's runs. */
const recorded = async (): Promise<unknown> => {
  const { knex } = platform.database.postgres;
  await until(async () => (await knex("runs").where({ kap_id: kap.id }).whereNull("finished_at").first("id")) === undefined, {
    what: "the report of every run that was no dry one",
  });
  const rows: unknown[] = [];
  for (const table of ["kap_log_lines", "mail_messages", "runs"]) rows.push(await knex(table).where({ kap_id: kap.id }).orderBy(1));
  rows.push(await knex("run_payloads").count(), await knex("kap_triggers").where({ kap_id: kap.id }).orderBy("id"));
  rows.push(await knex("kap_usage").where({ kap_id: kap.id }).select("runs", "failed_runs", "mail_messages"));
  return rows;
};

describe("a tick", () => {
  test("runs a paused schedule as of the given time; no run, line, outcome or consumption is recorded", async () => {
    await org.call({ method: "POST", path: `${base}/triggers/${schedule}/pause` });
    const before = await recorded();
    const report = await dry(schedule, { scheduled_at: "2026-02-03T04:05:06Z" });
    expect(report).toMatchObject({
      outcome: "ok",
      http: null,
      effects: [{ kind: "db", row_count: 1 }],
      lines: [{ n: 1, text: "tick of 2026-02-03T04:05:06.000Z" }],
    });
    expect(report.duration_ms).toBeGreaterThan(0);
    expect((await dry(schedule)).outcome).toBe("ok");
    expect(await recorded()).toEqual(before);
    expect((await state()).notes.some(({ text }) => text === "tick")).toBe(false);
  });
});

describe("a mail", () => {
  test("is parsed as one that came; nothing of it is stored", async () => {
    const before = await recorded();
    const report = await dry(inbox, { mail: mail() });
    expect(report).toMatchObject({
      outcome: "ok",
      effects: [
        { kind: "db", row_count: 1 },
        { kind: "store.put", key: "a.bin", bytes: 3 },
      ],
      lines: [{ text: expect.stringMatching(/^ann@sender\.example Hallo Kap \w+$/) }],
    });
    const again = await dry(inbox, { mail_base64: Buffer.from(mail().replaceAll("\n", "\r\n")).toString("base64") });
    expect(again.effects).toEqual(report.effects);
    expect(await recorded()).toEqual(before);
    expect((await state()).files).toEqual(["kept.txt"]);
  });

  test("that is an automatic reply is refused without running, as one that came would be", async () => {
    const report = await dry(inbox, { mail: mail("Auto-Submitted: auto-replied\n") });
    expect(report).toMatchObject({ outcome: "refused", detail: expect.stringMatching(/auto_replies/), effects: [], lines: [] });
    expect((await dry(inbox, { mail: mail(), envelope: { from: "" } })).outcome).toBe("refused");
  });
});

test.each([
  ["a mail for a schedule", schedule, { mail: "x" }, "mail"],
  ["a time for a request", request, { scheduled_at: "2026-02-03T04:05:06Z" }, "scheduled_at"],
  ["no mail for an inbox", inbox, {}, "mail"],
  ["two mails", inbox, { mail: "x", mail_base64: "eA==" }, "mail"],
  ["bytes that are not base64", inbox, { mail_base64: "ü" }, "mail_base64"],
  ["two bodies", request, { body: "x", body_base64: "eA==" }, "body_base64"],
  ["a path of the platform", request, { path: "/__kaps/scheduled" }, "path"],
  ["a path that breaks the request line", request, { path: "/ HTTP/1.1" }, "path"],
  ["a header of the platform", request, { headers: { "X-Kapstone-Run": "x" } }, "headers.X-Kapstone-Run"],
  ["a header that breaks the head", request, { headers: { "x-one": "a\r\nb: c" } }, "headers.x-one"],
  ["an unknown field", request, { dry: true }, "dry"],
])("%s is 422 naming the field", async (_, trigger, body, path) => {
  const answer = await send(trigger, body);
  expect(codeOf(answer)).toBe("422 VALIDATION_FAILED");
  expect(answer.json<{ error: { details: { path: string }[] } }>().error.details.map((detail) => detail.path)).toContain(path);
});

test("another organisation's member finds nothing; an unknown trigger is 404", async () => {
  const other = await signUpOrg(platform);
  const foreign = await other.call({ method: "POST", path: `/v1/orgs/${other.id}/kaps/${kap.id}/triggers/${request}/dry-run` });
  expect(foreign.status).toBe(404);
  const elsewhere = await other.call({ method: "POST", path: `${base}/triggers/${request}/dry-run` });
  expect(elsewhere.status).toBe(404);
  const own = await other.createKap("export default () => new Response('x')");
  expect((await other.call({ method: "POST", path: `/v1/orgs/${other.id}/kaps/${own.id}/triggers/${request}/dry-run` })).status).toBe(404);
});

test("a disabled kap is 409 KAP_DISABLED naming who and why", async () => {
  await org.call({ method: "POST", path: `${base}/disable`, body: { reason: "look first" } });
  const answer = await send(request, { path: "/state" });
  expect(codeOf(answer)).toBe("409 KAP_DISABLED");
  expect(answer.text).toContain("look first");
  await org.call({ method: "POST", path: `${base}/enable` });
  expect((await dry(request, { path: "/state" })).outcome).toBe("ok");
});
