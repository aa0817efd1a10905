import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { endpointContext } from "../../api/services/kaps/token.ts";
import { parseSecret } from "../../platform/secrets.ts";
import type { ServiceApp } from "./auth-app.ts";
import { type Author, author, type Created, codeOf, startKapsApp } from "./kaps-app.ts";

let app: ServiceApp;
let me: Author;
let made: Created;
let base: string;

beforeAll(async () => {
  app = await startKapsApp();
  me = await author(app);
  made = await me.create();
  base = `/kaps/${made.kap.id}`;
});
afterAll(() => app.close());

interface Token {
  id: string;
  name: string;
  created_at: string;
  revoked_at: string | null;
  token?: string;
  scopes?: string[];
  expires_at?: string;
}

describe("machine tokens", () => {
  test("are shown once, listed without their value, and revoked for good", async () => {
    const answer = await me.call("POST", `${base}/bypass-tokens`, { name: "ci" });
    expect(answer.status).toBe(201);
    const { bypass_token } = answer.json<{ bypass_token: Token }>();
    expect(bypass_token).toMatchObject({ name: "ci", revoked_at: null, token: expect.stringMatching(/^kbt_/) });
    const listed = await me.call("GET", `${base}/bypass-tokens`);
    expect(listed.text).not.toContain(bypass_token.token);
    expect(listed.json<{ tokens: Token[] }>().tokens.map((token) => token.name)).toEqual(["default", "ci"]);
    const revoked = (await me.call("DELETE", `${base}/bypass-tokens/${bypass_token.id}`)).json<{ bypass_token: Token }>().bypass_token;
    expect(revoked.revoked_at).not.toBeNull();
    const again = (await me.call("DELETE", `${base}/bypass-tokens/${bypass_token.id}`)).json<{ bypass_token: Token }>().bypass_token;
    expect(again.revoked_at).toBe(revoked.revoked_at);
    const row = await app.deps.db("kap_tokens").where({ id: bypass_token.id }).first();
    expect(row.sealed_value).toBeNull();
    expect(row.digest).toEqual(parseSecret(bypass_token.token ?? "")?.digest);
  });

  test("an unknown one, or one of another kind or kap, is 404", async () => {
    const other = await me.create();
    const secret = (await me.call("POST", `${base}/endpoint-secrets`, { name: "s" })).json<{ endpoint_secret: Token }>().endpoint_secret;
    const { tokens } = (await me.call("GET", `/kaps/${other.kap.id}/bypass-tokens`)).json<{ tokens: Token[] }>();
    for (const id of ["nonsense", other.kap.id, secret.id, tokens[0]?.id]) {
      expect((await me.call("DELETE", `${base}/bypass-tokens/${id}`)).status).toBe(404);
    }
  });

  test("a name has 1 to 200 characters", async () => {
    expect(codeOf(await me.call("POST", `${base}/bypass-tokens`, { name: "" }))).toBe("422 VALIDATION_FAILED");
    expect((await me.call("POST", `${base}/bypass-tokens`, { name: "x".repeat(200) })).status).toBe(201);
    expect(codeOf(await me.call("POST", `${base}/bypass-tokens`, { name: "x".repeat(201) }))).toBe("422 VALIDATION_FAILED");
  });
});

describe("endpoint secrets", () => {
  test("come with the address template and the scheme; the value is under shown_once, only at creation", async () => {
    const answer = await me.call("POST", `${base}/endpoint-secrets`, { name: "shop" });
    expect(answer.status).toBe(201);
    const { endpoint_secret, shown_once, address } = answer.json<{ endpoint_secret: Token; shown_once: string; address: string }>();
    expect(shown_once).toMatch(/^kes_[0-9A-Za-z]{49}$/);
    const listed = await me.call("GET", `${base}/endpoint-secrets`);
    expect(listed.text).not.toContain(shown_once);
    const list = listed.json<{ endpoint_secrets: Token[]; address_template: string; scheme: { name: string; header: string } }>();
    expect(list.address_template.replace("{secret}", shown_once)).toBe(address);
    expect(list.address_template).toBe(`${made.kap.address}/__kaps/e/{secret}`);
    expect(list.scheme).toMatchObject({ name: "kaps-endpoint-v1", header: "X-Kaps-Signature", max_skew_seconds: 300 });
    await me.call("DELETE", `${base}/endpoint-secrets/${endpoint_secret.id}`);
    const after = (await me.call("GET", `${base}/endpoint-secrets`)).json<{ endpoint_secrets: Token[] }>().endpoint_secrets;
    expect(after.find((secret) => secret.id === endpoint_secret.id)?.revoked_at).not.toBeNull();
  });

  test("the sealed value is the HMAC key: its full text", async () => {
    const { endpoint_secret, shown_once } = (await me.call("POST", `${base}/endpoint-secrets`, { name: "signer" })).json<{
      endpoint_secret: Token;
      shown_once: string;
    }>();
    const row = await app.deps.db("kap_tokens").where({ id: endpoint_secret.id }).first();
    const key = app.deps.keyring.open(row.sealed_value, endpointContext(endpoint_secret.id));
    expect(key).toBe(shown_once);
  });

  test("a replayed creation leaves the value out", async () => {
    const headers = { "idempotency-key": "secret-once" };
    await me.call("POST", `${base}/endpoint-secrets`, { name: "once" }, headers);
    const again = await me.call("POST", `${base}/endpoint-secrets`, { name: "once" }, headers);
    expect(again.json()).toMatchObject({ replayed: true });
    expect(again.text).not.toContain("kes_");
  });
});

