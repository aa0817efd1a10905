import { createHash } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { asRefusal } from "../../api/http/refusal.ts";
import { type ServiceApp, signUp } from "./auth-app.ts";
import { type Author, author, authorOf, type Created, codeOf, type KapBody, program, startKapsApp } from "./kaps-app.ts";

let app: ServiceApp;
let me: Author;
let other: Author;

beforeAll(async () => {
  app = await startKapsApp();
  me = await author(app);
  other = await author(app);
});
afterAll(() => app.close());

describe("creating", () => {
  test("answers 201 with kap, version, address and a token that is shown once, in the shapes of decided §7.3", async () => {
    const answer = await me.call("POST", "/kaps", {
      name: "Order Desk",
      main_file: "main.ts",
      files: [{ path: "main.ts", content: program }],
    });
    expect(answer.status).toBe(201);
    const { kap, version, address, bypass_token } = answer.json<Created>();
    const actor = { kind: "member", id: me.org.memberId, name: "Olga Owner" };
    expect(kap).toEqual({
      id: expect.any(String),
      slug: "order-desk",
      name: "Order Desk",
      org_id: me.org.orgId,
      address: "http://order-desk.kaps.localhost:8080",
      mail_address: "order-desk@mail.localhost",
      audience: "members",
      state: "active",
      disabled: null,
      current_version_id: version.id,
      created_at: expect.any(String),
      created_by: actor,
      updated_at: expect.any(String),
      deleted_at: null,
      recover_until: null,
    });
    expect(version).toEqual({
      id: expect.any(String),
      kap_id: kap.id,
      sequence: 1,
      main_file: "main.ts",
      files: [{ path: "main.ts", size: program.length, sha256: createHash("sha256").update(program).digest("hex") }],
      bundle_sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
      restored_from: null,
      created_at: expect.any(String),
      created_by: actor,
      client: "contract-test",
    });
    expect(address).toBe(kap.address);
    expect(bypass_token).toMatch(/^kbt_[0-9A-Za-z]{49}$/);
    const read = await me.call("GET", `/kaps/${kap.id}`);
    expect(read.text).not.toContain(bypass_token);
  });

  test("gives birth to an enabled request trigger, one token named default, a schema, a role and a bucket", async () => {
    const { kap } = await me.create();
    const read = (await me.call("GET", `/kaps/${kap.slug}`)).json<{ triggers: Record<string, unknown>[]; files: unknown[] }>();
    expect(read.triggers).toMatchObject([{ kind: "request", file_path: "main.ts", enabled: true, kap_id: kap.id }]);
    expect(read.files).toEqual([{ path: "main.ts", size: program.length, sha256: expect.any(String), content: program }]);
    const { tokens } = (await me.call("GET", `/kaps/${kap.id}/bypass-tokens`)).json<{ tokens: object[] }>();
    expect(tokens).toMatchObject([{ name: "default", revoked_at: null }]);
    const row = await app.deps.db("kaps").where({ id: kap.id }).first();
    const { rows } = await app.deps.db.raw(
      "select has_schema_privilege(?, ?, 'create') as own, has_schema_privilege(?, 'kapstone', 'usage') as ours, rolcanlogin from pg_roles where rolname = ?",
      [row.role_name, row.schema_name, row.role_name, row.role_name],
    );
    expect(rows).toEqual([{ own: true, ours: false, rolcanlogin: true }]);
    await app.deps.objects.put(row.bucket, "k", Buffer.from("v"));
    expect(await app.deps.objects.head(row.bucket, "k")).toMatchObject({ sizeBytes: 1 });
  });

  test("a taken or reserved slug gets a suffix; names without letters still get one; 20 kaps of one name at once all exist", async () => {
    const first = await me.create({ name: "Same Name" });
    const second = await other.create({ name: "Same  Name!" });
    expect(first.kap.slug).toBe("same-name");
    expect(second.kap.slug).toMatch(/^same-name-[0-9a-z]{6}$/);
    expect((await me.create({ name: "API" })).kap.slug).toMatch(/^api-[0-9a-z]{6}$/);
    const likeAnId = await me.create({ name: "a0000000-0000-7000-8000-000000000000" });
    expect((await me.call("GET", `/kaps/${likeAnId.kap.slug}`)).json<Created>().kap.id).toBe(likeAnId.kap.id);
    expect((await me.create({ name: "日本" })).kap.slug).toMatch(/^kap(-[0-9a-z]{6}|-kap)?$/);
    expect((await me.create({ name: "7 Zwerge für Ä" })).kap.slug).toMatch(/^kap-7-zwerge-fur-a/);
    const many = await Promise.all(Array.from({ length: 20 }, () => me.create({ name: "Crowd" })));
    expect(new Set(many.map(({ kap }) => kap.slug)).size).toBe(20);
  });

  test("a replay with the same Idempotency-Key makes no second kap and shows no token", async () => {
    const body = { name: "Once", main_file: "main.ts", files: [{ path: "main.ts", content: program }] };
    const headers = { "idempotency-key": "create-once" };
    const first = (await me.call("POST", "/kaps", body, headers)).json<Created>();
    const second = (await me.call("POST", "/kaps", body, headers)).json<Created & { replayed: boolean }>();
    expect(second.kap.id).toBe(first.kap.id);
    expect(second.replayed).toBe(true);
    expect(second.bypass_token).toBeUndefined();
  });

  test.each([
    ["an unknown field", { colour: "red" }, "colour"],
    ["no name", { name: " " }, "name"],
    ["a name of 201 characters", { name: "x".repeat(201) }, "name"],
    ["a name of two lines", { name: "one\ntwo" }, "name"],
    ["a name that is no Unicode", { name: "half \ud800" }, "name"],
    ["a main file that is not there", { main_file: "other.ts" }, "main_file"],
    ["a main file that is no program", { main_file: "a.txt", files: [{ path: "a.txt", content: "" }] }, "main_file"],
    ["no files", { files: [] }, "files"],
    ["an absolute path", { files: [{ path: "/main.ts", content: "" }] }, "files.0.path"],
    ["a path that climbs", { files: [{ path: "a/../main.ts", content: "" }] }, "files.0.path"],
    [
      "a path twice",
      {
        files: [
          { path: "main.ts", content: "" },
          { path: "main.ts", content: "" },
        ],
      },
      "files.1.path",
    ],
    [
      "a file that is a folder too",
      {
        files: [
          { path: "main.ts", content: program },
          { path: "main.ts/x", content: "" },
        ],
      },
      "files.1.path",
    ],
    ["a NUL character", { files: [{ path: "main.ts", content: "\0" }] }, "files.0.content"],
    ["an unknown audience", { audience: "everyone" }, "audience"],
  ])("refuses %s with 422 naming it", async (_what, change, path) => {
    const body = { name: "X", main_file: "main.ts", files: [{ path: "main.ts", content: program }], ...change };
    const answer = await me.call("POST", "/kaps", body);
    expect(codeOf(answer)).toBe("422 VALIDATION_FAILED");
    expect(answer.json<{ error: { details: { path: string }[] } }>().error.details.map((detail) => detail.path)).toContain(path);
  });

  test("text that PostgreSQL cannot store is 422 also where no rule of a field has found it", async () => {
    for (const text of ["half \ud800", "a\0b"]) {
      const error: unknown = await app.deps.db.raw("select ?::jsonb", [JSON.stringify(text)]).catch((thrown: unknown) => thrown);
      expect(asRefusal(error)).toMatchObject({ status: 422, code: "VALIDATION_FAILED" });
    }
  });

  test("200 files are a version, 201 are not", async () => {
    const files = Array.from({ length: 199 }, (_, n) => ({ path: `n${n}.txt`, content: String(n) }));
    const main = { path: "main.ts", content: program };
    const most = await me.create({ files: [main, ...files] });
    expect(most.version.files.length).toBe(200);
    const tooMany = await me.call("POST", "/kaps", {
      name: "X",
      main_file: "main.ts",
      files: [main, ...files, { path: "one.txt", content: "" }],
    });
    expect(codeOf(tooMany)).toBe("422 VALIDATION_FAILED");
  });

  test("a body of 2 MiB is taken, one byte more is 413", async () => {
    const body = {
      name: "Big",
      main_file: "main.ts",
      files: [
        { path: "main.ts", content: program },
        { path: "big.txt", content: "" },
      ],
    };
    const room = 2 * 1024 * 1024 - JSON.stringify(body).length;
    const sized = (extra: number): string =>
      JSON.stringify({ ...body, files: [body.files[0], { path: "big.txt", content: "x".repeat(room + extra) }] });
    const headers = { "content-type": "application/json" };
    expect((await me.call("POST", "/kaps", sized(0), headers)).status).toBe(201);
    expect((await me.call("POST", "/kaps", sized(1), headers)).status).toBe(413);
  });

  test("what does not compile is 422 BUILD_FAILED with file, line and column, and leaves nothing behind", async () => {
    const before = await app.deps.db("kaps").count("* as n").first();
    const answer = await me.call("POST", "/kaps", {
      name: "X",
      main_file: "main.ts",
      files: [{ path: "main.ts", content: "export default (\n" }],
    });
    expect(codeOf(answer)).toBe("422 BUILD_FAILED");
    expect(answer.json<{ error: { details: object[] } }>().error.details[0]).toMatchObject({
      file: "main.ts",
      line: expect.any(Number),
      column: expect.any(Number),
      message: expect.any(String),
    });
    expect(await app.deps.db("kaps").count("* as n").first()).toEqual(before);
  });

  test("public needs confirm_public", async () => {
    const body = { name: "Open", main_file: "main.ts", files: [{ path: "main.ts", content: program }], audience: "public" };
    expect(codeOf(await me.call("POST", "/kaps", body))).toBe("422 CONFIRM_PUBLIC_REQUIRED");
    const answer = await me.call("POST", "/kaps", { ...body, confirm_public: true });
    expect(answer.json<Created>().kap.audience).toBe("public");
  });
});

