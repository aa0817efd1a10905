import { afterAll, expect, test } from "vitest";
import { until } from "../../harness/wait.ts";
import { images } from "../images.ts";
import { helmMs, openRelease } from "./release.ts";
import { createSubject, percentile, proveRows, troubles } from "./subject.ts";

const release = await openRelease();
afterAll(() => release.close());

test(
  "an upgrade to a release with another API and one migration more fails no call and restarts no runtime",
  async () => {
    const subject = await createSubject(release);
    const serving = async (): Promise<string[]> =>
      (await release.pods("runtime", "kapstone.dev/runtime=claimed")).map(({ metadata }) => `${metadata.name} ${metadata.uid}`).sort();
    await until(async () => (await release.pods("runtime", `kapstone.dev/kap=${subject.kap.slug}`)).length === 1, { timeoutMs: 90_000 });
    // Those that other files have ended go first.
    await until(
      async () => {
        const [rows] = await release.query<{ ready: number; ending: number }>(
          "select count(*) filter (where state = 'ready') as ready, count(*) filter (where state <> 'ready') as ending from runtimes",
        );
        return rows?.ending === 0 && (await serving()).length === rows.ready;
      },
      { timeoutMs: 180_000, what: "every claimed pod to serve" },
    );
    const before = { serving: await serving(), apis: (await release.pods("api")).map(({ metadata }) => metadata.uid) };
    const loads = [
      await subject.load({ callers: 2, pauseMs: 50, isKeptAlive: false }),
      await subject.load({ callers: 2, pauseMs: 50, isKeptAlive: true }),
    ];
    const startedAt = performance.now();
    await release.upgrade("--set", `images.api.tag=${images.nextTag}`);
    const upgradedMs = performance.now() - startedAt;
    // The old replicas drain after the new ones are ready.
    await until(async () => (await release.pods("api")).every(({ metadata }) => !before.apis.includes(metadata.uid)), {
      timeoutMs: 120_000,
    });
    await until(
      async () =>
        (await release.kubectl("get", "pods", "-l", "app.kubernetes.io/component=api", "-o", "name")).trim().split("\n").length === 2,
      {
        timeoutMs: 180_000,
        what: "the end of the old replicas",
      },
    );
    const calls = (await Promise.all(loads.map((load) => load.stop()))).flat();
    const times = calls.map(({ ms }) => ms);
    process.stdout.write(
      `${JSON.stringify({
        upgraded_s: Math.round(upgradedMs / 1_000),
        calls: calls.length,
        failed: troubles(calls),
        call_ms: { p50: percentile(times, 0.5), p99: percentile(times, 0.99), most: percentile(times, 1) },
      })}\n`,
    );
    expect(troubles(calls)).toEqual({});
    await proveRows(subject, calls);
    expect(await serving()).toEqual(before.serving);
    expect(await release.query("select name from migrations where name = '9999_next_release'")).toHaveLength(1);
  },
  helmMs,
);
