import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Answer } from "../harness/http.ts";
import { signUpOrg, type TestKap, type TestOrg } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";
import { until } from "../harness/wait.ts";

let platform: TestPlatform;
let org: TestOrg;
let kap: TestKap;
let base: string;
let schedule: string;
let inbox: string;
let request: string;

const program = `
import { db, store, secrets } from "kap";
let seen = 0;
const tried = async (action) => { try { return await action(); } catch (error) { return { name: error.name, message: error.message, code: error.code ?? null }; } };
const ways = {
  async setup() {
    await db.query("create table notes (id serial primary key, text text unique)");
    await db.query("create table later (id int primary key, note int references notes (id) deferrable initially deferred)");
    await db.query("create function jump() returns bigint language sql as $$ select setval('notes_id_seq', 1000) $$");
    await db.query("create procedure leave() language plpgsql as $$ begin insert into notes (text) values ('left'); commit; end $$");
    await store.put("kept.txt", "kept", { contentType: "text/plain" });
  },
  state: async () => ({
    notes: (await db.query("select id, text from notes order by id")).rows,
    tables: (await db.query("select table_name from information_schema.tables where table_schema = current_schema() order by 1")).rows.map((row) => row.table_name),
    files: (await store.list()).objects.map((object) => object.key),
    kept: await (await store.get("kept.txt"))?.text(),
    seen,
  }),
  add: (text) => db.query("insert into notes (text) values ($1) returning id", [text]),
  async everything(ctx) {
    seen++;
    console.log("begins with", secrets.get("TOKEN"));
    await db.query("create table made (id int)");
    const added = await db.query("insert into notes (text) values ('dry'), ('drier') returning text");
    const failed = await tried(() => db.query("insert into notes (text) values ('dry')"));
    const batch = await tried(() => db.batch([{ sql: "insert into notes (text) values ('batched')" }, { sql: "insert into notes (text) values ('dry')" }]));
    const good = await db.batch([{ sql: "insert into later values (1, 77)" }, { sql: "insert into notes (id, text) values (77, 'late')" }]);
    const unkept = await tried(() => db.query("insert into later values (2, 78)"));
    const { rows: counted } = await db.query("select count(*)::int as n from notes where text in ('dry', 'drier', 'batched', 'late')");
    await store.put("new.txt", "new bytes", { contentType: "text/plain" });
    await store.put("large.bin", new Response(new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(100_000)); if (++this.n > 3) c.close(); }, n: 0 }).pipeThrough(new TransformStream())));
    await store.delete("kept.txt");
    const bad = await tried(() => store.put("../up", "x"));
    const files = [await (await store.get("new.txt"))?.text(), await store.get("kept.txt"), (await store.list()).objects.map(({ key, size }) => [key, size])];
    const fetched = await tried(() => fetch("https://example.com/pay?with=" + secrets.get("TOKEN"), { method: "POST", body: "money" }));
    const streamed = await tried(() => fetch("http://127.0.0.1/", { method: "POST", duplex: "half", body: new ReadableStream({ start(c) { c.enqueue(new Uint8Array(9)); c.close(); } }) }));
    ctx.waitUntil(db.query("insert into notes (text) values ('afterwards')"));
    return { rows: added.rows, failed, batch, good: good.map((one) => one.row_count), unkept, counted: counted[0].n, bad, files, fetched, streamed };
  },
  attack: async (sql) => tried(() => db.query(sql)),
  throws: async () => { await db.query("insert into notes (text) values ('thrown')"); throw new TypeError("no good"); },
  forever: async () => { await db.query("insert into notes (text) values ('forever')"); for (;;); },
  idles: () => new Promise(() => {}),
  hangs: async () => { await db.query("insert into notes (text) values ('hanging')"); await new Promise(() => {}); },
  heap: async () => { await db.query("insert into notes (text) values ('heap')"); const all = []; for (;;) all.push(new Array(1_000_000).fill(1.5)); },
  wedges: async () => { await db.query("insert into notes (text) values ('wedged')"); let x = 3n ** 1_000_000n; for (;;) x = (x * x) % (1n << 4_000_000n); },
  slow: () => tried(() => db.query("select count(*) from generate_series(1, 1000000000)")),
  async large() { const row = await tried(() => db.query("select repeat('x', 60000000) as x")); return [row.code, (await tried(() => db.query("insert into notes (text) values ('after')"))).code]; },
};
export default {
  async fetch(request, ctx) {
    const url = new URL(request.url);
    const way = url.pathname.slice(1);
    if (way === "bytes") return new Response(new Uint8Array([0xff, 0, 1]), { status: 201, headers: { "x-mine": "yes" } });
    if (way === "echo") return Response.json({ method: request.method, url: request.url, headers: Object.fromEntries(request.headers), body: await request.text(), user: ctx.user ?? null });
    if (way === "everything") return Response.json(await ways.everything(ctx));
    return Response.json((await ways[way](...url.searchParams.values())) ?? null);
  },
  async scheduled(event) {
    console.log("tick of", event.scheduledAt.toISOString());
    await db.query("insert into notes (text) values ($1)", ["tick"]);
  },
  async email(message) {
    await db.query("insert into notes (text) values ($1)", [message.subject]);
    for (const { filename, content } of message.attachments) await store.put(filename, content);
    console.log(message.from.address, message.text.trim(), message.auth.spf.result);
  },
};`;

