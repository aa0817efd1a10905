import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { resealSecrets, sealedColumns } from "../../api/services/secrets/reseal.ts";
import { effectiveSecrets } from "../../api/services/secrets/secrets.ts";
import { newId } from "../../platform/ids.ts";
import { createKeyring } from "../../platform/keyring.ts";
import type { ServiceApp } from "./auth-app.ts";
import { type Author, author, codeOf, startKapsApp } from "./kaps-app.ts";

let app: ServiceApp;
let me: Author;

beforeAll(async () => {
  app = await startKapsApp();
  me = await author(app);
});
afterAll(() => app.close());

const newKap = async (): Promise<string> => (await me.create()).kap.id;
const seen = (kapId: string): Promise<Record<string, string>> => effectiveSecrets(app.deps.db, app.deps.keyring, kapId);
async function newGroup(name = `group ${newId()}`): Promise<string> {
  return (await me.call("POST", "/secret-groups", { name })).json<{ group: { id: string } }>().group.id;
}

describe("a kap's own secrets", () => {
  test("are set, changed, listed by name and deleted; the value never comes back", async () => {
    const kap = await newKap();
    const set = await me.call("PUT", `/kaps/${kap}/secrets/API_KEY`, { value: "hunter2" });
    expect(set.json()).toEqual({ name: "API_KEY", set: true, refresh_pending: false });
    expect(await seen(kap)).toEqual({ API_KEY: "hunter2" });
    await me.call("PUT", `/kaps/${kap}/secrets/API_KEY`, { value: "hunter3 ü\n" });
    expect(await seen(kap)).toEqual({ API_KEY: "hunter3 ü\n" });
    const list = await me.call("GET", `/kaps/${kap}/secrets`);
    expect(list.json()).toEqual({ secrets: [{ name: "API_KEY", group_id: null, group_name: null }], refresh_pending: false });
    const gone = await me.call("DELETE", `/kaps/${kap}/secrets/API_KEY`);
    expect(gone.json()).toEqual({ name: "API_KEY", deleted: true, refresh_pending: false });
    expect(await seen(kap)).toEqual({});
    expect((await me.call("DELETE", `/kaps/${kap}/secrets/API_KEY`)).status).toBe(404);
    const history = await me.call("GET", `/kaps/${kap}/history`);
    expect(
      history
        .json<{ events: { kind: string; detail: object }[] }>()
        .events.slice(1)
        .map((event) => [event.kind, event.detail]),
    ).toEqual([
      ["secret.set", { name: "API_KEY" }],
      ["secret.set", { name: "API_KEY" }],
      ["secret.deleted", { name: "API_KEY" }],
    ]);
    expect(history.text).not.toContain("hunter");
  });

  test("answer on both bases", async () => {
    const kap = await newKap();
    const headers = { ...me.org.auth, "x-service-client": "t" };
    const put = await app.call({ method: "PUT", path: `/v1/kaps/${kap}/secrets/TWO`, headers, body: { value: "v" } });
    expect(put.status).toBe(200);
    const [one, other] = await Promise.all([
      me.call("GET", `/kaps/${kap}/secrets`),
      app.call({ path: `/v1/kaps/${kap}/secrets`, headers }),
    ]);
    expect(one.json()).toEqual(other.json());
  });

  test("are sealed at rest, each to its own row", async () => {
    const kap = await newKap();
    await me.call("PUT", `/kaps/${kap}/secrets/A`, { value: "plain-text-a" });
    await me.call("PUT", `/kaps/${kap}/secrets/B`, { value: "plain-text-b" });
    const rotatedKey = randomBytes(32);
    const rows = await app.deps.db("secrets").where({ kap_id: kap }).orderBy("name");
    expect(Buffer.concat(rows.map((row) => row.sealed_value)).includes("plain-text")).toBe(false);
    await app.deps.db("secrets").where({ id: rows[0].id }).update({ sealed_value: rows[1].sealed_value });
    await expect(seen(kap)).rejects.toThrow();
    // A value that no key opens is named, and does not keep the others from being sealed anew.
    const rotated = createKeyring([rotatedKey, Buffer.from(app.deps.config.keys[0] ?? "", "base64")]);
    await expect(resealSecrets(app.deps.db, rotated)).rejects.toThrow(rows[0].id);
    const other = await app.deps.db("secrets").where({ id: rows[1].id }).first();
    expect(rotated.isStale(other.sealed_value)).toBe(false);
    await app.deps.db("secrets").where({ kap_id: kap }).delete();
    await resealSecrets(app.deps.db, createKeyring([Buffer.from(app.deps.config.keys[0] ?? "", "base64"), rotatedKey]));
  });

  test("raise the kap's revision, so that the next request runs with them", async () => {
    const kap = await newKap();
    const revision = async (): Promise<number> => (await app.deps.db("kaps").where({ id: kap }).first("revision")).revision;
    const before = await revision();
    await me.call("PUT", `/kaps/${kap}/secrets/A`, { value: "1" });
    expect(await revision()).toBe(before + 1);
    await me.call("DELETE", `/kaps/${kap}/secrets/A`);
    expect(await revision()).toBe(before + 2);
  });

  test("names: 128 bytes are taken, 129 are not", async () => {
    const kap = await newKap();
    expect((await me.call("PUT", `/kaps/${kap}/secrets/${"A".repeat(128)}`, { value: "v" })).status).toBe(200);
    expect(codeOf(await me.call("PUT", `/kaps/${kap}/secrets/${"A".repeat(129)}`, { value: "v" }))).toBe("422 VALIDATION_FAILED");
  });

  test.each(["lower", "1ST", "_A", "A-B", "A.B", "%C3%84", "A%20B"])("the name %s is 422", async (name) => {
    expect(codeOf(await me.call("PUT", `/kaps/${await newKap()}/secrets/${name}`, { value: "v" }))).toBe("422 VALIDATION_FAILED");
  });

  test.each([
    "PATH",
    "HOME",
    "USER",
    "SHELL",
    "PWD",
    "LANG",
    "TMPDIR",
    "TZ",
    "LD_PRELOAD",
    "LC_ALL",
    "DENO_DIR",
    "NODE_OPTIONS",
    "NPM_TOKEN",
    "KAP_ID",
    "KAPSTONE_KEYS",
  ])("the name %s is reserved", async (name) => {
    expect(codeOf(await me.call("PUT", `/kaps/${await newKap()}/secrets/${name}`, { value: "v" }))).toBe("422 RESERVED_SECRET_NAME");
  });

  test("names that only look reserved are free", async () => {
    const kap = await newKap();
    for (const name of ["PATHS", "KAPS", "NODE", "TZ2", "LDAP_URL"]) {
      expect((await me.call("PUT", `/kaps/${kap}/secrets/${name}`, { value: "v" })).status).toBe(200);
    }
  });

  test("values: 65,536 bytes are taken; more, none, and what is no text are not", async () => {
    const kap = await newKap();
    const put = (value: unknown) => me.call("PUT", `/kaps/${kap}/secrets/V`, { value });
    expect((await put("x".repeat(65_536))).status).toBe(200);
    for (const value of ["x".repeat(65_537), "", null, 7, "\ud800"]) expect(codeOf(await put(value))).toBe("422 VALIDATION_FAILED");
    expect(codeOf(await me.call("PUT", `/kaps/${kap}/secrets/V`, { value: "v", note: "x" }))).toBe("422 VALIDATION_FAILED");
  });
});

