import { type Measure, ms, type Row } from "./measure.ts";
import { startMeasuredPlatform } from "./platform.ts";
import { cores, end, load, median, script, startOn } from "./processes.ts";

const rounds = 3;
const pace = { keys: 2_000, me: 200, logins: 20 };

/**
 * A key is verified by one indexed read for every request, without a cache: `/v1/me` at 2,000 a second beside a bare server that does one raw indexed
 * select at the same pace on the same core. And what 20 logins a second (each a password hash) do to everybody else.
 */
export const keyCheck: Measure = {
  name: "key-check",
  async run(): Promise<Row[]> {
    const platform = await startMeasuredPlatform();
    const raw = await startOn(cores.measured, script("select-server.ts"), { BENCH_DATABASE_URL: platform.databaseUrl });
    try {
      const org = await platform.signUp();
      const minted = await platform.http.call({
        host: platform.host("api"),
        method: "POST",
        path: "/v1/auth/api-keys",
        headers: { authorization: `Bearer ${org.session}` },
        body: { name: "bench", scopes: ["read"] },
      });
      const { id, secret } = minted.json<{ id: string; secret: string }>();
      const me = { origin: platform.origin, path: "/v1/me", headers: { host: platform.host("api"), "x-api-key": secret }, connections: 64 };
      const select = { origin: raw.firstLine, path: `/${id}`, headers: { host: "peer" }, connections: 64 };
      const login = {
        origin: platform.origin,
        path: "/v1/auth/login",
        headers: { host: platform.host("api"), "content-type": "application/json" },
        json: JSON.stringify({ email: org.email, password: org.password }),
        connections: 64,
      };
      const ours: number[] = [];
      const theirs: number[] = [];
      const quiet: number[] = [];
      const busy: number[] = [];
      for (let round = 0; round < rounds; round++) {
        const a = await load({ ...me, requests: pace.keys * 5, pace: pace.keys });
        const b = await load({ ...select, requests: pace.keys * 5, pace: pace.keys });
        const calm = await load({ ...me, requests: pace.me * 8, pace: pace.me });
        const [during, logins] = await Promise.all([
          load({ ...me, requests: pace.me * 8, pace: pace.me }),
          load({ ...login, requests: pace.logins * 8, pace: pace.logins }),
        ]);
        const failures = a.failures + b.failures + calm.failures + during.failures + logins.failures;
        if (failures > 0) throw new Error(`${failures} requests failed while they were measured`);
        ours.push(a.p99);
        theirs.push(b.p99);
        quiet.push(calm.p99);
        busy.push(during.p99);
      }
      const p99 = median(ours);
      const share = median(busy.map((value, at) => value / (quiet[at] as number)));
      return [
        {
          measure: "a key verified at 2,000 a second, p99",
          value: ms(p99),
          peer: `one raw indexed select ${ms(median(theirs))}`,
          result: ms(p99),
          goal: "≤ 2 ms",
          isMet: p99 <= 2,
        },
        {
          measure: "/v1/me beside 20 logins a second, p99",
          value: ms(median(busy)),
          peer: `without logins ${ms(median(quiet))}`,
          result: `${share.toFixed(2)} ×`,
          goal: "≤ 1.2 ×",
          isMet: share <= 1.2,
        },
      ];
    } finally {
      await end(raw.process);
      await platform.close();
    }
  },
};