describe("who may", () => {
  test("a change without X-Service-Client, or with one of 129 bytes, is 400; 128 bytes are fine", async () => {
    const { kap } = await me.create();
    const rename = (headers: Record<string, string>) => me.call("PATCH", `/kaps/${kap.id}`, { name: "N" }, headers);
    expect(codeOf(await rename({ "x-service-client": "" }))).toBe("400 CLIENT_HEADER_REQUIRED");
    expect(codeOf(await rename({ "x-service-client": "x".repeat(129) }))).toBe("400 CLIENT_HEADER_REQUIRED");
    expect((await rename({ "x-service-client": "x".repeat(128) })).status).toBe(200);
  });

  test("X-Service-Client is counted in bytes, and told as it was written", async () => {
    const { kap, version } = await me.create();
    const save = (client: string, base: string) =>
      me.call(
        "PUT",
        `/kaps/${kap.id}/files`,
        { base_version_id: base, files: [{ path: "main.ts", content: program }] },
        { "x-service-client": Buffer.from(client).toString("latin1") },
      );
    expect(codeOf(await save(`${"é".repeat(64)}x`, version.id))).toBe("400 CLIENT_HEADER_REQUIRED");
    const saved = (await save("é".repeat(64), version.id)).json<{ version: { client: string } }>();
    expect(saved.version.client).toBe("é".repeat(64));
  });

  test("the host of shares answers nothing of the API", async () => {
    const { kap } = await me.create();
    const path = `/v1/orgs/${me.org.slug}/kaps/${kap.id}`;
    for (const [host, status] of [
      ["api.localhost:8080", 200],
      [`${me.org.slug}.localhost:8080`, 200],
      ["share.localhost:8080", 404],
    ] as const) {
      expect([host, (await app.call({ host, path, headers: me.org.auth })).status]).toEqual([host, status]);
    }
  });

  test("no credential is 401, another organisation's kap is 404 by id and slug, and so is its organisation", async () => {
    const { kap } = await me.create();
    expect((await app.call({ path: `/v1/orgs/${me.org.slug}/kaps/${kap.id}` })).status).toBe(401);
    for (const name of [kap.id, kap.slug, "no-such-kap", "00000000-0000-7000-8000-000000000000", "a%00b"]) {
      expect(codeOf(await other.call("GET", `/kaps/${name}`))).toBe("404 KAP_NOT_FOUND");
    }
    expect((await app.call({ path: `/v1/orgs/${me.org.slug}/kaps`, headers: other.org.auth })).status).toBe(404);
  });

  test("an API key is 401 here", async () => {
    const key = await app.call({
      method: "POST",
      path: "/v1/auth/api-keys",
      headers: me.org.auth,
      body: { name: "k", scopes: ["read", "write"] },
    });
    const secret = /sk_live_[0-9A-Za-z]+/.exec(key.text)?.[0] ?? "";
    expect(secret).not.toBe("");
    expect((await app.call({ path: `/v1/orgs/${me.org.slug}/kaps`, headers: { "x-api-key": secret } })).status).toBe(401);
  });

  test("the cookie's changes need the Origin of the host", async () => {
    const { kap } = await me.create();
    const call = (origin: string) =>
      app.call({
        host: `${me.org.slug}.localhost:8080`,
        method: "PATCH",
        path: `/v1/orgs/${me.org.slug}/kaps/${kap.id}`,
        headers: { cookie: `kapstone_session=${me.org.token}`, origin, "x-service-client": "console" },
        body: { name: "By cookie" },
      });
    expect(codeOf(await call("http://evil.localhost:8080"))).toBe("403 ORIGIN_MISMATCH");
    expect((await call(`http://${me.org.slug}.localhost:8080`)).status).toBe(200);
  });
});

