import { afterAll, describe, expect, test } from "vitest";
import { services } from "../../api/app.ts";
import { until } from "../harness/wait.ts";
import { goodPassword, type ServiceApp, signUp, startServices } from "./auth-app.ts";

const app = await startServices(services);
afterAll(() => app.close());

const signInAs = (body: object, extra: { host?: string; headers?: Record<string, string>; app?: ServiceApp } = {}) =>
  (extra.app ?? app).call({
    method: "POST",
    path: "/v1/auth/login",
    body,
    ...(extra.host ? { host: extra.host } : {}),
    ...(extra.headers ? { headers: extra.headers } : {}),
  });
const post = (path: string, body?: unknown, headers: Record<string, string> = {}, host?: string) =>
  app.call({ method: "POST", path, headers, ...(body === undefined ? {} : { body }), ...(host ? { host } : {}) });
let taken = 0;
const freshSlug = (): string => `fresh-${++taken}-${Date.now().toString(36)}`;

describe("signup", () => {
  test("201 makes the organisation, its paired test organisation and its owner, signed in, with a cookie", async () => {
    const slug = freshSlug();
    const answer = await post("/v1/auth/signup", { org_slug: slug, email: `${slug}@Example.com`, password: goodPassword, name: "Ada" });
    expect(answer.status).toBe(201);
    const body = answer.json<Record<string, unknown>>();
    expect(body).toMatchObject({ role: "owner", email: `${slug}@example.com`, name: "Ada", access_token_expires_in: 900, org_slug: slug });
    expect(body.session_token).toMatch(/^kses_[0-9A-Za-z]{49}$/);
    expect(answer.setCookies).toHaveLength(1);
    expect(answer.setCookies[0]).toMatch(/^kapstone_session=kses_\w+; Path=\/; Expires=[^;]+; HttpOnly; SameSite=Lax$/);
    const orgs = await app.deps
      .db("orgs")
      .where({ id: body.org_id })
      .orWhere({ live_org_id: body.org_id })
      .orderBy("mode")
      .select("mode", "slug");
    expect(orgs).toEqual([
      { mode: "live", slug },
      { mode: "test", slug: `${slug}-test` },
    ]);
  });

  test("409 for a slug that is taken, by a live or a test organisation", async () => {
    const org = await signUp(app);
    for (const slug of [org.slug, `${org.slug}-test`]) {
      const answer = await post("/v1/auth/signup", { org_slug: slug, email: "b@example.com", password: goodPassword, name: "B" });
      expect([slug, answer.status, answer.json().error]).toEqual([slug, 409, "CONFLICT"]);
    }
  });

  test("of twenty signups for one slug at once exactly one wins", async () => {
    const slug = freshSlug();
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) =>
        post("/v1/auth/signup", { org_slug: slug, email: `${slug}-${n}@example.com`, password: goodPassword, name: "N" }),
      ),
    );
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(19);
    expect(await app.deps.db("accounts").whereLike("email", `${slug}-%`)).toHaveLength(1);
  });

  test.each([
    ["ab"],
    ["api"],
    ["share"],
    ["kaps"],
    ["mail"],
    ["www"],
    ["admin"],
    ["1abc"],
    ["abc-"],
    ["Abc"],
    ["a_b"],
    [`a${"b".repeat(63)}`],
    [""],
  ])("422 for the slug %j", async (slug) => {
    const answer = await post("/v1/auth/signup", { org_slug: slug, email: "x@example.com", password: goodPassword, name: "X" });
    expect(answer.status).toBe(422);
    expect(answer.json<{ details: { path: string }[] }>().details[0]?.path).toBe("org_slug");
  });

  test("the longest and shortest slug are taken", async () => {
    const longest = `a${Date.now().toString(36)}`.padEnd(63, "x");
    expect((await signUp(app, { slug: longest })).slug).toBe(longest);
    const shortest = `${"abcdefghijklmnopqrstuvwxyz"[Date.now() % 26]}z9`;
    expect((await signUp(app, { slug: shortest })).slug).toBe(shortest);
  });

  test.each([
    ["fourteen chars", 422],
    ["fifteen charact", 201],
    ["passwordpassword", 422],
    ["123456789012345678", 422],
    ["Password2026!!!!!", 422],
    ["aaaaaaaaaaaaaaaaaaaa", 422],
  ])("a password %j is %i", async (password, status) => {
    const slug = freshSlug();
    const answer = await post("/v1/auth/signup", { org_slug: slug, email: `${slug}@example.com`, password, name: "X" });
    expect(answer.status).toBe(status);
  });

  test("422 names unknown fields and bad emails", async () => {
    const answer = await post("/v1/auth/signup", { org_slug: freshSlug(), email: "no", password: goodPassword, name: "X", admin: true });
    expect(answer.status).toBe(422);
    expect(
      answer
        .json<{ details: { path: string }[] }>()
        .details.map(({ path }) => path)
        .sort(),
    ).toEqual(["admin", "email"]);
  });

  test("an email that has an account needs that account's password, and then owns both organisations", async () => {
    const first = await signUp(app);
    const slug = freshSlug();
    const wrong = await post("/v1/auth/signup", { org_slug: slug, email: first.email, password: "another good long one", name: "X" });
    expect([wrong.status, wrong.json().error]).toEqual([401, "UNAUTHORIZED"]);
    const right = await post("/v1/auth/signup", { org_slug: slug, email: first.email, password: first.password, name: "Ignored" });
    expect([right.status, right.json().name]).toEqual([201, "Olga Owner"]);
    const login = await signInAs({ email: first.email, password: first.password });
    expect([login.status, login.json().error]).toEqual([409, "ORG_REQUIRED"]);
    expect(
      login
        .json<{ orgs: { org_slug: string }[] }>()
        .orgs.map(({ org_slug }) => org_slug)
        .sort(),
    ).toEqual([first.slug, slug].sort());
    expect((await signInAs({ email: first.email, password: first.password, org_slug: slug })).status).toBe(200);
  });
});