describe("secret groups", () => {
  test("exist before any kap, are renamed, listed, and deleted with their secrets", async () => {
    const answer = await me.call("POST", "/secret-groups", { name: "Mail" });
    expect(answer.status).toBe(201);
    const { group } = answer.json<{ group: { id: string; name: string } }>();
    expect(group).toEqual({ id: expect.any(String), name: "Mail" });
    expect(codeOf(await me.call("POST", "/secret-groups", { name: "Mail" }))).toBe("409 CONFLICT");
    const renamed = await me.call("PATCH", `/secret-groups/${group.id}`, { name: "Post" });
    expect(renamed.json()).toEqual({ group: { id: group.id, name: "Post" } });
    await newGroup("Mail");
    expect(codeOf(await me.call("PATCH", `/secret-groups/${group.id}`, { name: "Mail" }))).toBe("409 CONFLICT");
    expect((await me.call("GET", "/secret-groups")).json<{ groups: { name: string }[] }>().groups.map((entry) => entry.name)).toContain(
      "Post",
    );
    await me.call("PUT", `/secret-groups/${group.id}/secrets/A`, { value: "1" });
    expect((await me.call("GET", `/secret-groups/${group.id}/secrets`)).json()).toEqual({
      secrets: [{ name: "A", group_id: group.id, group_name: "Post" }],
    });
    expect((await me.call("DELETE", `/secret-groups/${group.id}`)).status).toBe(200);
    expect((await me.call("GET", `/secret-groups/${group.id}/secrets`)).status).toBe(404);
    expect(await app.deps.db("secrets").where({ group_id: group.id })).toEqual([]);
  });

  test("attach to kaps, which see their secrets from then on, and changes of them", async () => {
    const [kap, second, group] = [await newKap(), await newKap(), await newGroup("Shared")];
    await me.call("PUT", `/secret-groups/${group}/secrets/TOKEN`, { value: "1" });
    for (const id of [kap, second]) {
      expect((await me.call("PUT", `/kaps/${id}/secret-groups/${group}`)).json()).toEqual({ attached: true, refresh_pending: false });
    }
    expect((await me.call("PUT", `/kaps/${kap}/secret-groups/${group}`)).status).toBe(200);
    expect((await me.call("GET", `/kaps/${kap}/secret-groups`)).json()).toEqual({ groups: [{ id: group, name: "Shared" }] });
    expect((await me.call("GET", `/kaps/${kap}/secrets`)).json<{ secrets: object[] }>().secrets).toEqual([
      { name: "TOKEN", group_id: group, group_name: "Shared" },
    ]);
    await me.call("PUT", `/secret-groups/${group}/secrets/TOKEN`, { value: "2" });
    await me.call("PUT", `/secret-groups/${group}/secrets/NEW`, { value: "n" });
    for (const id of [kap, second]) expect(await seen(id)).toEqual({ TOKEN: "2", NEW: "n" });
    expect(codeOf(await me.call("DELETE", `/secret-groups/${group}`))).toBe("409 CONFLICT");
    await me.call("DELETE", `/secret-groups/${group}/secrets/NEW`);
    expect((await me.call("DELETE", `/kaps/${kap}/secret-groups/${group}`)).json()).toEqual({ detached: true, refresh_pending: false });
    expect(await seen(kap)).toEqual({});
    expect(await seen(second)).toEqual({ TOKEN: "2" });
    expect((await me.call("DELETE", `/kaps/${kap}/secret-groups/${group}`)).status).toBe(404);
    await me.call("DELETE", `/kaps/${second}`);
    const ofDeleted = await me.call("DELETE", `/secret-groups/${group}`);
    expect([codeOf(ofDeleted), ofDeleted.text]).toEqual([
      "409 CONFLICT",
      expect.stringMatching(/\(deleted, can be recovered\): detach it there first; a deleted kap/),
    ]);
    await me.call("POST", `/kaps/${second}/recover`);
    const history = await me.call("GET", `/secret-groups/${group}/history`);
    expect(history.json<{ events: { kind: string; actor: { name: string } }[] }>().events.map((event) => event.kind)).toEqual([
      "created",
      "secret.set",
      "attached",
      "attached",
      "secret.set",
      "secret.set",
      "secret.deleted",
      "detached",
    ]);
    const kinds = (await me.call("GET", `/kaps/${kap}/history`)).json<{ events: { kind: string }[] }>().events.map((event) => event.kind);
    expect(kinds).toEqual(["created", "group.attached", "group.detached"]);
  });

  test("another organisation's group is 404 everywhere", async () => {
    const other = await author(app);
    const group = await newGroup();
    const kap = (await other.create()).kap.id;
    expect((await other.call("PUT", `/kaps/${kap}/secret-groups/${group}`)).status).toBe(404);
    expect((await other.call("PUT", `/secret-groups/${group}/secrets/A`, { value: "v" })).status).toBe(404);
    expect((await other.call("GET", `/secret-groups/${group}/history`)).status).toBe(404);
    expect((await other.call("PUT", `/kaps/${kap}/secret-groups/not-an-id`)).status).toBe(404);
  });
});

