import { randomUUID } from "node:crypto";
import { afterAll, describe, expect, test } from "vitest";
import { services } from "../../api/app.ts";
import { permissionNames } from "../../api/http/permissions.ts";
import type { Answer } from "../harness/http.ts";
import { until } from "../harness/wait.ts";
import { joiner, type Org, sender, signUp, startServices } from "./auth-app.ts";

const app = await startServices(services);
afterAll(() => app.close());
const send = sender(app);
const join = joiner(app);
const roleOf = async (org: Org, id: string) => (await send("GET", `/v1/auth/members/${id}`, org.auth)).json().role;

describe("invitations", () => {
  test("mail a link to the organisation's host that is good once", async () => {
    const org = await signUp(app);
    const email = `i-${randomUUID()}@example.com`;
    const made = await send("POST", "/v1/auth/invitations", org.auth, { email, role: "viewer" });
    expect(made.status).toBe(201);
    const { accept_url, id } = made.json<{ accept_url: string; id: string }>();
    expect(accept_url).toMatch(new RegExp(`^http://${org.slug}\\.localhost:8080/join\\?token=[\\w-]{43}$`));
    const mail = await until(async () => (await app.mails()).find(({ to }) => to.includes(email)));
    expect(mail.text).toContain(accept_url);
    const list = await send("GET", "/v1/auth/invitations", org.auth);
    expect([list.text.includes(id), list.text.includes("token")]).toEqual([true, false]);
    const token = new URL(accept_url).searchParams.get("token");
    const accept = (body: object) => send("POST", "/v1/auth/invitations/accept", {}, { token, ...body });
    expect((await accept({})).status).toBe(422);
    expect((await accept({ password: "a hill of quiet oaks" })).status).toBe(422); // a new email needs a name
    const both = await Promise.all([1, 2].map(() => accept({ name: "Ina", password: "a hill of quiet oaks" })));
    expect(both.map(({ status }) => status).sort()).toEqual([200, expect.toSatisfy((status: number) => status === 409 || status === 410)]);
    const joined = both.find(({ status }) => status === 200) as Answer;
    expect(joined.json()).toMatchObject({ role: "viewer", email, org_id: org.orgId });
    expect((await accept({ name: "Ina", password: "a hill of quiet oaks" })).status).toBe(410);
    expect((await send("GET", "/v1/auth/invitations", org.auth)).text).not.toContain(id);
    expect((await send("POST", "/v1/auth/invitations", org.auth, { email, role: "viewer" })).status).toBe(409);
  });

  test("an email that has an account needs that account's password", async () => {
    const [org, other] = [await signUp(app), await signUp(app)];
    const invited = await send("POST", "/v1/auth/invitations", org.auth, { email: other.email, role: "admin" });
    const token = new URL(invited.json<{ accept_url: string }>().accept_url).searchParams.get("token");
    const accept = (password: string) => send("POST", "/v1/auth/invitations/accept", {}, { token, password, name: "Not me" });
    expect((await accept("a hill of quiet oaks")).status).toBe(401);
    const joined = await accept(other.password);
    expect([joined.status, joined.json().name]).toEqual([200, "Olga Owner"]);
  });

  test("end when revoked, replaced or expired; an unknown token is 404", async () => {
    const org = await signUp(app);
    const email = `r-${randomUUID()}@example.com`;
    const invite = async () => {
      const { id, accept_url } = (await send("POST", "/v1/auth/invitations", org.auth, { email, role: "member" })).json<{
        id: string;
        accept_url: string;
      }>();
      return { id, token: new URL(accept_url).searchParams.get("token") };
    };
    const accept = async (token: string | null) =>
      (await send("POST", "/v1/auth/invitations/accept", {}, { token, name: "R", password: "a hill of quiet oaks" })).status;
    const [first, second] = [await invite(), await invite()];
    expect(await accept(first.token)).toBe(410);
    expect((await send("DELETE", `/v1/auth/invitations/${first.id}`, org.auth)).status).toBe(404);
    expect((await send("DELETE", `/v1/auth/invitations/${second.id}`, org.auth)).status).toBe(204);
    expect(await accept(second.token)).toBe(410);
    const third = await invite();
    await app.deps
      .db("invitations")
      .where({ id: third.id })
      .update({ expires_at: new Date(Date.now() - 1) });
    expect(await accept(third.token)).toBe(410);
    expect(await accept("x".repeat(43))).toBe(404);
  });

  test("422 for an unknown role, another organisation's roles included", async () => {
    const [org, other] = [await signUp(app), await signUp(app)];
    await send("POST", "/v1/auth/roles", other.auth, { name: "theirs", permissions: [] });
    for (const role of ["theirs", "root", ""]) {
      expect((await send("POST", "/v1/auth/invitations", org.auth, { email: "x@example.com", role })).status).toBe(422);
    }
  });
});

