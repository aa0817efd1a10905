import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { type Measure, ms, type Row } from "./measure.ts";
import { startMeasuredPlatform } from "./platform.ts";

const schedules = 100;
const perKap = 20;
const minutes = 3;
const minuteMs = 60_000;
const graceMs = 20_000;

/** The laptop's driver of schedules: how long after its due time a run is made, and how long until it begins, with many schedules due at each of a few full minutes. */
export const tick: Measure = {
  name: "tick",
  async run(): Promise<Row[]> {
    const platform = await startMeasuredPlatform({ KAPSTONE_MIN_CADENCE_SECONDS: "60", KAPSTONE_WARM_RUNTIMES: "4" });
    const database = new pg.Client({ connectionString: platform.databaseUrl, options: "-c search_path=kapstone" });
    await database.connect();
    try {
      const org = await platform.signUp();
      for (let n = 0; n < schedules / perKap; n++) {
        const kap = await platform.createKap(org, "export default { async scheduled() {} }");
        for (let trigger = 0; trigger < perKap; trigger++) {
          const answer = await platform.http.call({
            host: platform.host("api"),
            method: "POST",
            path: `/v1/orgs/${org.orgId}/kaps/${kap.id}/triggers`,
            headers: { authorization: `Bearer ${org.session}`, "x-service-client": "bench" },
            body: { kind: "schedule", file_path: "main.ts", cron: "* * * * *" },
          });
          if (answer.status !== 201) throw new Error(`a schedule was answered ${answer.status}: ${answer.text}`);
        }
      }
      await delay(minuteMs - (Date.now() % minuteMs) + minuteMs * (minutes - 1) + graceMs);
      const { rows } = await database.query<{ made: number; begun: number; outcome: string | null }>(
        `select extract(epoch from uuid_extract_timestamp(id) - due_at)::float8 * 1000 as made, extract(epoch from started_at - due_at)::float8 * 1000 as begun, outcome
         from runs where trigger_kind = 'schedule' and due_at is not null`,
      );
      const failed = rows.filter((row) => row.outcome !== "ok");
      if (failed.length > 0 || rows.length < schedules * (minutes - 1))
        throw new Error(`${rows.length} runs in ${minutes} minutes, of which ${failed.length} are not ok: ${failed[0]?.outcome}`);
      const row = (what: string, late: number[]): Row => {
        late.sort((x, y) => x - y);
        const at = (share: number): number => late[Math.min(late.length - 1, Math.floor(late.length * share))] ?? 0;
        return {
          measure: `due time → ${what}, ${schedules} schedules a minute, ${late.length} runs`,
          value: `p50 ${ms(at(0.5))}, p99 ${ms(at(0.99))}`,
          peer: "",
          result: ms(at(0.99)),
          goal: "p99 ≤ 1 s",
          isMet: at(0.99) <= 1_000,
        };
      };
      return [
        row(
          "fired",
          rows.map(({ made }) => made),
        ),
        row(
          "begun",
          rows.map(({ begun }) => begun),
        ),
      ];
    } finally {
      await database.end();
      await platform.close();
    }
  },
};