interface Report {
  outcome: string;
  detail: string | null;
  what_to_do: string;
  http: { status: number; headers: [string, string][]; body: string | null; body_base64: string | null } | null;
  effects: Record<string, unknown>[];
  lines: { n: number; level: string; text: string }[];
  duration_ms: number;
  cpu_ms: number;
}
interface State {
  notes: { id: number; text: string }[];
  tables: string[];
  files: string[];
  kept: string;
  seen: number;
}

const mail = (more = ""): string =>
  `From: Ann <ann@sender.example>\nTo: kap@mail.localhost\nSubject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?=\nMessage-ID: <1@sender.example>\n${more}MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain; charset=utf-8\n\nHallo Kap\n--b\nContent-Type: application/octet-stream\nContent-Disposition: attachment; filename=a.bin\nContent-Transfer-Encoding: base64\n\nAAEC\n--b--\n`;

beforeAll(async () => {
  platform = await startTestPlatform({
    KAPSTONE_KAP_REQUEST_CPU_MS: "4000",
    KAPSTONE_KAP_REQUEST_WALL_MS: "9000",
    KAPSTONE_KAP_MEMORY_MB: "64",
  });
  org = await signUpOrg(platform);
  kap = await org.createKap(program);
  base = `/v1/orgs/${org.id}/kaps/${kap.id}`;
  await org.call({ method: "PUT", path: `/v1/kaps/${kap.id}/secrets/TOKEN`, body: { value: "very-secret-token" } });
  const made = async (body: object): Promise<string> =>
    (await org.call({ method: "POST", path: `${base}/triggers`, body })).json<{ trigger: { id: string } }>().trigger.id;
  schedule = await made({ kind: "schedule", file_path: "main.ts", interval_seconds: 86_400 });
  inbox = await made({ kind: "inbox", file_path: "main.ts" });
  const { triggers } = (await org.call({ path: `${base}/triggers` })).json<{ triggers: { id: string; kind: string }[] }>();
  request = triggers.find((trigger) => trigger.kind === "request")?.id ?? "";
  expect((await kap.call({ path: "/setup" })).status).toBe(200);
  expect((await kap.call({ path: "/add?text=real" })).status).toBe(200);
});
afterAll(() => platform?.close());

const send = (trigger: string, body?: object): Promise<Answer> =>
  org.call({ method: "POST", path: `${base}/triggers/${trigger}/dry-run`, ...(body ? { body } : {}) });
const dry = async (trigger: string, body?: object): Promise<Report> => {
  const answer = await send(trigger, body);
  expect(answer.status, answer.text).toBe(200);
  return answer.json<Report>();
};
const bodyOf = <T>(report: Report): T => JSON.parse(report.http?.body ?? "null") as T;
const codeOf = (answer: Answer): string => `${answer.status} ${answer.json<{ error: { code: string } }>().error.code}`;
/** As the kap sees it; asked again while its isolate is being replaced. */
const state = (): Promise<State> =>
  until(async () => {
    const answer = await kap.call({ path: "/state" });
    return answer.status === 200 && answer.json<State>();
  });
const sessions = async (): Promise<number> => {
  const { rows } = await platform.database.postgres.knex.raw(
    "select count(*)::int as n from pg_stat_activity where application_name = 'kap dry run' and datname = current_database()",
  );
  return rows[0].n;
};
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

