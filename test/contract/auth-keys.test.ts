import { randomUUID } from "node:crypto";
import { afterAll, describe, expect, test } from "vitest";
import { services } from "../../api/app.ts";
import { until } from "../harness/wait.ts";
import { type Key, mintKey, type Org, sender, signUp, startServices } from "./auth-app.ts";

const app = await startServices(services);
afterAll(() => app.close());
const org = await signUp(app);
const other = await signUp(app);

const send = sender(app);
const mint = (body: object = {}, as: Org = org): Promise<Key> => mintKey(app, as, body);
const meOf = (secret: string) => app.call({ path: "/v1/me", headers: { "x-api-key": secret } });
const inHours = (hours: number) => new Date(Date.now() + hours * 3_600_000).toISOString();

describe("API keys", () => {
  test.each([
    ["live", "sk_live_"],
    ["test", "sk_test_"],
    ["org", "sk_org_"],
  ])("a %s key is minted once as %s…, listed without its secret, and says who it is at /v1/me", async (kind, prefix) => {
    const answer = await send("POST", "/v1/auth/api-keys", org.auth, { name: "Robot", kind, scopes: ["read", "write"] });
    expect(answer.status).toBe(201);
    const key = answer.json<Key>();
    expect(key).toMatchObject({
      name: "Robot",
      kind,
      scopes: ["read", "write"],
      expires_at: null,
      project_id: null,
      workspace_id: null,
      last_used_at: null,
    });
    expect(key.secret).toMatch(new RegExp(`^${prefix}[0-9A-Za-z]{49}$`));
    expect(key.key_prefix).toBe(key.secret.slice(0, prefix.length + 6));
    const me = (await meOf(key.secret)).json<{ mode: string; org: { id: string } }>();
    expect(me).toMatchObject({
      credential: { kind: "api_key", id: key.id, name: "Robot", scopes: ["read", "write"] },
      member: null,
      agent: null,
    });
    expect([me.mode, me.org.id === org.orgId]).toEqual(kind === "test" ? ["test", false] : ["live", true]);
    for (const path of [`/v1/auth/api-keys/${key.id}`, "/v1/auth/api-keys"]) {
      const read = await send("GET", path, org.auth);
      expect([read.status, read.text.includes(key.key_prefix), read.text.includes(key.secret)]).toEqual([200, true, false]);
    }
    await until(async () => (await send("GET", `/v1/auth/api-keys/${key.id}`, org.auth)).json().last_used_at !== null);
  });

  test.each([
    ["no scopes", { scopes: [] }, "scopes"],
    ["an unknown scope", { scopes: ["read", "root"] }, "scopes.1"],
    ["a repeated scope", { scopes: ["read", "read"] }, "scopes"],
    ["no name", { name: "" }, "name"],
    ["a name that is no Unicode", { name: "half \ud800" }, "name"],
    ["an unknown kind", { kind: "admin" }, "kind"],
    ["expires_at in the past", { expires_at: inHours(-0.001) }, "expires_at"],
    ["expires_at that is no time", { expires_at: "tomorrow" }, "expires_at"],
    ["an unknown field", { admin: true }, "admin"],
    ["an unknown project", { project_id: randomUUID() }, "project_id"],
    ["a project that is no id", { project_id: "x" }, "project_id"],
    ["an unknown workspace", { workspace_id: randomUUID() }, "workspace_id"],
    ["an org key with a binding", { kind: "org", workspace_id: randomUUID() }, "workspace_id"],
  ])("422 for %s", async (_, body, path) => {
    const answer = await send("POST", "/v1/auth/api-keys", org.auth, { name: "k", scopes: ["read"], ...body });
    expect([answer.status, answer.json().error]).toEqual([422, "VALIDATION_FAILED"]);
    expect(answer.json<{ details: { path: string }[] }>().details.map((detail) => detail.path)).toContain(path);
  });

  test("another organisation's workspace or project cannot be bound, and a test key's are those of the test organisation", async () => {
    const workspace = (await send("POST", "/v1/workspaces", other.auth, { name: "theirs" })).json().id;
    const project = (await send("POST", "/v1/projects", org.auth, { name: `p-${randomUUID()}` })).json().id;
    const status = async (body: object) =>
      (await send("POST", "/v1/auth/api-keys", org.auth, { name: "k", scopes: ["read"], ...body })).status;
    expect(await status({ workspace_id: workspace })).toBe(422);
    expect(await status({ kind: "test", project_id: project })).toBe(422);
    expect(await status({ project_id: project })).toBe(201);
  });

  test("malformed JSON is 400, another content type 415, over 1 MiB 413, in the flat envelope", async () => {
    const raw = (body: string, type: string) =>
      app.call({ method: "POST", path: "/v1/auth/api-keys", headers: { ...org.auth, "content-type": type }, body });
    expect([(await raw("{", "application/json")).status, (await raw("{", "application/json")).json().error]).toEqual([400, "BAD_REQUEST"]);
    expect((await raw("{}", "text/plain")).status).toBe(415);
    expect((await raw(`{"name":"${"x".repeat(1024 * 1024)}"}`, "application/json")).status).toBe(413);
  });

  test("a mistyped or truncated secret is refused without a look at the database", async () => {
    const { secret } = await mint();
    const typo = secret.slice(0, -1) + (secret.endsWith("a") ? "b" : "a");
    const queries: string[] = [];
    const { hot } = app.deps.postgres;
    const query = hot.query.bind(hot);
    hot.query = ((...args: Parameters<typeof query>) => {
      queries.push(JSON.stringify(args[0]));
      return query(...args);
    }) as typeof hot.query;
    try {
      for (const text of [typo, secret.slice(0, -3), `${secret}x`, secret.toLowerCase(), "sk_live_", "nonsense"]) {
        expect([text.length, (await meOf(text)).status]).toEqual([text.length, 401]);
      }
      expect(queries.filter((text) => text.includes("credential"))).toEqual([]);
    } finally {
      hot.query = query as typeof hot.query;
    }
    expect((await meOf(secret)).status).toBe(200);
  });

  test("a credential counts only where its kind stands", async () => {
    const { secret } = await mint();
    const bearer = (text: string) => app.call({ path: "/v1/me", headers: { authorization: `Bearer ${text}` } });
    expect((await bearer(secret)).status).toBe(401);
    expect((await meOf(org.token)).status).toBe(401);
    expect((await app.call({ path: "/v1/me", headers: { cookie: `kapstone_session=${secret}` } })).status).toBe(401);
    const both = await app.call({ path: "/v1/me", headers: { ...org.auth, "x-api-key": secret } });
    expect([both.status, both.json<{ error: { code: string } }>().error.code]).toEqual([400, "BAD_REQUEST"]);
  });

  test("the first use from a further address is told in the anomaly feed, once", async () => {
    const proxied = await startServices(services, { beside: app, env: { KAPSTONE_TRUSTED_PROXIES: "127.0.0.1" } });
    try {
      const key = await mint();
      const told = () =>
        app.deps
          .db("events")
          .where({ org_id: org.orgId, kind: "anomaly.key-new-address" })
          .whereRaw("payload #>> '{credential,id}' = ?", [key.id]);
      const addresses = () => app.deps.db("credential_addresses").where({ credential_id: key.id });
      for (const [count, address] of ["192.0.2.1", "192.0.2.2", "192.0.2.1"].entries()) {
        await app.deps.db("credentials").where({ id: key.id }).update({ last_used_at: null }); // a use is written at most once a minute
        await proxied.call({ path: "/v1/me", headers: { "x-api-key": key.secret, "x-forwarded-for": address } });
        await until(async () => (await app.deps.db("credentials").where({ id: key.id }).first("last_used_at")).last_used_at !== null);
        expect(await addresses()).toHaveLength(Math.min(count + 1, 2));
      }
      await until(async () => (await told()).length === 1);
      expect((await told())[0].payload).toMatchObject({ address: "192.0.2.2", credential: { kind: "api_key", id: key.id } });
    } finally {
      await proxied.close();
    }
  });

  test("last_used_at is written at most once a minute, however often the key is used", async () => {
    const key = await mint();
    const used = async (): Promise<Date | null> =>
      (await app.deps.db("credentials").where({ id: key.id }).first("last_used_at")).last_used_at;
    await meOf(key.secret);
    const first = await until(used);
    await Promise.all(Array.from({ length: 30 }, () => meOf(key.secret)));
    expect(await used()).toEqual(first);
  });

  test("delete is 200, ends both secrets at once, takes the key off the list; again is 404", async () => {
    const key = await mint();
    const rotated = (await send("POST", `/v1/auth/api-keys/${key.id}/rotate`, org.auth, { overlap_hours: 72 })).json<Key>();
    const path = `/v1/auth/api-keys/${key.id}`;
    expect((await send("DELETE", path, org.auth)).status).toBe(200);
    for (const secret of [key.secret, rotated.secret]) expect((await meOf(secret)).status).toBe(401);
    expect((await send("DELETE", path, org.auth)).status).toBe(404);
    expect((await send("GET", path, org.auth)).status).toBe(404);
    expect((await send("POST", `${path}/rotate`, org.auth)).status).toBe(404);
    expect((await send("GET", "/v1/auth/api-keys?limit=200", org.auth)).text).not.toContain(key.id);
    const audit = await send("GET", `/v1/auth/audit?target_id=${key.id}`, org.auth);
    expect(audit.json<{ items: { action: string }[] }>().items.map(({ action }) => action)).toEqual([
      "api-key.revoked",
      "api-key.rotated",
      "api-key.created",
    ]);
    expect(audit.text).not.toContain(key.secret);
  });

  test("another organisation's key is 404 whatever is asked of it", async () => {
    const { id } = await mint();
    const path = `/v1/auth/api-keys/${id}`;
    for (const answer of [
      await send("GET", path, other.auth),
      await send("DELETE", path, other.auth),
      await send("POST", `${path}/rotate`, other.auth, { overlap_hours: 0 }),
    ]) {
      expect(answer.status).toBe(404);
    }
  });

  test.each([[0], [1], [72], [undefined]])(
    "rotating with overlap_hours %j keeps id, scopes, kind and expires_at",
    async (overlap_hours) => {
      const expires_at = inHours(24);
      const key = await mint({ kind: "org", scopes: ["write", "read"], expires_at });
      const answer = await send(
        "POST",
        `/v1/auth/api-keys/${key.id}/rotate`,
        org.auth,
        overlap_hours === undefined ? undefined : { overlap_hours },
      );
      expect(answer.status).toBe(200);
      const rotated = answer.json<Key & { previous_valid_until: string | null }>();
      expect([rotated.id, rotated.secret.startsWith("sk_org_"), rotated.secret === key.secret]).toEqual([key.id, true, false]);
      expect((await meOf(key.secret)).status).toBe(overlap_hours ? 200 : 401);
      expect((await meOf(rotated.secret)).json().credential).toMatchObject({ id: key.id, scopes: ["write", "read"], expires_at });
      if (overlap_hours === 72) expect(rotated.previous_valid_until).toBe(expires_at); // a previous secret never outlives the key
      const stored = await send("GET", `/v1/auth/api-keys/${key.id}`, org.auth);
      expect(stored.json()).toMatchObject({ expires_at, key_prefix: rotated.key_prefix, kind: "org" });
    },
  );

  test.each([[-1], [73], [1.5], ["1"], [null]])("overlap_hours %j is 422", async (overlap_hours) => {
    const key = await mint();
    expect((await send("POST", `/v1/auth/api-keys/${key.id}/rotate`, org.auth, { overlap_hours })).status).toBe(422);
    expect((await meOf(key.secret)).status).toBe(200);
  });

  test("an expired key is 401, and rotating it 409", async () => {
    const key = await mint({ expires_at: inHours(1) });
    await app.deps
      .db("credentials")
      .where({ id: key.id })
      .update({ expires_at: new Date(Date.now() - 1) });
    expect((await meOf(key.secret)).status).toBe(401);
    expect((await send("POST", `/v1/auth/api-keys/${key.id}/rotate`, org.auth)).status).toBe(409);
  });

  test("keys and tokens do not manage keys, members or settings: 403", async () => {
    const { secret } = await mint({ scopes: ["read", "write", "admin"] });
    for (const path of [
      "/v1/auth/api-keys",
      "/v1/auth/service-tokens",
      "/v1/auth/members",
      "/v1/auth/settings",
      "/v1/auth/audit",
      "/v1/auth/roles",
    ]) {
      const answer = await send("GET", path, { "x-api-key": secret });
      expect([path, answer.status, answer.json().error]).toEqual([path, 403, "FORBIDDEN"]);
    }
  });

  test("a key cannot be minted, nor rotated, by someone who may do less", async () => {
    await send("POST", "/v1/auth/roles", org.auth, { name: "key-keeper", permissions: ["keys.manage", "kaps.read"] });
    const invited = await send("POST", "/v1/auth/invitations", org.auth, { email: `k-${randomUUID()}@example.com`, role: "key-keeper" });
    const token = new URL(invited.json<{ accept_url: string }>().accept_url).searchParams.get("token");
    const joined = await send("POST", "/v1/auth/invitations/accept", {}, { token, name: "Kay", password: "a hill of quiet oaks" });
    const keeper = { authorization: `Bearer ${joined.json().session_token}` };
    const minted = await send("POST", "/v1/auth/api-keys", keeper, { name: "k", scopes: ["read"] });
    expect([minted.status, minted.json().error]).toEqual([403, "FORBIDDEN"]);
    const key = await mint({ scopes: ["admin"] });
    expect((await send("POST", `/v1/auth/api-keys/${key.id}/rotate`, keeper)).status).toBe(403);
    expect((await meOf(key.secret)).status).toBe(200);
    expect((await send("POST", "/v1/auth/service-tokens", keeper, { name: "s", token_type: "ci", scopes: ["write"] })).status).toBe(403);
    expect((await send("POST", `/v1/orgs/${org.slug}/app-tokens`, keeper, { label: "a" })).status).toBe(403);
    expect((await send("GET", "/v1/auth/api-keys", keeper)).status).toBe(200);
  });

  test("the list goes page by page, newest first, without a gap or a repeat; bad paging is 422", async () => {
    const mine = await signUp(app);
    const ids: string[] = [];
    for (let n = 0; n < 5; n++) ids.unshift((await mint({}, mine)).id);
    const seen: string[] = [];
    for (let cursor: string | null = ""; cursor !== null; ) {
      const page: { items: Key[]; next_cursor: string | null } = (
        await send("GET", `/v1/auth/api-keys?limit=2${cursor && `&cursor=${cursor}`}`, mine.auth)
      ).json<{ items: Key[]; next_cursor: string | null }>();
      seen.push(...page.items.map(({ id }) => id));
      cursor = page.next_cursor;
    }
    expect(seen).toEqual(ids);
    for (const query of ["limit=0", "limit=201", "limit=x", "cursor=zzz"]) {
      expect([query, (await send("GET", `/v1/auth/api-keys?${query}`, mine.auth)).status]).toEqual([query, 422]);
    }
  });

  test("an Idempotency-Key mints once; the replay has no secret", async () => {
    const headers = { ...org.auth, "idempotency-key": randomUUID() };
    const body = { name: "once", scopes: ["read"] };
    const first = await send("POST", "/v1/auth/api-keys", headers, body);
    const again = await send("POST", "/v1/auth/api-keys", headers, body);
    expect([first.status, again.status, again.json().id]).toEqual([201, 201, first.json().id]);
    expect([again.json().secret, again.json().replayed]).toEqual([undefined, true]);
    expect((await send("POST", "/v1/auth/api-keys", headers, { ...body, name: "other" })).status).toBe(422);
  });
});

test("a deprecated route says until when", async () => {
  const answer = await send("GET", "/v1/whoami", org.auth);
  expect([answer.status, answer.headers["x-service-deprecated"]]).toEqual([200, "2027-06-30"]);
  expect((await send("GET", "/v1/me", org.auth)).headers["x-service-deprecated"]).toBeUndefined();
});
