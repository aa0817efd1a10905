import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { sweep } from "../../api/gateway/sweep.ts";
import { signUpOrg, type TestKap, type TestOrg } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";
import { until } from "../harness/wait.ts";

vi.setConfig({ testTimeout: 240_000 }); // each test waits up to a minute, several times

const concurrency = 4;

let platform: TestPlatform;
let org: TestOrg;

beforeAll(async () => {
  platform = await startTestPlatform({
    KAPSTONE_WARM_RUNTIMES: "2",
    KAPSTONE_KAP_CONCURRENCY: String(concurrency),
    KAPSTONE_KAP_RUNTIMES: "3",
    KAPSTONE_RUNTIME_IDLE_SECONDS: "5", // longer than a machine stands still: only what is not called becomes idle
  });
  org = await signUpOrg(platform);
});
afterAll(() => platform.close());

/** Answers after a while, naming the runtime that served it (each has module variables of its own). */
const program = (word: string): string => `
const me = crypto.randomUUID();
export default async () => {
  await new Promise((resolve) => setTimeout(resolve, 150));
  return Response.json({ me, word: ${JSON.stringify(word)} });
};`;

interface Slot {
  id: string;
  slot: number;
  state: string;
}
const slots = async (kap: TestKap): Promise<Slot[]> =>
  (await platform.platform.api.deps
    .db("runtimes")
    .where({ kap_id: kap.id, state: "ready" })
    .orderBy("slot")
    .select("id", "slot", "state")) as Slot[];

/** Keeps so many calls of a kap going until told to stop. Answers who served, and how many calls were not answered with 200. */
function load(kap: TestKap, callers: number) {
  const servers = new Set<string>();
  let failed = 0;
  let isOver = false;
  const caller = async (): Promise<void> => {
    while (!isOver) {
      const answer = await kap.call({ path: "/" });
      if (answer.status !== 200) failed += 1;
      else servers.add(answer.json<{ me: string }>().me);
    }
  };
  const all = Promise.all(Array.from({ length: callers }, caller));
  return {
    servers,
    failed: () => failed,
    async stop() {
      isOver = true;
      await all;
    },
  };
}

test("a kap under three times the calls one runtime takes gets further runtimes, spreads its calls, and gives them back when it is quiet", async () => {
  const kap = await org.createKap(program("one"));
  await kap.call();
  expect(await slots(kap)).toMatchObject([{ slot: 0 }]);
  const first = (await slots(kap))[0]?.id;

  const running = load(kap, concurrency * 3);
  await until(async () => (await slots(kap)).length === 3, { what: "three runtimes of the kap", timeoutMs: 60_000 });
  await until(() => running.servers.size >= 3, { what: "calls on all three", timeoutMs: 60_000 });
  expect((await slots(kap)).map(({ slot }) => slot)).toEqual([0, 1, 2]); // and never more
  expect(running.failed()).toBe(0);

  // A save reaches all of them at once: what is answered from now on is the new program's.
  expect((await kap.save(program("two"))).status).toBe(200);
  const after = await Promise.all(Array.from({ length: concurrency * 3 }, () => kap.call()));
  expect(after.map((answer) => answer.json<{ word: string }>().word)).toEqual(after.map(() => "two"));
  await running.stop();
  expect(running.failed()).toBe(0);

  // Few calls are served by the first runtime alone, so the others become idle and are released before it is.
  await until(
    async () => {
      await kap.call();
      await sweep(platform.platform.api.deps);
      return (await slots(kap)).length === 1;
    },
    { what: "one runtime left", timeoutMs: 60_000 },
  );
  expect((await slots(kap))[0]).toMatchObject({ id: first, slot: 0 });
  expect((await kap.call()).status).toBe(200);
});

test("a disabled kap is let go by all its runtimes", async () => {
  const kap = await org.createKap(program("one"));
  const running = load(kap, concurrency * 3);
  await until(async () => (await slots(kap)).length >= 2, { what: "a second runtime", timeoutMs: 60_000 });
  const disabled = await org.call({ method: "POST", path: `/v1/orgs/${org.id}/kaps/${kap.id}/disable`, body: { reason: "test" } });
  expect(disabled.status, disabled.text).toBe(200);
  await until(async () => (await slots(kap)).length === 0, { what: "no runtime left", timeoutMs: 60_000 });
  expect((await kap.call()).status).toBe(503);
  await running.stop();
});
