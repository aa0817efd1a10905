import type pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { newId } from "#platform/ids.ts";
import { type AdmissionRequest, admit } from "../../api/gateway/admit.ts";
import { signUpOrg, type TestKap } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";
import { until } from "../harness/wait.ts";

let platform: TestPlatform;
let hot: pg.Pool;
let kap: TestKap;

beforeAll(async () => {
  platform = await startTestPlatform();
  hot = platform.platform.api.deps.postgres.hot;
  kap = await (await signUpOrg(platform)).createKap("export default () => new Response('ok')");
});
afterAll(() => platform.close());

/** A member's call, already proved. */
const call = (given: Partial<AdmissionRequest> = {}): AdmissionRequest => ({
  slug: kap.slug,
  tokenKind: null,
  tokenDigest: null,
  proven: true,
  busy: [],
  runId: newId(),
  requestId: newId(),
  caller: "member:a@b.example",
  method: "GET",
  target: "/",
  ...given,
});

const targetsOf = async (requests: AdmissionRequest[]): Promise<Record<string, string>> => {
  const ids = requests.map(({ runId }) => runId);
  const { rows } = await hot.query<{ id: string; target: string }>("select id, target from kapstone.runs where id = any($1)", [ids]);
  return Object.fromEntries(rows.map(({ id, target }) => [id, target]));
};

/** The pool, with each of its first statements held back until it is let go. */
function heldBack(count: number): { pool: pg.Pool; sent: () => number; letGo: () => void } {
  let sent = 0;
  let letGo = (): void => undefined;
  const gate = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  const query = async (config: pg.QueryConfig) => {
    sent += 1;
    if (sent <= count) await gate;
    return hot.query(config);
  };
  return { pool: { query } as unknown as pg.Pool, sent: () => sent, letGo };
}

test("of calls that arrive together, one whose values PostgreSQL does not take fails alone", async () => {
  const good = [call({ target: "/first" }), call({ target: "/last" })] as const;
  const bad = call({ target: "/\u0000" });
  const unknown = call({ slug: "no-such-kap-here" });
  const [first, refused, nobody, last] = await Promise.allSettled([
    admit(hot, good[0]),
    admit(hot, bad),
    admit(hot, unknown),
    admit(hot, good[1]),
  ]);
  expect(first).toMatchObject({ status: "fulfilled", value: { id: kap.id, refused: null } });
  expect(last).toMatchObject({ status: "fulfilled", value: { id: kap.id, refused: null } });
  expect(nobody).toEqual({ status: "fulfilled", value: null });
  expect(refused).toMatchObject({ status: "rejected", reason: { code: "22P05" } });
  expect(await targetsOf([...good, bad, unknown])).toEqual({ [good[0].runId]: "/first", [good[1].runId]: "/last" });
});

test("an error that is not of the values fails every call of the statement, and none is written", async () => {
  const requests = [call(), call()];
  const query = () => hot.query("select * from kapstone.no_such_table");
  const ends = await Promise.allSettled(requests.map((request) => admit({ query } as unknown as pg.Pool, request)));
  expect(ends).toMatchObject(requests.map(() => ({ status: "rejected", reason: { code: "42P01" } })));
  expect(await targetsOf(requests)).toEqual({});
});

test("many more calls than one statement takes are each admitted once, each with its own row", async () => {
  const requests = Array.from({ length: 180 }, (_, n) => call({ target: `/${n}` }));
  const admissions = await Promise.all(requests.map((request) => admit(hot, request)));
  expect(admissions.every((admission) => admission?.id === kap.id && admission.refused === null)).toBe(true);
  expect(await targetsOf(requests)).toEqual(Object.fromEntries(requests.map(({ runId, target }) => [runId, target])));
});

test("calls do not wait for the end of statements that hang", async () => {
  const { pool, sent, letGo } = heldBack(2);
  const held: Promise<unknown>[] = [];
  for (const count of [1, 2]) {
    held.push(admit(pool, call()));
    await until(() => sent() === count);
  }
  const others = [call({ target: "/beside" }), call({ target: "/them" })];
  const admissions = await Promise.all(others.map((request) => admit(pool, request)));
  expect(admissions).toMatchObject([{ refused: null }, { refused: null }]);
  expect(Object.values(await targetsOf(others)).sort()).toEqual(["/beside", "/them"]);
  letGo();
  expect(await Promise.all(held)).toMatchObject([{ refused: null }, { refused: null }]);
});

test("a call that is not admitted leaves no row, and says what a refusal needs", async () => {
  const anonymous = call({ proven: false, caller: "anonymous" });
  expect(await admit(hot, anonymous)).toMatchObject({
    id: kap.id,
    refused: { slug: kap.slug, state: "active", audience: "members", has_token: false, paused_by: null },
  });
  expect(await targetsOf([anonymous])).toEqual({});
});