describe("a request", () => {
  test("answers everything the program did in its order, and leaves none of it", async () => {
    const before = await state();
    const report = await dry(request, { method: "POST", path: "/everything", body: "x" });
    expect(report).toMatchObject({ outcome: "ok", detail: null, http: { status: 200, body_base64: null } });
    const seen = bodyOf<Record<string, unknown>>(report);
    expect(seen).toMatchObject({
      rows: [{ text: "dry" }, { text: "drier" }],
      failed: { name: "SqlError", code: "23505" },
      batch: { code: "23505" },
      good: [1, 1],
      unkept: { code: "23503" },
      counted: 3, // the failed statement undid itself only, the failed batch all of itself
      bad: { name: "StoreError", code: "VALIDATION_FAILED" },
      files: ["new bytes", null, expect.any(Array)],
      fetched: { name: "TypeError", code: "DRY_RUN", message: expect.stringMatching(/dry run/) },
      streamed: { name: "TypeError", code: "DRY_RUN" },
    });
    expect((seen.files as unknown[])[2]).toEqual([
      ["large.bin", 400_000],
      ["new.txt", 9],
    ]);
    const shown = report.effects.map((effect) =>
      effect.kind === "db"
        ? [effect.kind, effect.batch, effect.row_count, effect.error === null]
        : [effect.kind, effect.key ?? effect.url, effect.error === null],
    );
    expect(shown).toEqual([
      ["db", null, expect.any(Number), true],
      ["db", null, 2, true],
      ["db", null, null, false],
      ["db", 1, 1, false],
      ["db", 1, null, false],
      ["db", 2, 1, true],
      ["db", 2, 1, true],
      ["db", null, null, false],
      ["db", null, 1, true],
      ["store.put", "new.txt", true],
      ["store.put", "large.bin", true],
      ["store.delete", "kept.txt", true],
      ["store.put", "../up", false],
      ["fetch", "https://example.com/pay?with=[secret TOKEN]", false],
      ["fetch", "http://127.0.0.1/", false],
      ["db", null, 1, true],
      ["wait-until", undefined, false],
    ]);
    expect(report.effects[1]).toMatchObject({ sql: "insert into notes (text) values ('dry'), ('drier') returning text" });
    expect(report.effects[3]).toMatchObject({ error: "undone with its batch" });
    expect(report.effects[9]).toMatchObject({ existed: false, bytes: 9, content_type: "text/plain" });
    expect(report.effects[11]).toMatchObject({ existed: true });
    expect(report.effects[13]).toMatchObject({ method: "POST" });
    expect(report.lines.map(({ level, text }) => [level, text])).toEqual([["info", "begins with [secret TOKEN]"]]);
    expect(JSON.stringify(report.effects)).not.toContain("very-secret-token");
    expect(await sessions()).toBe(0);
    expect(await state()).toEqual(before);
  });

  test("has method, path, headers and body as a caller's, the member as user, and an answer that is no text in base64", async () => {
    const report = await dry(request, {
      method: "PUT",
      path: "/echo?a=%20b",
      headers: { "X-One": "1", Accept: ["a/b", "c/d"] },
      body_base64: Buffer.from("ü").toString("base64"),
    });
    expect(bodyOf(report)).toMatchObject({
      method: "PUT",
      url: `http://${platform.host(`${kap.slug}.kaps`)}/echo?a=%20b`,
      body: "ü",
      headers: { "x-one": "1", accept: "a/b, c/d", "x-kap-caller": expect.stringMatching(/^member:owner@/) },
      user: { name: "Owner" },
    });
    expect(JSON.stringify(bodyOf(report))).not.toContain("x-kapstone");
    const bytes = await dry(request, { path: "/bytes" });
    expect(bytes.http).toMatchObject({ status: 201, body: null, body_base64: "/wAB" });
    expect(bytes.http?.headers).toContainEqual(["x-mine", "yes"]);
  });

  test("that throws is an error with its stack, and shows what its caller would see", async () => {
    const report = await dry(request, { path: "/throws" });
    expect(report).toMatchObject({ outcome: "error", http: { status: 500 }, effects: [{ kind: "db", row_count: 1 }] });
    expect(report.detail).toMatch(/TypeError: no good[\s\S]*main\.ts/);
    expect(bodyOf(report)).toMatchObject({ error: { code: "RUN_FAILED" } });
    expect(report.what_to_do).toMatch(/detail/);
  });

  test.each([
    ["hangs", "timeout", 504],
    ["forever", "cpu-exceeded", 503],
    ["heap", "memory-exceeded", 503],
  ])("that %s ends as %s, with what it did until then, undone", async (way, outcome, status) => {
    const report = await dry(request, { path: `/${way}` });
    expect(report.outcome).toBe(outcome);
    expect(report.effects).toMatchObject([{ kind: "db", row_count: 1 }]);
    expect(report.http?.status).toBe(status);
    expect(await sessions()).toBe(0);
    expect((await state()).notes.map(({ text }) => text)).toEqual(["real"]);
  });

  test("that wedges the isolate, so that its process is killed, is told all the same, and its transaction is gone", async () => {
    const report = await dry(request, { path: "/wedges" });
    expect(["cpu-exceeded", "memory-exceeded"]).toContain(report.outcome);
    expect(report).toMatchObject({ effects: [{ kind: "db", row_count: 1 }], http: { status: 503 } });
    expect(await sessions()).toBe(0);
    expect((await state()).notes.map(({ text }) => text)).toEqual(["real"]);
  });

  test("meets the limits of the database", async () => {
    expect(bodyOf(await dry(request, { path: "/slow" }))).toMatchObject({ code: "STATEMENT_TIMEOUT" });
    expect(bodyOf(await dry(request, { path: "/large" }))).toEqual(["RESULT_TOO_LARGE", "DRY_RUN_LOST"]);
    expect((await state()).notes).toHaveLength(1);
  });
});

