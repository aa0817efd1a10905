import { expect } from "vitest";
import { until } from "../harness/wait.ts";
import type { Ledger } from "./ledger.ts";
import type { Subject } from "./subject.ts";
import type { Tree } from "./tree.ts";

const final = ["succeeded", "failed"];
/** A row written without waiting for the disk is safe after three rounds of PostgreSQL's WAL writer; loaded machines get more. */
const unwrittenMs = 2_000;
/** A run's end reaches the API within 250 ms of it; loaded machines get more. */
const unreportedMs = 3_000;
const databaseKills = ["postmaster", "postgres backend", "postgres guard", "everything"];
const settleMs = 120_000;

/** Every version that was acknowledged is in the history, which has no gap, and the newest is the one that is live. */
export async function proveSaves(tree: Tree, subject: Subject, ledger: Ledger): Promise<void> {
  const acknowledged = ledger.saves.filter((save) => save.isOk); // before the look: what is acknowledged during it may not be in it
  const versions = await tree.query<{ id: string; sequence: number; is_current: boolean }>(
    `select v.id, v.sequence, v.id = k.current_version_id as is_current
     from kap_versions v join kaps k on k.id = v.kap_id join kap_bundles b on b.version_id = v.id where k.id = $1 order by v.sequence`,
    [subject.kap.id],
  );
  expect(versions.map((version) => version.sequence)).toEqual(versions.map((_, index) => index + 1));
  expect(versions.filter((version) => version.is_current).map((version) => version.sequence)).toEqual([versions.length]);
  const kept = new Map(versions.map(({ id, sequence }) => [id, sequence]));
  const lost = acknowledged.filter((save) => kept.get(save.versionId ?? "") !== save.sequence);
  expect(lost).toEqual([]);
}

/** Every row that the program acknowledged is there, cut answers included: their first byte came after the commit. */
export async function proveRows(tree: Tree, subject: Subject, ledger: Ledger): Promise<void> {
  const acknowledged = ledger.calls.filter((call) => call.isOk || (call.isCut && call.status === 200)); // before the look
  const rows = await tree.query<{ key: string }>(`select key from ${await schemaOf(tree, subject)}.acknowledged`);
  const kept = new Set(rows.map((row) => row.key));
  expect(acknowledged.filter((call) => !kept.has(call.key))).toEqual([]);
}

/** Brings the retries of mails forward: what waits a minute for its next attempt gets it now. */
const hurryRetries = (tree: Tree): Promise<unknown> =>
  tree.query(
    `update kapstone_jobs._private_jobs set run_at = now() where run_at > now() and locked_at is null
     and task_id in (select id from kapstone_jobs._private_tasks where identifier = 'mail-run')`,
  );

/** Waits until every mail's run has ended, and proves that the runs are those of the mails that were acknowledged, one each. */
export async function proveMails(tree: Tree, subject: Subject, ledger: Ledger): Promise<{ runs: number; failed: number }> {
  const runs = await until(
    async () => {
      await hurryRetries(tree);
      const found = await tree.query<{ id: string; status: string; outcome: string; attempts: number }>(
        "select id, status, outcome, attempts from runs where kap_id = $1 and trigger_kind = 'inbox'",
        [subject.kap.id],
      );
      const open = found.filter((run) => !final.includes(run.status));
      if (open.length > 0) throw new Error(`${open.length} are open: ${JSON.stringify(open.slice(0, 5))}`);
      return found;
    },
    { timeoutMs: settleMs + 60_000, what: "the end of every mail's run" },
  );
  const acknowledged = ledger.mails.filter((mail) => mail.isOk).map((mail) => mail.subject);
  expect(new Set(acknowledged).size).toBe(acknowledged.length);
  const messages = await tree.query<{ run_id: string }>("select run_id from mail_messages where kap_id = $1", [subject.kap.id]);
  expect(messages.length).toBe(acknowledged.length);
  expect(new Set(messages.map((message) => message.run_id))).toEqual(new Set(runs.map((run) => run.id)));
  expect(runs.length).toBe(acknowledged.length);
  // What the program saw: each succeeded run one mail, each mail one run.
  const seen = await tree.query<{ subject: string; run: string }>(
    `select distinct subject, run from ${await schemaOf(tree, subject)}.mails`,
  );
  expect(new Set(seen.map((row) => row.subject)).size).toBe(seen.length);
  expect(new Set(seen.map((row) => row.run)).size).toBe(seen.length);
  const reached = new Set(seen.map((row) => row.run));
  expect(runs.filter((run) => run.status === "succeeded" && !reached.has(run.id))).toEqual([]);
  const failed = runs.filter((run) => run.status === "failed");
  expect(failed.filter((run) => run.attempts < 3 || run.outcome === null)).toEqual([]);
  return { runs: runs.length, failed: failed.length };
}