describe("login", () => {
  test("200 with every field of the contract", async () => {
    const org = await signUp(app);
    const answer = await signInAs({ email: ` ${org.email.toUpperCase()} `, password: org.password });
    expect(answer.status).toBe(200);
    expect(answer.json()).toMatchObject({
      session_token: expect.stringMatching(/^kses_/),
      access_token: expect.stringMatching(/^ey/),
      access_token_expires_in: 900,
      role: "owner",
      org_id: org.orgId,
      member_id: org.memberId,
      email: org.email,
      name: "Olga Owner",
    });
  });

  test("an unknown email and a wrong password are the same 401, byte for byte", async () => {
    const org = await signUp(app);
    const id = { "x-request-id": "same" };
    const wrong = await signInAs({ email: org.email, password: "wrong" }, { headers: id });
    const unknown = await signInAs({ email: "nobody@example.com", password: "wrong" }, { headers: id });
    const stranger = await signInAs({ email: org.email, password: org.password, org_slug: "no-such-org" }, { headers: id });
    expect(wrong.status).toBe(401);
    for (const answer of [unknown, stranger]) {
      expect([answer.status, answer.text, answer.headers["www-authenticate"], answer.setCookies]).toEqual([401, wrong.text, "Bearer", []]);
      expect(Object.keys(answer.headers).sort()).toEqual(Object.keys(wrong.headers).sort());
    }
  });

  test("on an organisation's host its slug need not be sent, and another organisation's members do not get in", async () => {
    const [one, two] = [await signUp(app), await signUp(app)];
    expect((await signInAs({ email: one.email, password: one.password }, { host: `${one.slug}.localhost:8080` })).json().org_id).toBe(
      one.orgId,
    );
    expect((await signInAs({ email: two.email, password: two.password }, { host: `${one.slug}.localhost:8080` })).status).toBe(401);
  });

  test("the fifth failure locks the account for that address only; a right password then hears 423, a wrong one still 401", async () => {
    const here = await startServices(services, { beside: app, env: { KAPSTONE_TRUSTED_PROXIES: "127.0.0.1" } });
    try {
      const org = await signUp(app);
      const from = (address: string, password: string) =>
        signInAs({ email: org.email, password }, { app: here, headers: { "x-forwarded-for": address } });
      for (let n = 0; n < 4; n++) expect((await from("192.0.2.1", "wrong")).status).toBe(401);
      expect((await from("192.0.2.1", org.password)).status).toBe(200); // a success forgets the failures
      for (let n = 0; n < 5; n++) expect((await from("192.0.2.1", "wrong")).status).toBe(401);
      const locked = await from("192.0.2.1", org.password);
      expect([locked.status, locked.json().error]).toEqual([423, "ACCOUNT_LOCKED"]);
      const lockedUntil = Date.parse(locked.json<{ locked_until: string }>().locked_until);
      expect(lockedUntil).toBeGreaterThan(Date.now() + 10 * 60_000);
      expect(lockedUntil).toBeLessThan(Date.now() + 16 * 60_000);
      const wrong = await from("192.0.2.1", "wrong");
      expect([wrong.status, wrong.json().error]).toEqual([401, "UNAUTHORIZED"]);
      expect((await from("192.0.2.1", org.password)).json().locked_until).toBe(locked.json().locked_until);
      expect((await from("192.0.2.2", org.password)).status).toBe(200);
      const told = await until(() => app.deps.db("events").where({ org_id: org.orgId, kind: "anomaly.lockout" }).first("payload"));
      expect(told.payload).toMatchObject({ email: org.email, address: "192.0.2.1" });
      expect((await app.call({ path: "/v1/me", headers: org.auth })).status).toBe(200); // live sessions stay
      await app.deps.db("sign_in_failures").update({ locked_until: new Date(Date.now() - 1_000) });
      expect((await from("192.0.2.1", org.password)).status).toBe(200);
    } finally {
      await here.close();
    }
  });

  test("guesses sent all at once do not get past the lock", async () => {
    const org = await signUp(app);
    const guesses = await Promise.all(Array.from({ length: 12 }, (_, n) => signInAs({ email: org.email, password: `guess ${n}` })));
    expect(new Set(guesses.map(({ status }) => status))).toEqual(new Set([401]));
    expect((await signInAs({ email: org.email, password: org.password })).status).toBe(423);
  });

  test("every refused sign-in is in the audit of the organisation, with address and reason", async () => {
    const org = await signUp(app);
    await signInAs({ email: org.email, password: "wrong" });
    await signInAs({ email: "stranger@example.com", password: "wrong", org_slug: org.slug });
    const items = await until(async () => {
      const answer = await app.call({ path: "/v1/auth/audit?action=sign-in.refused", headers: org.auth });
      const { items: found } = answer.json<{ items: { actor: { kind: string; name: string }; address: string; detail: object }[] }>();
      return found.length === 2 && found;
    });
    expect(items.map(({ actor }) => actor.kind).sort()).toEqual(["anonymous", "member"]);
    for (const item of items) expect([item.address, item.detail]).toEqual(["127.0.0.1", expect.objectContaining({ reason: "password" })]);
  });

  test("429 past ten logins a minute for one email and for one address, before anything is hashed", async () => {
    const limited = await startServices(services, { env: { KAPSTONE_LOGINS_PER_MINUTE: "10", KAPSTONE_TRUSTED_PROXIES: "127.0.0.1" } });
    try {
      const org = await signUp(limited);
      const from = (n: number, email: string) =>
        signInAs({ email, password: "wrong" }, { app: limited, headers: { "x-forwarded-for": `192.0.2.${n}` } });
      const perEmail: number[] = [];
      for (let n = 0; n < 30; n++) perEmail.push((await from(n, org.email)).status);
      const refused = perEmail.filter((status) => status === 429).length;
      expect(refused).toBeGreaterThanOrEqual(10); // ten a minute; the test may stand across two minutes
      expect(perEmail.slice(0, 10)).toEqual(Array(10).fill(401));
      const perAddress: number[] = [];
      for (let n = 0; n < 30; n++) perAddress.push((await from(200, `someone-${n}@example.com`)).status);
      expect(perAddress.filter((status) => status === 429).length).toBeGreaterThanOrEqual(10);
      const answer = await from(200, "someone@example.com");
      if (answer.status === 429) {
        expect(Number(answer.headers["retry-after"])).toBeGreaterThan(0);
        expect(answer.headers["ratelimit-limit"]).toBe("10");
      }
    } finally {
      await limited.close();
    }
  });
});