describe("nothing gets out of the transaction", () => {
  test.each([
    "commit",
    "rollback",
    "end",
    "savepoint x",
    "release statement",
    "rollback to statement",
    "prepare transaction 'x'",
    "begin; commit",
    "select 1; commit",
    "call leave()",
    "declare c cursor with hold for select 1",
    "create temp table t (a int)",
    "select pg_advisory_lock(1)",
    "select set_config('search_path', 'public', false)",
    "set session authorization default",
    "select setval('notes_id_seq', 1000)",
    "select jump()",
    "do $$ begin commit; end $$",
    "grant update on all sequences in schema public to current_user",
    "vacuum notes",
    "create index concurrently on notes (text)",
    "listen x",
  ])("%s", async (sql) => {
    const refused = bodyOf<{ code?: string }>(await dry(request, { path: `/attack?sql=${encodeURIComponent(sql)}` }));
    expect(refused.code, JSON.stringify(refused)).toEqual(expect.any(String));
  });

  test("and what was tried has changed nothing: a sequence goes on where it stood, but for the numbers dry runs have taken", async () => {
    expect((await state()).notes).toEqual([{ id: 1, text: "real" }]);
    const { rows } = await platform.database.postgres.knex.raw(
      `select count(*)::int as n from pg_locks where locktype = 'advisory' and granted and database = (select oid from pg_database where datname = current_database())
         and pid in (select pid from pg_stat_activity where application_name like 'kap%')`,
    );
    expect(rows).toEqual([{ n: 0 }]);
    const { rows: added } = (await kap.call({ path: "/add?text=next" })).json<{ rows: { id: number }[] }>();
    expect(added[0]?.id).toBeLessThan(100);
  });
});

test("a dry run beside real ones neither sees their module's variables nor waits for them, nor they for it", async () => {
  const dryRuns = [dry(request, { path: "/everything" }), dry(request, { path: "/everything" }), dry(request, { path: "/idles" })];
  const calls = Array.from({ length: 20 }, (_, i) => kap.call({ path: `/add?text=beside-${i}` }));
  expect((await Promise.all(calls)).map((answer) => answer.status)).toEqual(Array(20).fill(200));
  const reports = await Promise.all(dryRuns);
  expect(reports.map((report) => report.outcome)).toEqual(["ok", "ok", "timeout"]);
  const after = await state();
  expect(after.seen).toBe(0);
  expect(after.notes.filter(({ text }) => text.startsWith("beside-"))).toHaveLength(20);
});

test("one that keeps the database lets the next one say so instead of making it wait for ever", async () => {
  const first = dry(request, { path: "/hangs" });
  await until(async () => (await sessions()) === 1, { what: "the first dry run's transaction" });
  expect(bodyOf(await dry(request, { path: "/attack?sql=select%201" }))).toMatchObject({ code: "DRY_RUN_BUSY" });
  expect((await first).outcome).toBe("timeout");
  expect(bodyOf(await dry(request, { path: "/attack?sql=select%201%20as%20n" }))).toMatchObject({ rows: [{ n: 1 }] });
});

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

test.each<[string, () => string, object, string]>([
  ["a mail for a schedule", () => schedule, { mail: "x" }, "mail"],
  ["a time for a request", () => request, { scheduled_at: "2026-02-03T04:05:06Z" }, "scheduled_at"],
  ["no mail for an inbox", () => inbox, {}, "mail"],
  ["two mails", () => inbox, { mail: "x", mail_base64: "eA==" }, "mail"],
  ["bytes that are not base64", () => inbox, { mail_base64: "ü" }, "mail_base64"],
  ["two bodies", () => request, { body: "x", body_base64: "eA==" }, "body_base64"],
  ["a path of the platform", () => request, { path: "/__kaps/scheduled" }, "path"],
  ["a path that breaks the request line", () => request, { path: "/ HTTP/1.1" }, "path"],
  ["a header of the platform", () => request, { headers: { "X-Kapstone-Run": "x" } }, "headers.X-Kapstone-Run"],
  ["a header that breaks the head", () => request, { headers: { "x-one": "a\r\nb: c" } }, "headers.x-one"],
  ["an unknown field", () => request, { dry: true }, "dry"],
])("%s is 422 naming the field", async (_, trigger, body, path) => {
  const answer = await send(trigger(), body);
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