describe("names are unique over a kap and its groups", () => {
  test("a kap's own secret beside a group's is 409 and changes nothing", async () => {
    const [kap, group] = [await newKap(), await newGroup("G1")];
    await me.call("PUT", `/secret-groups/${group}/secrets/SAME`, { value: "of the group" });
    await me.call("PUT", `/kaps/${kap}/secret-groups/${group}`);
    const answer = await me.call("PUT", `/kaps/${kap}/secrets/SAME`, { value: "own" });
    expect(codeOf(answer)).toBe("409 SECRET_NAME_CONFLICT");
    expect(answer.json<{ error: { details: object } }>().error.details).toEqual([{ kap_id: kap, name: "SAME", held_by: "the group G1" }]);
    expect(await seen(kap)).toEqual({ SAME: "of the group" });
    expect(await app.deps.db("secrets").where({ kap_id: kap })).toEqual([]);
  });

  test("attaching a group with one taken name attaches nothing of it", async () => {
    const [kap, group] = [await newKap(), await newGroup()];
    for (const name of ["A", "B", "C"]) await me.call("PUT", `/secret-groups/${group}/secrets/${name}`, { value: "g" });
    await me.call("PUT", `/kaps/${kap}/secrets/B`, { value: "own" });
    expect(codeOf(await me.call("PUT", `/kaps/${kap}/secret-groups/${group}`))).toBe("409 SECRET_NAME_CONFLICT");
    expect(await seen(kap)).toEqual({ B: "own" });
    expect((await me.call("GET", `/kaps/${kap}/secret-groups`)).json()).toEqual({ groups: [] });
  });

  test("a new secret of a group that one of many kaps already has is set for none", async () => {
    const [kap, second, group] = [await newKap(), await newKap(), await newGroup()];
    for (const id of [kap, second]) await me.call("PUT", `/kaps/${id}/secret-groups/${group}`);
    await me.call("PUT", `/kaps/${second}/secrets/TAKEN`, { value: "own" });
    expect(codeOf(await me.call("PUT", `/secret-groups/${group}/secrets/TAKEN`, { value: "g" }))).toBe("409 SECRET_NAME_CONFLICT");
    expect(await seen(kap)).toEqual({});
    expect((await me.call("GET", `/secret-groups/${group}/secrets`)).json()).toEqual({ secrets: [] });
  });

  test("whatever is done at once, no kap ever sees a name twice and nothing ends in an error", async () => {
    const kaps = [await newKap(), await newKap(), await newKap()];
    const groups = [await newGroup(), await newGroup(), await newGroup()];
    const calls: (() => ReturnType<Author["call"]>)[] = [];
    for (const kap of kaps) {
      for (const group of groups) calls.push(() => me.call("PUT", `/kaps/${kap}/secret-groups/${group}`));
      for (const name of ["N1", "N2"]) calls.push(() => me.call("PUT", `/kaps/${kap}/secrets/${name}`, { value: `${kap}` }));
    }
    for (const group of groups) {
      for (const name of ["N1", "N2", "N3"]) calls.push(() => me.call("PUT", `/secret-groups/${group}/secrets/${name}`, { value: group }));
      for (const kap of kaps) calls.push(() => me.call("DELETE", `/kaps/${kap}/secret-groups/${group}`));
    }
    for (let i = calls.length - 1; i > 0; i--) {
      const j = (i * 7919 + 13) % (i + 1);
      [calls[i], calls[j]] = [calls[j]!, calls[i]!];
    }
    const answers = await Promise.all(calls.map((call) => call()));
    for (const answer of answers) expect([200, 404, 409]).toContain(answer.status);
    for (const kap of kaps) {
      const { rows } = await app.deps.db.raw(
        `select coalesce(array_agg(n.secret_id order by n.secret_id), '{}') as claimed,
                (select coalesce(array_agg(s.id order by s.id), '{}') from secrets s
                 where s.kap_id = ? or s.group_id in (select group_id from kap_secret_groups where kap_id = ?)) as visible
         from kap_secret_names n where n.kap_id = ?`,
        [kap, kap, kap],
      );
      expect(rows[0].claimed).toEqual(rows[0].visible);
      expect(Object.keys(await seen(kap)).length).toBe(rows[0].visible.length);
    }
  });
});

