import { afterAll, expect, test } from "vitest";
import { createLogger } from "#platform/log.ts";
import { createTestDatabase } from "../test/harness/database.ts";
import { networkTo } from "../test/harness/network.ts";
import { until } from "../test/harness/wait.ts";
import { followRuntimeRows } from "./runtime-rows.ts";

const database = await createTestDatabase();
afterAll(() => database.close());

test("the table is followed over another connection once the packets of its own are dropped, and let go while they are", async () => {
  const network = await networkTo(database.url);
  const ended = new AbortController();
  const log = createLogger("test", { level: "silent" });
  let reads = 0;
  const follower = followRuntimeRows({
    databaseUrl: network.url,
    log,
    signal: ended.signal,
    onRead: () => {
      reads += 1;
    },
  });
  try {
    await follower.read;
    network.swallow();
    const before = reads;
    await until(() => reads > before, { timeoutMs: 50_000, what: "a look over another connection" });
    expect(follower.current()?.rows.size).toBe(0);
    network.swallow();
  } finally {
    ended.abort();
    await follower.ended;
    network.close();
  }
}, 60_000);
