import type { Answer } from "../harness/http.ts";
import { signUpOrg, type TestKap, type TestOrg } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";
import { until } from "../harness/wait.ts";

const program = `
import { db, store, secrets } from "kap";
let seen = 0;
const tried = async (action) => { try { return await action(); } catch (error) { return { name: error.name, message: error.message, code: error.code ?? null }; } };
const ways = {
  async setup() {
    await db.query("create table notes (id serial primary key, text text unique)");
    await db.query("create table later (id int primary key, note int references notes (id) deferrable initially deferred)");
    await db.query("create function jump() returns bigint language sql as $$ select setval('notes_id_seq', 1000) $$");
    await db.query("create procedure leave() language plpgsql as $$ begin insert into notes (text) values ('left'); commit; end $$");
    await store.put("kept.txt", "kept", { contentType: "text/plain" });
  },
  state: async () => ({
    notes: (await db.query("select id, text from notes order by id")).rows,
    tables: (await db.query("select table_name from information_schema.tables where table_schema = current_schema() order by 1")).rows.map((row) => row.table_name),
    files: (await store.list()).objects.map((object) => object.key),
    kept: await (await store.get("kept.txt"))?.text(),
    seen,
  }),
  add: (text) => db.query("insert into notes (text) values ($1) returning id", [text]),
  async everything(ctx) {
    seen++;
    console.log("begins with", secrets.get("TOKEN"));
    await db.query("create table made (id int)");
    const added = await db.query("insert into notes (text) values ('dry'), ('drier') returning text");
    const failed = await tried(() => db.query("insert into notes (text) values ('dry')"));
    const batch = await tried(() => db.batch([{ sql: "insert into notes (text) values ('batched')" }, { sql: "insert into notes (text) values ('dry')" }]));
    const good = await db.batch([{ sql: "insert into later values (1, 77)" }, { sql: "insert into notes (id, text) values (77, 'late')" }]);
    const unkept = await tried(() => db.query("insert into later values (2, 78)"));
    const { rows: counted } = await db.query("select count(*)::int as n from notes where text in ('dry', 'drier', 'batched', 'late')");
    await store.put("new.txt", "new bytes", { contentType: "text/plain" });
    await store.put("large.bin", new Response(new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(100_000)); if (++this.n > 3) c.close(); }, n: 0 }).pipeThrough(new TransformStream())));
    await store.delete("kept.txt");
    const bad = await tried(() => store.put("../up", "x"));
    const files = [await (await store.get("new.txt"))?.text(), await store.get("kept.txt"), (await store.list()).objects.map(({ key, size }) => [key, size])];
    const fetched = await tried(() => fetch("https://example.com/pay?with=" + secrets.get("TOKEN"), { method: "POST", body: "money" }));
    const streamed = await tried(() => fetch("http://127.0.0.1/", { method: "POST", duplex: "half", body: new ReadableStream({ start(c) { c.enqueue(new Uint8Array(9)); c.close(); } }) }));
    ctx.waitUntil(db.query("insert into notes (text) values ('afterwards')"));
    return { rows: added.rows, failed, batch, good: good.map((one) => one.row_count), unkept, counted: counted[0].n, bad, files, fetched, streamed };
  },
  attack: async (sql) => tried(() => db.query(sql)),
  throws: async () => { await db.query("insert into notes (text) values ('thrown')"); throw new TypeError("no good"); },
  forever: async () => { await db.query("insert into notes (text) values ('forever')"); for (;;); },
  idles: () => new Promise(() => {}),
  hangs: async () => { await db.query("insert into notes (text) values ('hanging')"); await new Promise(() => {}); },
  heap: async () => { await db.query("insert into notes (text) values ('heap')"); const all = []; for (;;) all.push(new Array(1_000_000).fill(1.5)); },
  wedges: async () => { await db.query("insert into notes (text) values ('wedged')"); let x = 3n ** 1_000_000n; for (;;) x = (x * x) % (1n << 4_000_000n); },
  slow: () => tried(() => db.query("select count(*) from generate_series(1, 1000000000)")),
  async large() { const row = await tried(() => db.query("select repeat('x', 60000000) as x")); return [row.code, (await tried(() => db.query("insert into notes (text) values ('after')"))).code]; },
};
export default {
  async fetch(request, ctx) {
    const url = new URL(request.url);
    const way = url.pathname.slice(1);
    if (way === "bytes") return new Response(new Uint8Array([0xff, 0, 1]), { status: 201, headers: { "x-mine": "yes" } });
    if (way === "echo") return Response.json({ method: request.method, url: request.url, headers: Object.fromEntries(request.headers), body: await request.text(), user: ctx.user ?? null });
    if (way === "everything") return Response.json(await ways.everything(ctx));
    return Response.json((await ways[way](...url.searchParams.values())) ?? null);
  },
  async scheduled(event) {
    console.log("tick of", event.scheduledAt.toISOString());
    await db.query("insert into notes (text) values ($1)", ["tick"]);
  },
  async email(message) {
    await db.query("insert into notes (text) values ($1)", [message.subject]);
    for (const { filename, content } of message.attachments) await store.put(filename, content);
    console.log(message.from.address, message.text.trim(), message.auth.spf.result);
  },
};`;

