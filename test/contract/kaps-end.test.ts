import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { purgeKap } from "../../api/services/kaps/purge.ts";
import { until } from "../harness/wait.ts";
import type { ServiceApp } from "./auth-app.ts";
import { type Author, author, codeOf, type KapBody, startKapsApp } from "./kaps-app.ts";

let app: ServiceApp;
let me: Author;

beforeAll(async () => {
  app = await startKapsApp({ KAPSTONE_RECOVERY_DAYS: "0" });
  me = await author(app);
});
afterAll(() => app.close());

interface Kept {
  schema_name: string;
  role_name: string;
  bucket: string;
  role_password: Buffer;
}

const columns = ["schema_name", "role_name", "bucket", "role_password"];

test("when its deadline is over a kap is purged: schema, role, bucket, secrets, tokens, versions and files are gone for good", async () => {
  const { kap, version } = await me.create();
  const { kap: neighbour } = await me.create();
  await me.save(kap.id, version.id, { "main.ts": "export default () => new Response('unique-content-2');" });
  await me.call("PUT", `/kaps/${kap.id}/secrets/GONE`, { value: "v" });
  await me.call("POST", `/kaps/${kap.id}/endpoint-secrets`, { name: "e" });
  const row: Kept = await app.deps.db("kaps").where({ id: kap.id }).first(columns);
  await app.deps.objects.put(row.bucket, "file", Buffer.from("bytes"));
  const url = new URL(app.database.url);
  const client = new pg.Client({
    host: url.hostname,
    port: Number(url.port),
    database: url.pathname.slice(1),
    user: row.role_name,
    password: app.deps.keyring.open(row.role_password, `kap-role:${kap.id}`),
  });
  client.on("error", () => undefined);
  await client.connect();
  await client.query("create table notes (id int); insert into notes values (1)");

  const deleted = (await me.call("DELETE", `/kaps/${kap.id}`)).json<{ kap: KapBody }>().kap;
  expect(deleted.recover_until).toBe(deleted.deleted_at);
  await until(async () => (await app.deps.db("kaps").where({ id: kap.id }).whereNotNull("purged_at").first("id")) !== undefined, {
    what: "the purge",
  });

  await expect(client.query("select 1")).rejects.toThrow();
  const { rows } = await app.deps.db.raw(
    "select (select count(*) from pg_namespace where nspname = ?)::int as schemas, (select count(*) from pg_roles where rolname = ?)::int as roles",
    [row.schema_name, row.role_name],
  );
  expect(rows).toEqual([{ schemas: 0, roles: 0 }]);
  await expect(app.deps.objects.head(row.bucket, "file").then((info) => info ?? Promise.reject(new Error("gone")))).rejects.toThrow();
  for (const table of ["secrets", "kap_secret_names", "kap_tokens", "kap_triggers", "kap_versions", "kap_blobs"]) {
    expect([table, (await app.deps.db(table).where({ kap_id: kap.id })).length]).toEqual([table, 0]);
  }

  expect(codeOf(await me.call("POST", `/kaps/${kap.id}/recover`))).toBe("410 RECOVERY_EXPIRED");
  expect(codeOf(await me.call("GET", `/kaps/${kap.id}`))).toBe("410 RECOVERY_EXPIRED");
  expect(codeOf(await me.call("PATCH", `/kaps/${kap.id}`, { name: "X" }))).toBe("410 KAP_DELETED");
  expect((await me.call("GET", "/recovery")).json<{ kaps: KapBody[] }>().kaps.map((entry) => entry.id)).toContain(kap.id);
  const { events } = (await me.call("GET", `/kaps/${kap.id}/history`)).json<{ events: { kind: string; actor: { kind: string } }[] }>();
  expect(events.at(-1)).toMatchObject({ kind: "purged", actor: { kind: "system" } });

  const beside: Kept = await app.deps.db("kaps").where({ id: neighbour.id }).first(columns);
  const left = await app.deps.db.raw("select count(*)::int as n from pg_roles where rolname = ?", [beside.role_name]);
  expect(left.rows).toEqual([{ n: 1 }]);
  expect((await me.call("GET", `/kaps/${neighbour.id}`)).status).toBe(200);
});

test("a purge that was cut anywhere is finished by the next one; one that comes too early or too late does nothing", async () => {
  const { kap } = await me.create();
  await purgeKap(app.deps, kap.id); // not deleted
  expect((await me.call("GET", `/kaps/${kap.id}`)).status).toBe(200);
  const later = new Date(Date.now() + 60_000);
  await app.deps.db("kaps").where({ id: kap.id }).update({ state: "deleted", deleted_at: new Date(), recover_until: later });
  await purgeKap(app.deps, kap.id); // too early
  expect((await app.deps.db("kaps").where({ id: kap.id }).first("purged_at")).purged_at).toBeNull();
  await app.deps
    .db("kaps")
    .where({ id: kap.id })
    .update({ recover_until: new Date(0) });
  // The object store is away while the schema is already gone.
  const cut: typeof app.deps = {
    ...app.deps,
    objects: { ...app.deps.objects, deleteBucket: () => Promise.reject(new Error("the store is away")) },
  };
  await expect(purgeKap(cut, kap.id)).rejects.toThrow("the store is away");
  await purgeKap(app.deps, kap.id);
  const first = await app.deps.db("kaps").where({ id: kap.id }).first("purged_at");
  expect(first.purged_at).not.toBeNull();
  await purgeKap(app.deps, kap.id);
  expect(await app.deps.db("kaps").where({ id: kap.id }).first("purged_at")).toEqual(first);
});
