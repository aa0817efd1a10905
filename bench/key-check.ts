import { type Measure, ms, type Row } from "./measure.ts";
import { startMeasuredPlatform } from "./platform.ts";
import { cores, end, freePort, load, median, script, startOn } from "./processes.ts";
import { quantileBetween, readServiceTimes } from "./service-time.ts";

const rounds = 3;
const pace = { keys: 2_000, me: 200, logins: 20 };

/**
 * A key is verified by an indexed read that begins after its request came, without a cache: `/v1/me` at 2,000 a second beside a bare server that does one
 * raw indexed select at the same pace on the same core. Service time is what the server itself took, from the request at its route to its answer written; at the
 * client the load generator's own share and its wait for the core that it has together with PostgreSQL come on top. And what 20 logins a second (each a
 * password hash) do to everybody else.
 */
export const keyCheck: Measure = {
  name: "key-check",
  async run(): Promise<Row[]> {
    const internalPort = await freePort();
    const platform = await startMeasuredPlatform({ KAPSTONE_INTERNAL_PORT: String(internalPort) });
    const timesOfMe = () => readServiceTimes(`http://127.0.0.1:${internalPort}`, "/v1/me");
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
      const ours: { service: number; client: number }[] = [];
      const theirs: { service: number; client: number }[] = [];
      const quiet: number[] = [];
      const busy: number[] = [];
      for (let round = 0; round < rounds; round++) {
        const before = await timesOfMe();
        const a = await load({ ...me, requests: pace.keys * 5, pace: pace.keys });
        const after = await timesOfMe();
        const b = await load({ ...select, requests: pace.keys * 5, pace: pace.keys });
        const raw99 = (await (await fetch(`${raw.firstLine}/p99`)).json()) as number;
        const calm = await load({ ...me, requests: pace.me * 8, pace: pace.me });
        const [during, logins] = await Promise.all([
          load({ ...me, requests: pace.me * 8, pace: pace.me }),
          load({ ...login, requests: pace.logins * 8, pace: pace.logins }),
        ]);
        const failures = a.failures + b.failures + calm.failures + during.failures + logins.failures;
        if (failures > 0) throw new Error(`${failures} requests failed while they were measured`);
        ours.push({ service: quantileBetween(before, after, 0.99), client: a.p99 });
        theirs.push({ service: raw99, client: b.p99 });
        quiet.push(calm.p99);
        busy.push(during.p99);
      }
      const p99 = (of: "service" | "client", list: typeof ours): number => median(list.map((round) => round[of]));
      const service = p99("service", ours);
      const share = median(busy.map((value, at) => value / (quiet[at] as number)));
      return [
        {
          measure: "a key verified at 2,000 a second, service time p99",
          value: `${ms(service)} (${ms(p99("client", ours))} at the client)`,
          peer: `one raw indexed select ${ms(p99("service", theirs))} (${ms(p99("client", theirs))} at the client)`,
          result: ms(service),
          goal: "≤ 2 ms",
          isMet: service <= 2,
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