describe("members and roles", () => {
  test("the built-in roles may what the permission list says; the list names a line and a scope for each", async () => {
    const org = await signUp(app);
    const list = (await send("GET", "/v1/auth/permissions", org.auth)).json<{
      items: { name: string; description: string; scope: string }[];
    }>();
    expect(list.items.map(({ name }) => name)).toEqual(permissionNames);
    for (const item of list.items)
      expect([item.description.length > 10, ["read", "write", "admin"].includes(item.scope)]).toEqual([true, true]);
    const expected = {
      admin: permissionNames,
      member: list.items.filter(({ scope }) => scope !== "admin").map(({ name }) => name),
      viewer: list.items.filter(({ scope }) => scope === "read").map(({ name }) => name),
    };
    for (const [role, permissions] of Object.entries(expected)) {
      const person = await join(org, role);
      const me = (await send("GET", "/v1/me", person.auth)).json<{ member: { role: string; permissions: string[] } }>();
      expect([me.member.role, me.member.permissions]).toEqual([role, [...permissions].sort()]);
    }
  });

  test("a role changed or a member removed holds from the next request on", async () => {
    const org = await signUp(app);
    const person = await join(org, "admin");
    expect((await send("GET", "/v1/auth/audit", person.auth)).status).toBe(200);
    expect((await send("PATCH", `/v1/auth/members/${person.id}`, org.auth, { role: "viewer" })).json().role).toBe("viewer");
    expect((await send("GET", "/v1/auth/audit", person.auth)).status).toBe(403);
    expect((await send("DELETE", `/v1/auth/members/${person.id}`, org.auth)).status).toBe(204);
    expect((await send("GET", "/v1/me", person.auth)).status).toBe(401);
    expect((await send("GET", `/v1/auth/members/${person.id}`, org.auth)).status).toBe(404);
    expect((await send("DELETE", `/v1/auth/members/${person.id}`, org.auth)).status).toBe(404);
    const login = await send("POST", "/v1/auth/login", {}, { email: person.email, password: "a hill of quiet oaks" });
    expect(login.status).toBe(401);
    const invited = await send("POST", "/v1/auth/invitations", org.auth, { email: person.email, role: "member" });
    const token = new URL(invited.json<{ accept_url: string }>().accept_url).searchParams.get("token");
    const again = await send("POST", "/v1/auth/invitations/accept", {}, { token, password: "a hill of quiet oaks" });
    expect(again.json()).toMatchObject({ member_id: person.id, role: "member" });
    expect((await send("GET", "/v1/me", person.auth)).status).toBe(401); // the old session stays dead
  });

  test("a custom role may exactly what it lists, follows its changes and its name, and cannot go while someone has it", async () => {
    const org = await signUp(app);
    const made = await send("POST", "/v1/auth/roles", org.auth, { name: "auditor", permissions: ["audit.read"] });
    expect(made.status).toBe(201);
    const { id } = made.json<{ id: string }>();
    const person = await join(org, "auditor");
    expect((await send("GET", "/v1/auth/audit", person.auth)).status).toBe(200);
    expect((await send("GET", "/v1/auth/members", person.auth)).status).toBe(403);
    const changed = await send("PATCH", `/v1/auth/roles/${id}`, org.auth, { name: "clerk", permissions: ["members.read"] });
    expect(changed.json()).toMatchObject({ id, name: "clerk", permissions: ["members.read"], built_in: false });
    expect((await send("GET", "/v1/auth/audit", person.auth)).status).toBe(403);
    expect((await send("GET", "/v1/auth/members", person.auth)).status).toBe(200);
    expect(await roleOf(org, person.id)).toBe("clerk");
    expect((await send("DELETE", `/v1/auth/roles/${id}`, org.auth)).status).toBe(409);
    await send("PATCH", `/v1/auth/members/${person.id}`, org.auth, { role: "member" });
    expect((await send("DELETE", `/v1/auth/roles/${id}`, org.auth)).status).toBe(204);
    expect((await send("DELETE", `/v1/auth/roles/${id}`, org.auth)).status).toBe(404);
  });

  test.each([
    [{ name: "owner", permissions: [] }, 409],
    [{ name: "Bad Name", permissions: [] }, 422],
    [{ name: "x", permissions: ["everything"] }, 422],
    [{ name: "x", permissions: ["audit.read", "audit.read"] }, 422],
    [{ name: "x" }, 422],
  ])("a role %j is %i", async (body, status) => {
    const org = await signUp(app);
    expect((await send("POST", "/v1/auth/roles", org.auth, body)).status).toBe(status);
  });

  test("two roles of one name are 409; the same name in another organisation is fine", async () => {
    const [org, other] = [await signUp(app), await signUp(app)];
    const body = { name: "twin", permissions: [] };
    expect((await send("POST", "/v1/auth/roles", org.auth, body)).status).toBe(201);
    expect((await send("POST", "/v1/auth/roles", org.auth, body)).status).toBe(409);
    expect((await send("POST", "/v1/auth/roles", other.auth, body)).status).toBe(201);
  });

  test("the last owner cannot leave, be demoted or removed: 409, also when two owners go at once", async () => {
    const org = await signUp(app);
    expect((await send("DELETE", "/v1/auth/members/me", org.auth)).status).toBe(409);
    expect((await send("PATCH", `/v1/auth/members/${org.memberId}`, org.auth, { role: "admin" })).status).toBe(409);
    expect((await send("DELETE", `/v1/auth/members/${org.memberId}`, org.auth)).status).toBe(409);
    const second = await join(org, "owner");
    const both = await Promise.all([send("DELETE", "/v1/auth/members/me", org.auth), send("DELETE", "/v1/auth/members/me", second.auth)]);
    expect(both.map(({ status }) => status).sort()).toEqual([204, 409]);
    expect(await app.deps.db("members").where({ org_id: org.orgId, role: "owner", removed_at: null })).toHaveLength(1);
  });

  test("only an owner makes, changes or removes an owner", async () => {
    const org = await signUp(app);
    const admin = await join(org, "admin");
    const owner = await join(org, "owner");
    const member = await join(org, "member");
    for (const answer of [
      await send("PATCH", `/v1/auth/members/${member.id}`, admin.auth, { role: "owner" }),
      await send("PATCH", `/v1/auth/members/${admin.id}`, admin.auth, { role: "owner" }),
      await send("PATCH", `/v1/auth/members/${owner.id}`, admin.auth, { role: "member" }),
      await send("DELETE", `/v1/auth/members/${owner.id}`, admin.auth),
      await send("POST", "/v1/auth/invitations", admin.auth, { email: "o@example.com", role: "owner" }),
    ]) {
      expect(answer.status).toBe(403);
    }
    expect((await send("PATCH", `/v1/auth/members/${member.id}`, admin.auth, { role: "viewer" })).status).toBe(200);
    expect((await send("PATCH", `/v1/auth/members/${owner.id}`, org.auth, { role: "member" })).status).toBe(200);
  });

  test("nobody gives, makes, widens or takes a role that may do more than they may", async () => {
    const org = await signUp(app);
    const role = (name: string, permissions: string[]) => send("POST", "/v1/auth/roles", org.auth, { name, permissions });
    await role("steward", ["members.manage", "members.read", "roles.manage"]);
    const wide = (await role("wide", ["audit.read"])).json().id;
    const own = (await send("GET", "/v1/auth/roles", org.auth))
      .json<{ items: { id: string; name: string }[] }>()
      .items.find(({ name }) => name === "steward")?.id;
    const steward = await join(org, "steward");
    const admin = await join(org, "admin");
    for (const answer of [
      await send("PATCH", `/v1/auth/members/${steward.id}`, steward.auth, { role: "admin" }),
      await send("PATCH", `/v1/auth/members/${admin.id}`, steward.auth, { role: "steward" }),
      await send("DELETE", `/v1/auth/members/${admin.id}`, steward.auth),
      await send("POST", "/v1/auth/invitations", steward.auth, { email: "w@example.com", role: "wide" }),
      await send("POST", "/v1/auth/roles", steward.auth, { name: "mine", permissions: ["keys.manage"] }),
      await send("PATCH", `/v1/auth/roles/${own}`, steward.auth, { permissions: ["keys.manage"] }),
      await send("PATCH", `/v1/auth/roles/${wide}`, steward.auth, { permissions: [] }),
    ]) {
      expect(answer.status).toBe(403);
    }
    expect((await send("POST", "/v1/auth/roles", steward.auth, { name: "mine", permissions: ["members.read"] })).status).toBe(201);
  });

  test("another organisation's members, roles and invitations are 404", async () => {
    const [org, other] = [await signUp(app), await signUp(app)];
    const role = (await send("POST", "/v1/auth/roles", other.auth, { name: "theirs", permissions: [] })).json().id;
    const invitation = (await send("POST", "/v1/auth/invitations", other.auth, { email: "z@example.com", role: "member" })).json().id;
    for (const [method, path, body] of [
      ["GET", `/v1/auth/members/${other.memberId}`],
      ["PATCH", `/v1/auth/members/${other.memberId}`, { role: "viewer" }],
      ["DELETE", `/v1/auth/members/${other.memberId}`],
      ["PATCH", `/v1/auth/roles/${role}`, { name: "mine" }],
      ["DELETE", `/v1/auth/roles/${role}`],
      ["DELETE", `/v1/auth/invitations/${invitation}`],
    ] as const) {
      expect([path, (await send(method, path, org.auth, body)).status]).toEqual([path, 404]);
    }
  });
});

