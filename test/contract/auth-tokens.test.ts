import { randomUUID } from "node:crypto";
import { afterAll, describe, expect, test } from "vitest";
import { services } from "../../api/app.ts";
import { type Key, mintKey, type Org, sender, signUp, startServices } from "./auth-app.ts";

const app = await startServices(services);
afterAll(() => app.close());
const org = await signUp(app);
const other = await signUp(app);

const send = sender(app);
const mint = (body: object = {}, as: Org = org): Promise<Key> => mintKey(app, as, body);
const meOf = (secret: string) => app.call({ path: "/v1/me", headers: { "x-api-key": secret } });

describe("service tokens", () => {
  test.each([
    ["ci", "st_ci_"],
    ["deploy", "st_deploy_"],
    ["webhook", "st_wh_"],
    ["anything", "st_svc_"],
    ["constructor", "st_svc_"],
  ])("token_type %s gives %s", async (token_type, prefix) => {
    const answer = await send("POST", "/v1/auth/service-tokens", org.auth, { name: "t", token_type, scopes: ["read"] });
    expect(answer.status).toBe(201);
    const token = answer.json<Key & { expires_at: string }>();
    expect(token.secret.startsWith(prefix)).toBe(true);
    expect(Math.round((Date.parse(token.expires_at) - Date.now()) / 86_400_000)).toBe(90);
    expect((await meOf(token.secret)).json().credential).toMatchObject({ kind: "service_token", id: token.id });
    const list = await send("GET", "/v1/auth/service-tokens", org.auth);
    expect([list.text.includes(token.key_prefix), list.text.includes(token.secret)]).toEqual([true, false]);
  });

  test.each([["dispatch-minter"], ["ci-dispatch"]])("token_type %s is reserved: 403", async (token_type) => {
    expect((await send("POST", "/v1/auth/service-tokens", org.auth, { name: "t", token_type, scopes: ["read"] })).status).toBe(403);
  });

  test.each([
    [0, 422],
    [1, 201],
    [365, 201],
    [366, 422],
    [1.5, 422],
  ])("expires_in_days %d is %i", async (expires_in_days, status) => {
    const answer = await send("POST", "/v1/auth/service-tokens", org.auth, {
      name: "t",
      token_type: "ci",
      scopes: ["read"],
      expires_in_days,
    });
    expect(answer.status).toBe(status);
  });

  test("delete is 200, and again 200; one that never was, or is another organisation's, is 404", async () => {
    const token = (await send("POST", "/v1/auth/service-tokens", org.auth, { name: "t", token_type: "ci", scopes: ["read"] })).json<Key>();
    const path = `/v1/auth/service-tokens/${token.id}`;
    expect((await send("DELETE", path, other.auth)).status).toBe(404);
    expect((await meOf(token.secret)).status).toBe(200);
    expect((await send("DELETE", path, org.auth)).status).toBe(200);
    expect((await meOf(token.secret)).status).toBe(401);
    expect((await send("DELETE", path, org.auth)).status).toBe(200);
    expect((await send("DELETE", `/v1/auth/service-tokens/${randomUUID()}`, org.auth)).status).toBe(404);
    expect((await send("DELETE", "/v1/auth/service-tokens/nonsense", org.auth)).status).toBe(404);
  });
});

describe("app tokens", () => {
  test("are minted, listed and revoked by id or slug of the organisation; another's is 404", async () => {
    const path = `/v1/orgs/${org.slug}/app-tokens`;
    const made = await send("POST", path, org.auth, { label: "CRM" });
    expect(made.status).toBe(201);
    const { id, token } = made.json<{ id: string; token: string }>();
    expect(token).toMatch(/^at_[0-9A-Za-z]{49}$/);
    const me = await app.call({ path: "/v1/me", headers: { authorization: `Bearer ${token}` } });
    expect(me.json()).toMatchObject({ credential: { kind: "app_token", id, scopes: ["read", "write"] }, org: { id: org.orgId } });
    expect((await send("GET", `/v1/orgs/${org.orgId}/app-tokens`, org.auth)).text).toContain(id);
    expect((await send("GET", path, other.auth)).status).toBe(404);
    expect((await send("DELETE", `/v1/orgs/${other.slug}/app-tokens/${id}`, other.auth)).status).toBe(404);
    expect((await send("DELETE", `${path}/${id}`, org.auth)).status).toBe(200);
    expect((await app.call({ path: "/v1/me", headers: { authorization: `Bearer ${token}` } })).status).toBe(401);
    expect((await send("DELETE", `${path}/${id}`, org.auth)).status).toBe(200);
    expect((await send("POST", path, org.auth, {})).status).toBe(422);
    expect((await send("POST", path, { "x-api-key": (await mint({ scopes: ["admin"] })).secret }, { label: "x" })).status).toBe(403);
  });
});

describe("leaked secrets", () => {
  test("every kind is revoked by whoever reports it, and the audit says so; a dead or foreign text answers revoked: false", async () => {
    const mine = await signUp(app);
    const agent = (await send("POST", "/v1/agents", mine.auth, { name: "a" })).json().id;
    const secrets = {
      api_key: (await mint({}, mine)).secret,
      service_token: (
        await send("POST", "/v1/auth/service-tokens", mine.auth, { name: "t", token_type: "ci", scopes: ["read"] })
      ).json<Key>().secret,
      app_token: (await send("POST", `/v1/orgs/${mine.slug}/app-tokens`, mine.auth, { label: "a" })).json<{ token: string }>().token,
      agent_key: (await send("POST", `/v1/agents/${agent}/keys`, mine.auth, { label: "a" })).json<{ key: string }>().key,
    };
    const report = (secret: string) => send("POST", "/v1/auth/leaked", {}, { secret, url: "https://example.com/paste" });
    for (const [kind, secret] of Object.entries(secrets)) {
      expect((await report(secret)).json()).toEqual({ revoked: true, kind });
      expect((await report(secret)).json()).toEqual({ revoked: false, kind: null });
      const place = kind === "app_token" ? { authorization: `Bearer ${secret}` } : { "x-api-key": secret };
      expect([kind, (await app.call({ path: "/v1/me", headers: place as Record<string, string> })).status]).toEqual([kind, 401]);
    }
    const audit = await send("GET", "/v1/auth/audit?action=secret.leaked", mine.auth);
    expect(audit.json<{ items: unknown[] }>().items).toHaveLength(4);
    expect((await report("nonsense")).json()).toEqual({ revoked: false, kind: null });
    const jwt = (await send("POST", "/v1/auth/token", mine.auth)).json<{ access_token: string }>().access_token;
    expect((await report(jwt)).json()).toEqual({ revoked: true, kind: "session" });
    expect((await send("GET", "/v1/me", mine.auth)).status).toBe(401);
  });

  test("the published patterns match what is minted", async () => {
    const { items } = (await app.call({ path: "/v1/auth/secret-patterns" })).json<{ items: { prefix: string; pattern: string }[] }>();
    const { secret } = await mint();
    const hits = items.filter(({ pattern }) => new RegExp(pattern).test(`export KEY="${secret}"`));
    expect(hits.map(({ prefix }) => prefix)).toEqual(["sk_live_"]);
  });
});