/**
 * Every run of a call has ended, and as its caller saw it. Those that nobody is left to end are for the sweep, which goes by a run's age: it is brought
 * forward. Answers how many there were.
 */
export async function proveCallRuns(tree: Tree, subject: Subject, ledger: Ledger): Promise<{ runs: number; swept: number }> {
  let swept = 0;
  const open = async (): Promise<number> =>
    (
      await tree.query<{ n: number }>("select count(*)::int as n from runs where kap_id = $1 and status in ('queued', 'running')", [
        subject.kap.id,
      ])
    )[0]?.n ?? 0;
  await until(async () => (await open()) === 0, { timeoutMs: 5_000 }).catch(async () => {
    swept = await open();
    await tree.query("update runs set started_at = started_at - interval '10 minutes' where kap_id = $1 and status = 'running'", [
      subject.kap.id,
    ]);
    await tree.query(
      `update kapstone_jobs._private_jobs set run_at = now() where locked_at is null
       and task_id in (select id from kapstone_jobs._private_tasks where identifier = 'runs-sweep')`,
    );
  });
  await until(async () => (await open()) === 0, { timeoutMs: settleMs, what: "the end of every run" });
  const rows = await tree.query<{ id: string; status: string; outcome: string }>(
    "select id, status, outcome from runs where kap_id = $1 and trigger_kind = 'request'",
    [subject.kap.id],
  );
  const runs = new Map(rows.map((run) => [run.id, run]));
  for (const call of ledger.calls) {
    if (call.runId === null) continue;
    const run = runs.get(call.runId);
    if (!run) {
      // A refused call has none; that of an admitted one is written without waiting for the disk.
      if (call.isOk)
        expect(ledger.killedBetween(call.startedAt, call.endedAt + unwrittenMs, databaseKills), `the run of ${call.key}`).toBe(true);
    } else if (call.isOk) {
      if (run.status === "succeeded") continue;
      expect([run.outcome, ledger.killedBetween(call.startedAt, call.endedAt + unreportedMs)], call.key).toEqual(["crashed", true]);
    } else if (call.code === "RUN_CRASHED") {
      expect(run.status, call.key).toBe("failed");
    }
  }
  return { runs: rows.length, swept };
}

/** Every answer was clear: what the program said, a refusal of the platform in its envelope, or a connection cut after the first byte. */
export function proveClearAnswers(ledger: Ledger, options: { mayBeUnreachable: boolean }): void {
  const isUnreachable = (error: string | null): boolean => options.mayBeUnreachable && error !== null && !/timeout|abort/i.test(error);
  const unclear = ledger.entries.filter((entry) => {
    if (entry.isOk) return false;
    if (entry.status === null) return !isUnreachable(entry.error) && entry.kind !== "mail";
    if (entry.kind === "mail") return entry.status < 400 || entry.status >= 500;
    if (entry.kind === "call" && entry.isCut) return false;
    if (entry.code === null) return true;
    // Of a compiler that was killed the program is told, as of one that it brought down: from outside they look the same.
    if (entry.code === "BUILD_FAILED") return !ledger.killedBetween(entry.startedAt, entry.endedAt, ["build", "everything"]);
    if (entry.kind === "save") return ![409, 503].includes(entry.status);
    // The program failed with its database.
    if (entry.status === 500 && entry.code === "RUN_FAILED")
      return !ledger.killedBetween(entry.startedAt - 60_000, entry.endedAt, databaseKills);
    return ![502, 503, 504].includes(entry.status);
  });
  expect([...new Set(unclear.map((entry) => `${entry.kind} ${entry.status} ${entry.code} ${entry.error}`))]).toEqual([]);
  const stale = ledger.calls.filter((call) => call.isOk && (call.version ?? 0) < call.versionBefore);
  expect(stale).toEqual([]);
}

async function schemaOf(tree: Tree, subject: Subject): Promise<string> {
  const [kap] = await tree.query<{ schema_name: string }>("select schema_name from kaps where id = $1", [subject.kap.id]);
  if (!kap) throw new Error("the kap is gone");
  return `"${kap.schema_name}"`;
}
