import { randomUUID } from "node:crypto";
import { afterAll, describe, expect, test } from "vitest";
import { services } from "../../api/app.ts";
import { type Org, signUp, startServices } from "./auth-app.ts";

const app = await startServices(services);
afterAll(() => app.close());
const org = await signUp(app);
const other = await signUp(app);

const send = (method: "GET" | "POST" | "PATCH" | "DELETE", path: string, headers: Record<string, string>, body?: unknown) =>
  app.call({ method, path, headers, ...(body === undefined ? {} : { body }) });
const make = async (path: string, as: Org = org): Promise<string> =>
  (await send("POST", path, as.auth, { name: `n-${randomUUID()}` })).json<{ id: string }>().id;
const keyOf = async (body: object): Promise<Record<string, string>> => {
  const answer = await send("POST", "/v1/auth/api-keys", org.auth, { name: "k", scopes: ["read"], ...body });
  if (answer.status !== 201) throw new Error(answer.text);
  return { "x-api-key": answer.json<{ secret: string }>().secret };
};

describe.each([["/v1/workspaces"], ["/v1/projects"]])("%s", (path) => {
  test("are made, listed and deleted; a taken name is 409, a bad one 422, another organisation's 404", async () => {
    const name = `n-${randomUUID()}`;
    const made = await send("POST", path, org.auth, { name });
    expect(made.status).toBe(201);
    const { id } = made.json<{ id: string }>();
    expect((await send("POST", path, org.auth, { name })).status).toBe(409);
    expect((await send("POST", path, other.auth, { name })).status).toBe(201);
    for (const body of [{}, { name: "" }, { name: "x".repeat(101) }, { name: "a", extra: 1 }]) {
      expect((await send("POST", path, org.auth, body)).status).toBe(422);
    }
    expect((await send("GET", path, org.auth)).text).toContain(id);
    expect((await send("GET", path, other.auth)).text).not.toContain(id);
    expect((await send("DELETE", `${path}/${id}`, other.auth)).status).toBe(404);
    expect((await send("DELETE", `${path}/${id}`, org.auth)).status).toBe(204);
    expect((await send("DELETE", `${path}/${id}`, org.auth)).status).toBe(404);
  });

  test("one that a live key is bound to is not empty: 409; a revoked or expired key does not keep it", async () => {
    const id = await make(path);
    const binding = path === "/v1/workspaces" ? { workspace_id: id } : { project_id: id };
    const key = (await send("POST", "/v1/auth/api-keys", org.auth, { name: "k", scopes: ["read"], ...binding })).json<{ id: string }>();
    const refused = await send("DELETE", `${path}/${id}`, org.auth);
    expect([refused.status, refused.json<{ error: { code: string } }>().error.code]).toEqual([409, "CONFLICT"]);
    await send("DELETE", `/v1/auth/api-keys/${key.id}`, org.auth);
    expect((await send("DELETE", `${path}/${id}`, org.auth)).status).toBe(204);
  });

  test("keys read them and do not change them; a bound key sees its own", async () => {
    const [mine] = [await make(path), await make(path)];
    const free = await keyOf({});
    const bound = await keyOf(path === "/v1/workspaces" ? { workspace_id: mine } : { project_id: mine });
    expect((await send("GET", path, free)).json<{ items: unknown[] }>().items.length).toBeGreaterThan(1);
    expect((await send("GET", path, bound)).json<{ items: { id: string }[] }>().items.map(({ id }) => id)).toEqual([mine]);
    expect((await send("POST", path, await keyOf({ scopes: ["admin"] }), { name: "x" })).status).toBe(403);
    expect((await send("GET", path, await keyOf({ scopes: ["write"] }))).status).toBe(403);
  });
});

test("a workspace is renamed", async () => {
  const [id, second] = [await make("/v1/workspaces"), await make("/v1/workspaces")];
  const name = `n-${randomUUID()}`;
  expect((await send("PATCH", `/v1/workspaces/${id}`, org.auth, { name })).json()).toMatchObject({ id, name });
  expect((await send("PATCH", `/v1/workspaces/${second}`, org.auth, { name })).status).toBe(409);
  expect((await send("PATCH", `/v1/workspaces/${id}`, other.auth, { name: "mine" })).status).toBe(404);
});

describe("X-Workspace-Id", () => {
  const me = (headers: Record<string, string>) => send("GET", "/v1/me", headers);

  test("chooses a workspace of the organisation; without it the credential stays as bound", async () => {
    const id = await make("/v1/workspaces");
    expect((await me(org.auth)).json().workspace_id).toBeNull();
    expect((await me({ ...org.auth, "x-workspace-id": id })).json().workspace_id).toBe(id);
    expect((await me({ ...org.auth, "x-workspace-id": id.toUpperCase() })).json().workspace_id).toBe(id);
    const bound = await keyOf({ workspace_id: id });
    expect((await me(bound)).json().workspace_id).toBe(id);
    expect((await me({ ...bound, "x-workspace-id": id })).json().workspace_id).toBe(id);
  });

  test("of another organisation, of none, or other than the key's own is 404", async () => {
    const [mine, second, theirs] = [await make("/v1/workspaces"), await make("/v1/workspaces"), await make("/v1/workspaces", other)];
    for (const id of [theirs, randomUUID(), "nonsense", `${mine}x`]) {
      expect([id, (await me({ ...org.auth, "x-workspace-id": id })).status]).toEqual([id, 404]);
    }
    expect((await me({ ...(await keyOf({ workspace_id: mine })), "x-workspace-id": second })).status).toBe(404);
  });
});

