import { afterAll, describe, expect, test } from "vitest";
import { until } from "../harness/wait.ts";
import { openDryRunGround, type Report } from "./dry-run-ground.ts";

const { platform, kap, triggers, dry, state } = await openDryRunGround();
afterAll(() => platform.close());

const { request } = triggers;
const bodyOf = <T>(report: Report): T => JSON.parse(report.http?.body ?? "null") as T;
/** Transactions of dry runs that PostgreSQL has at the moment. */
const sessions = async (): Promise<number> => {
  const { rows } = await platform.database.postgres.knex.raw(
    "select count(*)::int as n from pg_stat_activity where application_name = 'kap dry run' and datname = current_database()",
  );
  return rows[0].n;
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