test("a new first key opens everything sealed under the old one, seals it anew, and the old key can go", async () => {
  const kap = await newKap();
  await me.call("PUT", `/kaps/${kap}/secrets/ROTATED`, { value: "still here" });
  await me.call("POST", `/kaps/${kap}/endpoint-secrets`, { name: "e" });
  const old = Buffer.from(app.deps.config.keys[0] ?? "", "base64");
  const fresh = randomBytes(32);
  const both = createKeyring([fresh, old]);
  expect(await resealSecrets(app.deps.db, both)).toBeGreaterThan(2);
  expect(await resealSecrets(app.deps.db, both)).toBe(0);
  const onlyNew = createKeyring([fresh]);
  expect(await effectiveSecrets(app.deps.db, onlyNew, kap)).toEqual({ ROTATED: "still here" });
  const row = await app.deps.db("kaps").where({ id: kap }).first();
  expect(onlyNew.open(row.role_password, `kap-role:${kap}`).length).toBeGreaterThan(20);
  const endpoint = await app.deps.db("kap_tokens").where({ kap_id: kap, kind: "endpoint" }).first();
  expect(onlyNew.open(endpoint.sealed_value, `endpoint:${endpoint.id}`)).toMatch(/^kes_/);
  await resealSecrets(app.deps.db, createKeyring([old, fresh]));
});

test("a rotation leaves out no column that holds sealed values", async () => {
  const { rows } = await app.deps.db.raw(
    `select table_name || '.' || column_name as name from information_schema.columns
     where table_schema = 'kapstone' and data_type = 'bytea' and column_name ~ 'sealed|secret|password' order by 1`,
  );
  expect(rows.map((row: { name: string }) => row.name)).toEqual(sealedColumns.map(({ table, column }) => `${table}.${column}`).sort());
});