describe("the audit", () => {
  test("tells who did what, from where, with which credential, filtered and page by page", async () => {
    const org = await signUp(app);
    await send("POST", "/v1/workspaces", { ...org.auth, "x-request-id": "wanted-1" }, { name: "one" });
    await send("POST", "/v1/workspaces", org.auth, { name: "two" });
    const list = async (query: string) =>
      (await send("GET", `/v1/auth/audit?${query}`, org.auth)).json<{ items: Record<string, unknown>[]; next_cursor: string | null }>();
    const { items } = await list("action=workspace.created");
    expect(items).toHaveLength(2);
    expect(items[1]).toMatchObject({
      actor: { kind: "member", id: org.memberId, name: "Olga Owner" },
      target: { kind: "workspace", name: "one" },
      address: "127.0.0.1",
      credential: { kind: "session" },
      request_id: "wanted-1",
    });
    expect((await list("action=workspace.*")).items).toHaveLength(2);
    expect((await list(`actor_id=${randomUUID()}`)).items).toHaveLength(0);
    expect((await list(`target_id=${(items[0] as { target: { id: string } }).target.id}`)).items).toHaveLength(1);
    expect((await list(`since=${new Date(Date.now() + 60_000).toISOString()}`)).items).toHaveLength(0);
    const first = await list("limit=1");
    const second = await list(`limit=1&cursor=${first.next_cursor}`);
    expect(first.items[0]?.id).not.toBe(second.items[0]?.id);
    expect((await send("GET", "/v1/auth/audit?since=yesterday", org.auth)).status).toBe(422);
  });

  test("is exported as NDJSON, and only to who may read it", async () => {
    const org = await signUp(app);
    const answer = await send("GET", "/v1/auth/audit/export", org.auth);
    expect([answer.status, answer.headers["content-type"]]).toEqual([200, "application/x-ndjson; charset=utf-8"]);
    const lines = answer.text.trimEnd().split("\n");
    expect(lines.map((line) => (JSON.parse(line) as { action: string }).action)).toEqual([
      "audit.exported",
      "session.created",
      "org.created",
    ]);
    const person = await join(org, "member");
    expect((await send("GET", "/v1/auth/audit/export", person.auth)).status).toBe(403);
  });

  test("is append-only, for the platform's own login too", async () => {
    for (const statement of ["update audit_events set action = 'x'", "delete from audit_events", "truncate audit_events"]) {
      await expect(app.deps.db.raw(statement)).rejects.toThrow(/append-only/);
    }
  });
});