/** What a dry run answers. */
export interface Report {
  outcome: string;
  detail: string | null;
  what_to_do: string;
  http: { status: number; headers: [string, string][]; body: string | null; body_base64: string | null } | null;
  effects: Record<string, unknown>[];
  lines: { n: number; level: string; text: string }[];
  duration_ms: number;
  cpu_ms: number;
}
/** What the kap itself sees of its database and its files. */
export interface State {
  notes: { id: number; text: string }[];
  tables: string[];
  files: string[];
  kept: string;
  seen: number;
}

/** A kap with a trigger of each kind, to be run dry. */
export interface DryRunGround {
  platform: TestPlatform;
  org: TestOrg;
  kap: TestKap;
  /** Path of the kap. */
  base: string;
  /** Ids of its triggers. */
  triggers: { request: string; schedule: string; inbox: string };
  /** Asks for a dry run of a trigger. */
  send(trigger: string, body?: object): Promise<Answer>;
  /** The report of one that is answered 200. */
  dry(trigger: string, body?: object): Promise<Report>;
  /** As the kap sees it; asked again while its isolate is being replaced. */
  state(): Promise<State>;
}

/** Starts a platform with such a kap. Close the platform in `afterAll`. */
export async function openDryRunGround(): Promise<DryRunGround> {
  const platform = await startTestPlatform({
    // Less than a tenth of the wall time: a run gets that much of a processor before the wall time is over, also on a busy machine.
    KAPSTONE_KAP_REQUEST_CPU_MS: "1000",
    KAPSTONE_KAP_REQUEST_WALL_MS: "12000",
    KAPSTONE_KAP_MEMORY_MB: "64",
  });
  try {
    const org = await signUpOrg(platform);
    const kap = await org.createKap(program);
    const base = `/v1/orgs/${org.id}/kaps/${kap.id}`;
    await org.call({ method: "PUT", path: `/v1/kaps/${kap.id}/secrets/TOKEN`, body: { value: "very-secret-token" } });
    const made = async (body: object): Promise<string> =>
      (await org.call({ method: "POST", path: `${base}/triggers`, body })).json<{ trigger: { id: string } }>().trigger.id;
    const schedule = await made({ kind: "schedule", file_path: "main.ts", interval_seconds: 86_400 });
    const inbox = await made({ kind: "inbox", file_path: "main.ts" });
    const all = (await org.call({ path: `${base}/triggers` })).json<{ triggers: { id: string; kind: string }[] }>().triggers;
    const request = all.find((trigger) => trigger.kind === "request")?.id ?? "";
    for (const path of ["/setup", "/add?text=real"]) {
      const answer = await kap.call({ path });
      if (answer.status !== 200) throw new Error(`${path} answered ${answer.status}: ${answer.text}`);
    }
    const send = (trigger: string, body?: object): Promise<Answer> =>
      org.call({ method: "POST", path: `${base}/triggers/${trigger}/dry-run`, ...(body ? { body } : {}) });
    return {
      platform,
      org,
      kap,
      base,
      triggers: { request, schedule, inbox },
      send,
      async dry(trigger, body) {
        const answer = await send(trigger, body);
        if (answer.status !== 200) throw new Error(`the dry run answered ${answer.status}: ${answer.text}`);
        return answer.json<Report>();
      },
      state: () =>
        until(async () => {
          const answer = await kap.call({ path: "/state" });
          return answer.status === 200 && answer.json<State>();
        }),
    };
  } catch (error) {
    await platform.close();
    throw error;
  }
}
