import { afterAll, expect, test } from "vitest";
import { type Kap, kapResource } from "../../platform/kap-resource.ts";
import { until } from "../harness/wait.ts";
import { type OperatorProcess, openGround } from "./operator-ground.ts";

const ground = await openGround();
const { kubernetes } = ground.namespace;
afterAll(() => ground.close());
const count = 300;
const batch = 10;

async function listKaps(): Promise<Kap[]> {
  return (await kubernetes.listPage(kapResource, { limit: 1_000 })).items;
}
const isReady = ({ status, metadata }: Kap): boolean =>
  status?.observedGeneration === metadata.generation && status?.conditions[0]?.type === "Ready" && status.conditions[0].status === "True";

/** Resident memory once nothing has moved for a moment, in MiB. */
async function restingMb(operator: OperatorProcess): Promise<number> {
  let before = 0;
  await until(
    async () => {
      const done = await operator.metric("reconciles_total");
      const rests = done === before && (await operator.metric("queue_depth")) === 0;
      before = done;
      return rests;
    },
    { timeoutMs: 60_000 },
  );
  return (await operator.metric("process_resident_memory_bytes")) / 1_048_576;
}

test(`${count} kaps: each is looked at once or twice, quickly, and takes little memory`, async () => {
  const operator = await ground.startOperator({ KAPSTONE_LEASE_SECONDS: "15" });
  await until(() => operator.leads(), { timeoutMs: 60_000 });
  const emptyMb = await restingMb(operator);
  for (let made = 0; made < count; made += batch) {
    await Promise.all(Array.from({ length: batch }, (_, i) => ground.makeKap({ schedules: [`${(made + i) % 4} 5 * * *`] })));
  }
  const madeAt = performance.now();
  await until(async () => (await listKaps()).filter(isReady).length === count, { timeoutMs: 120_000, what: "all kaps to be Ready" });
  const caughtUpMs = performance.now() - madeAt;
  const fullMb = await restingMb(operator);
  const written = await operator.metric("status_writes_total");
  expect(await operator.stop()).toBe(0);

  // Another takes over, and finds nothing to write.
  const startedAt = performance.now();
  const next = await ground.startOperator();
  await until(async () => (await next.metric("reconciles_total")) >= count, { timeoutMs: 120_000 });
  const takenOverMs = performance.now() - startedAt;
  const rewritten = await next.metric("status_writes_total");
  const nextMb = await restingMb(next);

  // A change of all at once.
  const changedAt = performance.now();
  const all = await listKaps();
  for (let at = 0; at < all.length; at += batch) {
    const part = all.slice(at, at + batch);
    await Promise.all(part.map(({ metadata }) => kubernetes.mergePatch(kapResource, metadata.name, { spec: { revision: 2 } })));
  }
  const patchedMs = performance.now() - changedAt;
  await until(async () => (await listKaps()).every((kap) => isReady(kap) && kap.status?.observedRevision === 2), { timeoutMs: 120_000 });
  const followedMs = performance.now() - changedAt - patchedMs;

  const rounded = (value: number): number => Math.round(value * 10) / 10;
  process.stdout.write(
    `${JSON.stringify({
      kaps: count,
      caught_up_after_last_ms: rounded(caughtUpMs),
      taken_over_ms: rounded(takenOverMs),
      followed_after_last_change_ms: rounded(followedMs),
      resident_mb: { empty: rounded(emptyMb), full: rounded(fullMb), after_take_over: rounded(nextMb) },
      growth_kb_per_kap: rounded(((fullMb - emptyMb) * 1_024) / count),
      status_writes_per_kap: rounded(written / count),
    })}\n`,
  );
  expect(written).toBeLessThanOrEqual(count * 2);
  expect(rewritten).toBe(0);
  expect((fullMb - emptyMb) / count).toBeLessThan(0.25);
  expect(await next.stop()).toBe(0);
}, 600_000);