describe("store tokens", () => {
  test("carry scopes and an end of at most 720 hours, and are shown once", async () => {
    const answer = await me.call("POST", `${base}/store-tokens`, {
      name: "sync",
      scopes: ["db.read", "store.write"],
      expires_in_hours: 720,
    });
    expect(answer.status).toBe(201);
    const { token, store_token } = answer.json<{ token: string; store_token: Token }>();
    expect(token).toMatch(/^kst1_[0-9A-Za-z]{49}$/);
    expect(store_token).toMatchObject({ name: "sync", scopes: ["db.read", "store.write"], revoked_at: null });
    const hours = (Date.parse(store_token.expires_at ?? "") - Date.parse(store_token.created_at)) / 3_600_000;
    expect(hours).toBeCloseTo(720, 1);
    expect((await me.call("GET", `${base}/store-tokens`)).text).not.toContain(token);
    const revoked = (await me.call("DELETE", `${base}/store-tokens/${store_token.id}`)).json<{ store_token: Token }>();
    expect(revoked.store_token.revoked_at).not.toBeNull();
  });

  test.each([
    [{ name: "x", scopes: [] }],
    [{ name: "x", scopes: ["db.admin"] }],
    [{ name: "x", scopes: ["db.read", "db.read"] }],
    [{ name: "x", scopes: ["db.read"], expires_in_hours: 0 }],
    [{ name: "x", scopes: ["db.read"], expires_in_hours: 721 }],
    [{ name: "x", scopes: ["db.read"], expires_in_hours: 1.5 }],
    [{ name: "x" }],
  ])("%j is 422", async (body) => {
    expect(codeOf(await me.call("POST", `${base}/store-tokens`, body))).toBe("422 VALIDATION_FAILED");
  });
});

describe("audience", () => {
  interface Policy {
    audience: string;
    invited: string[];
    revision: number;
  }
  const put = (kap: string, body: object) => me.call("PUT", `/kaps/${kap}/audience`, body);

  test("starts with members at revision 1; a change raises the revision and is an event, the same again is no change", async () => {
    const { kap } = await me.create();
    const first = (await me.call("GET", `/kaps/${kap.id}/audience`)).json<{ policy: Policy; events: object[] }>();
    expect(first).toEqual({ policy: { audience: "members", invited: [], revision: 1 }, events: [] });
    const wanted = { audience: "invited", invited: ["Ann@Example.com", "@partner.example", "ann@example.com"], base_revision: 1 };
    const changed = (await put(kap.id, wanted)).json<{ policy: Policy; changed: boolean }>();
    expect(changed).toEqual({
      policy: { audience: "invited", invited: ["ann@example.com", "@partner.example"], revision: 2 },
      changed: true,
    });
    const same = (await put(kap.id, { ...wanted, base_revision: 2 })).json<{ changed: boolean; policy: Policy }>();
    expect(same).toMatchObject({ changed: false, policy: { revision: 2 } });
    const { events } = (await me.call("GET", `/kaps/${kap.id}/audience`)).json<{ events: object[] }>();
    expect(events).toMatchObject([
      {
        kind: "audience.changed",
        actor: { name: "Olga Owner" },
        client: "contract-test",
        detail: { before: { audience: "members", revision: 1 }, after: { audience: "invited", revision: 2 } },
      },
    ]);
  });

  test("a stale base_revision is 409 AUDIENCE_CONFLICT; of 20 writes at once on one revision one wins", async () => {
    const { kap } = await me.create();
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) => put(kap.id, { audience: "invited", invited: [`p${n}@example.com`], base_revision: 1 })),
    );
    expect(answers.filter((answer) => answer.status === 200).length).toBe(1);
    for (const answer of answers) if (answer.status !== 200) expect(codeOf(answer)).toBe("409 AUDIENCE_CONFLICT");
  });

  test("going public needs confirm_public: true; staying public does not", async () => {
    const { kap } = await me.create();
    expect(codeOf(await put(kap.id, { audience: "public", invited: [], base_revision: 1 }))).toBe("422 CONFIRM_PUBLIC_REQUIRED");
    expect(codeOf(await put(kap.id, { audience: "public", invited: [], base_revision: 1, confirm_public: false }))).toBe(
      "422 CONFIRM_PUBLIC_REQUIRED",
    );
    expect((await put(kap.id, { audience: "public", invited: [], base_revision: 1, confirm_public: true })).status).toBe(200);
    expect((await put(kap.id, { audience: "public", invited: ["a@b.example"], base_revision: 2 })).status).toBe(200);
    expect((await me.call("GET", `/kaps/${kap.id}`)).json<{ kap: { audience: string } }>().kap.audience).toBe("public");
  });

  test.each([
    "",
    "ann",
    "@",
    "ann@",
    "ann@@example.com",
    "ann@exa mple.com",
    "@-a.example",
    "a b@example.com",
    "ann@example.com,bob@example.com",
    "ann\u0001@example.com",
    "ann\ud800@example.com",
  ])("%j is no entry: 422", async (entry) => {
    const answer = await put(made.kap.id, { audience: "invited", invited: ["ok@example.com", entry], base_revision: 1 });
    expect(codeOf(answer)).toBe("422 VALIDATION_FAILED");
    expect(answer.text).toContain("invited.1");
  });
});