describe("logout, token, switch-org", () => {
  test("logout is 204, takes the cookie away, and the session and its JWT are dead at once", async () => {
    const org = await signUp(app);
    const { access_token } = (await post("/v1/auth/token", undefined, org.auth)).json<{ access_token: string }>();
    const jwt = { authorization: `Bearer ${access_token}` };
    expect((await app.call({ path: "/v1/me", headers: jwt })).status).toBe(200);
    const answer = await post("/v1/auth/logout", undefined, org.auth);
    expect(answer.status).toBe(204);
    expect(answer.setCookies[0]).toMatch(/^kapstone_session=; Path=\/; Expires=Thu, 01 Jan 1970/);
    for (const headers of [org.auth, jwt]) expect((await app.call({ path: "/v1/me", headers })).status).toBe(401);
    expect((await post("/v1/auth/logout", undefined, org.auth)).status).toBe(401);
  });

  test("a JWT gets no further tokens and no session: 403", async () => {
    const org = await signUp(app);
    const { access_token } = (await post("/v1/auth/token", undefined, org.auth)).json<{ access_token: string }>();
    const jwt = { authorization: `Bearer ${access_token}` };
    expect((await post("/v1/auth/token", undefined, jwt)).status).toBe(403);
    expect((await post("/v1/auth/switch-org", { org_slug: org.slug }, jwt)).status).toBe(403);
  });

  test("switch-org signs in to another organisation of the member, or its test one; any other is 404", async () => {
    const [org, other] = [await signUp(app), await signUp(app)];
    const second = await signUp(app, { email: org.email, password: org.password });
    const moved = await post("/v1/auth/switch-org", { org_slug: second.slug }, org.auth);
    expect([moved.status, moved.json().org_id]).toEqual([200, second.orgId]);
    const test = await post("/v1/auth/switch-org", { org_slug: `${org.slug}-test` }, org.auth);
    const me = await app.call({ path: "/v1/me", headers: { authorization: `Bearer ${test.json().session_token}` } });
    expect(me.json()).toMatchObject({ mode: "test", member: { id: org.memberId, role: "owner" } });
    expect((await post("/v1/auth/switch-org", { org_slug: other.slug }, org.auth)).status).toBe(404);
    expect((await post("/v1/auth/switch-org", { org_slug: "no-such-org" }, org.auth)).status).toBe(404);
  });
});