describe("the test organisation", () => {
  test("has data of its own under ids of its own, and answers on the live organisation's addresses", async () => {
    const live = await make("/v1/workspaces");
    const key = await keyOf({ kind: "test", scopes: ["read"] });
    expect((await send("GET", "/v1/workspaces", key)).json<{ items: unknown[] }>().items).toEqual([]);
    expect((await send("GET", "/v1/me", { ...key, "x-workspace-id": live })).status).toBe(404);
    const onOrgHost = await app.call({ path: "/v1/me", host: `${org.slug}.localhost:8080`, headers: key });
    expect([onOrgHost.status, onOrgHost.json().mode]).toEqual([200, "test"]);
    expect((await app.call({ path: "/v1/me", host: `${other.slug}.localhost:8080`, headers: key })).status).toBe(404);
    const session = await send("POST", "/v1/auth/switch-org", org.auth, { org_slug: `${org.slug}-test` });
    const auth = { authorization: `Bearer ${session.json().session_token}` };
    const own = (await send("POST", "/v1/workspaces", auth, { name: "in test" })).json<{ id: string }>().id;
    expect((await send("GET", "/v1/workspaces", key)).json<{ items: { id: string }[] }>().items.map(({ id }) => id)).toEqual([own]);
    expect((await send("GET", "/v1/workspaces", org.auth)).text).not.toContain(own);
    expect((await send("GET", "/v1/auth/members", auth)).json<{ items: { id: string }[] }>().items.map(({ id }) => id)).toContain(
      org.memberId,
    );
  });
});

describe("deployments", () => {
  async function addKap(orgId: string): Promise<{ id: string; slug: string; versions: string[] }> {
    const { db } = app.deps;
    const [id, slug] = [randomUUID(), `kap-${randomUUID().slice(0, 8)}`];
    const actor = JSON.stringify({ kind: "member", id: "x", name: "X" });
    const secret = Buffer.alloc(1);
    await db("kaps").insert({
      id,
      org_id: orgId,
      slug,
      name: slug,
      schema_name: slug,
      role_name: slug,
      role_password: secret,
      bucket: slug,
      created_by: actor,
    });
    const versions = Array.from({ length: 4 }, () => randomUUID());
    for (const [index, version] of versions.entries()) {
      await db("kap_versions").insert({
        id: version,
        kap_id: id,
        sequence: index + 1,
        main_file: "main.ts",
        files: "[]",
        bundle_sha256: "x",
        restored_from: index === 3 ? versions[1] : null, // the fourth takes the third back to the second
        created_by: actor,
        live_at: new Date(Date.UTC(2026, 0, index + 1)),
      });
    }
    await db("kaps").where({ id }).update({ current_version_id: versions[3] });
    return { id, slug, versions };
  }

  test("are the versions that became live, newest first, with what became of each", async () => {
    const kap = await addKap(org.orgId);
    const list = async (query = "") =>
      (await send("GET", `/v1/apps/${kap.slug}/deployments${query}`, await keyOf({}))).json<{
        deployments: Record<string, unknown>[];
        next_cursor: string | null;
      }>();
    const { deployments } = await list();
    expect(deployments.map(({ sequence, status }) => [sequence, status])).toEqual([
      [4, "live"],
      [3, "rolled-back"],
      [2, "superseded"],
      [1, "superseded"],
    ]);
    expect(deployments[3]).toEqual({
      id: kap.versions[0],
      app_id: kap.id,
      version_id: kap.versions[0],
      sequence: 1,
      status: "superseded",
      created_at: expect.any(String),
      live_at: "2026-01-01T00:00:00.000Z",
      superseded_at: "2026-01-02T00:00:00.000Z",
      created_by: { kind: "member", id: "x", name: "X" },
      error: null,
    });
    const page = await list("?limit=3");
    expect((await list(`?limit=3&cursor=${page.next_cursor}`)).deployments.map(({ sequence }) => sequence)).toEqual([1]);
    const one = await send("GET", `/v1/apps/${kap.id}/deployments/${kap.versions[2]}`, org.auth);
    expect([one.status, one.json().status]).toEqual([200, "rolled-back"]);
  });

  test("of another organisation, or of none, are 404; a key without read is 403", async () => {
    const [kap, theirs] = [await addKap(org.orgId), await addKap(other.orgId)];
    for (const path of [
      `/v1/apps/${theirs.id}/deployments`,
      `/v1/apps/${theirs.slug}/deployments`,
      `/v1/apps/${kap.id}/deployments/${theirs.versions[0]}`,
      `/v1/apps/${kap.id}/deployments/nonsense`,
      "/v1/apps/no-such-app/deployments",
    ]) {
      expect([path, (await send("GET", path, org.auth)).status]).toEqual([path, 404]);
    }
    expect((await send("GET", `/v1/apps/${kap.id}/deployments`, await keyOf({ scopes: ["write"] }))).status).toBe(403);
    expect((await send("GET", `/v1/apps/${kap.id}/deployments`, await keyOf({ kind: "test" }))).status).toBe(404);
  });
});