describe("a kap's life", () => {
  test("renaming changes the name alone", async () => {
    const { kap } = await me.create({ name: "Before" });
    const { kap: renamed } = (await me.call("PATCH", `/kaps/${kap.id}`, { name: "After" })).json<{ kap: KapBody }>();
    expect(renamed).toMatchObject({ name: "After", slug: kap.slug, address: kap.address });
  });

  test("deleting and recovering keeps versions, files and token states, and is in the history", async () => {
    const { kap, version } = await me.create();
    const second = (await me.save(kap.id, version.id, { "main.ts": "export default () => new Response('2');" })).json<{
      version: { id: string };
    }>();
    const extra = (await me.call("POST", `/kaps/${kap.id}/bypass-tokens`, { name: "gone" })).json<{ bypass_token: { id: string } }>();
    await me.call("DELETE", `/kaps/${kap.id}/bypass-tokens/${extra.bypass_token.id}`);
    const deleted = (await me.call("DELETE", `/kaps/${kap.id}`)).json<{ kap: KapBody }>().kap;
    expect(deleted.state).toBe("deleted");
    const days = (Date.parse(deleted.recover_until ?? "") - Date.parse(deleted.deleted_at ?? "")) / 86_400_000;
    expect(days).toBe(30);
    const ids = (answer: { json<T>(): T }): string[] => answer.json<{ kaps: KapBody[] }>().kaps.map((entry) => entry.id);
    expect(ids(await me.call("GET", "/kaps?limit=200"))).not.toContain(kap.id);
    expect(ids(await me.call("GET", "/recovery"))).toContain(kap.id);
    for (const [method, path, body] of [
      ["PATCH", "", { name: "X" }],
      ["PUT", "/files", { base_version_id: second.version.id, files: [{ path: "main.ts", content: program }] }],
      ["POST", "/disable", { reason: "x" }],
      ["POST", "/bypass-tokens", { name: "x" }],
      ["PUT", "/audience", { audience: "members", invited: [], base_revision: 1 }],
      ["PUT", "/secrets/A", { value: "x" }],
      ["DELETE", "", undefined],
    ] as const) {
      const answer = await me.call(method, `/kaps/${kap.id}${path}`, body);
      expect(`${method} ${path} ${codeOf(answer)}`).toBe(`${method} ${path} 410 KAP_DELETED`);
    }
    const back = (await me.call("POST", `/kaps/${kap.id}/recover`)).json<{ kap: KapBody }>().kap;
    expect(back).toMatchObject({ state: "active", deleted_at: null, recover_until: null, current_version_id: second.version.id });
    const { tokens } = (await me.call("GET", `/kaps/${kap.id}/bypass-tokens`)).json<{
      tokens: { name: string; revoked_at: string | null }[];
    }>();
    expect(tokens.map((token) => [token.name, token.revoked_at === null])).toEqual([
      ["default", true],
      ["gone", false],
    ]);
    const { events } = (await me.call("GET", `/kaps/${kap.id}/history`)).json<{
      events: { kind: string; client: string; actor: object }[];
    }>();
    expect(events.map((event) => event.kind)).toEqual(["created", "saved", "token.created", "token.revoked", "deleted", "recovered"]);
    for (const event of events) expect(event).toMatchObject({ client: "contract-test", actor: { kind: "member", id: me.org.memberId } });
    expect(codeOf(await me.call("POST", `/kaps/${kap.id}/recover`))).toBe("409 CONFLICT");
  });

  test("disabling needs a reason, tells who, when and why, and survives deletion", async () => {
    const { kap } = await me.create();
    expect(codeOf(await me.call("POST", `/kaps/${kap.id}/disable`, {}))).toBe("422 VALIDATION_FAILED");
    for (const reason of ["  ", "x".repeat(1_001), "a\0b", "half \ud800"])
      expect(codeOf(await me.call("POST", `/kaps/${kap.id}/disable`, { reason }))).toBe("422 VALIDATION_FAILED");
    const off = (await me.call("POST", `/kaps/${kap.id}/disable`, { reason: "leaks" })).json<{ kap: KapBody }>().kap;
    expect(off).toMatchObject({ state: "disabled", disabled: { by: { name: "Olga Owner" }, reason: "leaks", at: expect.any(String) } });
    const again = await me.call("POST", `/kaps/${kap.id}/disable`, { reason: "more" });
    expect(codeOf(again)).toBe("409 KAP_DISABLED");
    expect(again.text).toContain("leaks");
    await me.call("DELETE", `/kaps/${kap.id}`);
    expect((await me.call("POST", `/kaps/${kap.id}/recover`)).json<{ kap: KapBody }>().kap.state).toBe("disabled");
    const on = (await me.call("POST", `/kaps/${kap.id}/enable`)).json<{ kap: KapBody }>().kap;
    expect(on).toMatchObject({ state: "active", disabled: null });
    expect(codeOf(await me.call("POST", `/kaps/${kap.id}/enable`))).toBe("409 CONFLICT");
  });

  test("lists go page by page without loss", async () => {
    const fresh = await author(app);
    const made: string[] = [];
    for (let i = 0; i < 5; i++) made.push((await fresh.create({ name: `K${i}` })).kap.id);
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const page: { kaps: KapBody[]; next_cursor: string | null } = (
        await fresh.call("GET", `/kaps?limit=2${cursor === null ? "" : `&cursor=${cursor}`}`)
      ).json();
      expect(page.kaps.length).toBeLessThanOrEqual(2);
      seen.push(...page.kaps.map((kap) => kap.id));
      cursor = page.next_cursor;
    } while (cursor !== null);
    expect(seen).toEqual(made.reverse());
    for (const query of ["limit=0", "limit=201", "limit=x", "cursor=rubbish"]) {
      expect(codeOf(await fresh.call("GET", `/kaps?${query}`))).toBe("422 VALIDATION_FAILED");
    }
  });

  test("a viewer reads and does not change", async () => {
    const invitation = await app.call({
      method: "POST",
      path: "/v1/auth/invitations",
      headers: me.org.auth,
      body: { email: `viewer-${Date.now()}@example.com`, role: "viewer" },
    });
    const url = invitation.json<{ accept_url: string }>().accept_url;
    const token = new URL(url).searchParams.get("token") ?? url.split("/").at(-1);
    const accepted = await app.call({
      method: "POST",
      path: "/v1/auth/invitations/accept",
      body: { token, name: "Vera", password: "a long walk over seven hills" },
    });
    const session = accepted.json<{ session_token: string }>().session_token;
    const viewer = authorOf(app, { ...me.org, auth: { authorization: `Bearer ${session}` } });
    expect((await viewer.call("GET", "/kaps")).status).toBe(200);
    expect(codeOf(await viewer.call("POST", "/kaps", {}))).toBe("403 FORBIDDEN");
  });
});

test("two organisations never share a kap through the list", async () => {
  const lone = authorOf(app, await signUp(app));
  const { kap } = await lone.create();
  expect((await lone.call("GET", "/kaps")).json<{ kaps: KapBody[] }>().kaps.map((entry) => entry.id)).toEqual([kap.id]);
});