describe("the cookie", () => {
  test("is enough to read; a change needs the Origin of the same host, to the letter", async () => {
    const org = await signUp(app);
    const host = `${org.slug}.localhost:8080`;
    const login = await signInAs({ email: org.email, password: org.password }, { host });
    const cookie = login.setCookies[0]?.split(";", 1)[0] as string;
    expect((await app.call({ path: "/v1/me", host, headers: { cookie } })).status).toBe(200);
    const change = (origin: string | null) =>
      post("/v1/auth/roles", { name: `role-${++taken}`, permissions: [] }, { cookie, ...(origin === null ? {} : { origin }) }, host);
    const refused = [
      null,
      "null",
      `https://${host}`,
      `http://${org.slug}.localhost`,
      "http://evil.localhost:8080",
      `http://kap.kaps.localhost:8080`,
      `http://${host}/`,
    ];
    for (const origin of refused) {
      const answer = await change(origin);
      expect([origin, answer.status, answer.json().error]).toEqual([origin, 403, "ORIGIN_MISMATCH"]);
    }
    expect((await change(`http://${host}`)).status).toBe(201);
  });

  test("of one organisation is nothing on another's host", async () => {
    const [org, other] = [await signUp(app), await signUp(app)];
    const headers = { cookie: `kapstone_session=${org.token}` };
    expect((await app.call({ path: "/v1/me", host: `${other.slug}.localhost:8080`, headers })).status).toBe(404);
  });

  test("has the __Host- prefix and Secure on https, and the plain name is not read there", async () => {
    const secure = await startServices(services, { env: { KAPSTONE_SCHEME: "https" } });
    try {
      const slug = freshSlug();
      const answer = await secure.call({
        method: "POST",
        path: "/v1/auth/signup",
        body: { org_slug: slug, email: `${slug}@example.com`, password: goodPassword, name: "S" },
      });
      expect(answer.setCookies[0]).toMatch(/^__Host-kapstone_session=kses_\w+; Path=\/; Expires=[^;]+; HttpOnly; Secure; SameSite=Lax$/);
      const token = answer.json<{ session_token: string }>().session_token;
      const me = (cookie: string) => secure.call({ path: "/v1/me", headers: { cookie } });
      expect((await me(`kapstone_session=${token}`)).status).toBe(401);
      expect((await me(`__Host-kapstone_session=${token}`)).status).toBe(200);
    } finally {
      await secure.close();
    }
  });
});
