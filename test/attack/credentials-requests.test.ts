import { connect } from "node:net";
import { afterAll, describe, expect, test } from "vitest";
import { services } from "../../api/app.ts";
import { goodPassword, signUp, startServices } from "../contract/auth-app.ts";

/** Odd, doubled, forged and oversized requests against the routes of credentials: each is refused with its code, or has no effect at all. */
const app = await startServices(services);
afterAll(() => app.close());
const org = await signUp(app);
const other = await signUp(app);
const api = "api.localhost:8080";

/** Sends header lines as they are, which no client library would, and answers the status line's code and the rest. */
function raw(requestLine: string, headers: readonly string[], body = ""): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const socket = connect(app.port, "127.0.0.1");
    let text = "";
    socket.setTimeout(20_000, () => socket.destroy(new Error("no answer within 20 s")));
    socket.on("data", (chunk: Buffer) => {
      text += chunk.toString("latin1");
    });
    socket.on("error", reject);
    socket.on("close", () => resolve({ status: Number(text.split(" ", 2)[1]), text }));
    socket.write(Buffer.from([requestLine, "Connection: close", ...headers, "", body].join("\r\n"), "latin1"));
  });
}
const me = (...headers: string[]) => raw("GET /v1/me HTTP/1.1", [`Host: ${api}`, ...headers]);

describe("doubled headers", () => {
  test("two Authorization headers are 400, whichever comes first, and also when both are the same", async () => {
    const [a, b] = [`Authorization: Bearer ${org.token}`, `authorization: Bearer ${other.token}`];
    for (const pair of [
      [a, b],
      [b, a],
      [a, a],
    ])
      expect((await me(...pair)).status).toBe(400);
    expect((await me(a)).status).toBe(200);
  });

  test("two Host headers are 400", async () => {
    const headers = [`Host: ${org.slug}.localhost:8080`, `Host: ${other.slug}.localhost:8080`, `Authorization: Bearer ${org.token}`];
    expect((await raw("GET /v1/me HTTP/1.1", headers)).status).toBe(400);
  });

  test("two x-api-key headers are no key at all", async () => {
    const minted = await app.call({ method: "POST", path: "/v1/auth/api-keys", headers: org.auth, body: { name: "k", scopes: ["read"] } });
    const { secret } = minted.json<{ secret: string }>();
    expect((await me(`x-api-key: ${secret}`)).status).toBe(200);
    expect((await me(`x-api-key: ${secret}`, `x-api-key: ${secret}`)).status).toBe(401);
  });

  test("a length beside chunks is 400", async () => {
    const headers = [`Host: ${api}`, `Authorization: Bearer ${org.token}`, "Content-Length: 5", "Transfer-Encoding: chunked"];
    expect((await raw("POST /v1/agents HTTP/1.1", headers, "0\r\n\r\n")).status).toBe(400);
  });
});

describe("odd credentials", () => {
  test.each<[string, string]>([
    ["empty", ""],
    ["a scheme alone", "Bearer"],
    ["no scheme", org.token],
    ["a tab for the space", `Bearer\t${org.token}`],
    ["two words", `Bearer ${org.token} ${org.token}`],
    ["bytes that are no text", "Bearer \xff\xfe"],
    ["a secret with its last character changed", `Bearer ${org.token.slice(0, -1)}${org.token.endsWith("0") ? "1" : "0"}`],
    ["a secret of another alphabet", `Bearer kses_${"\xff".repeat(49)}`],
    ["15,000 characters", `Bearer ${"x".repeat(15_000)}`],
    ["15,000 dots", `Bearer ${".".repeat(15_000)}`],
    ["a JWT of nothing", "Bearer eyJhbGciOiJub25lIn0.e30."],
    ["what a runtime's token looks like", `Bearer ${"a".repeat(43)}`],
  ])("%s: 401", async (_, value) => {
    expect((await me(`Authorization: ${value}`)).status).toBe(401);
  });

  test("more header than a request may have is 431, and the next request is answered", async () => {
    expect((await me(`Authorization: Bearer ${"x".repeat(20_000)}`)).status).toBe(431);
    expect((await me(`Authorization: Bearer ${org.token}`)).status).toBe(200);
  });
});

describe("what a page of another site can do with the cookie", () => {
  const cookie = `kapstone_session=${org.token}`;
  test.each<[string, string | null]>([
    ["no Origin", null],
    ["an opaque one", "null"],
    ["another scheme", `https://${api}`],
    ["another port", "http://api.localhost:9999"],
    ["no port", "http://api.localhost"],
    ["a longer name", `http://${api}.evil.example`],
    ["the organisation's own host", `http://${org.slug}.localhost:8080`],
    ["a kap's host, which is the same site", "http://evil.kaps.localhost:8080"],
  ])("a change with %s is 403 ORIGIN_MISMATCH", async (_, origin) => {
    const headers = { cookie, ...(origin === null ? {} : { origin }), "x-http-method-override": "GET" };
    const answer = await app.call({ method: "POST", path: "/v1/agents", headers, body: { name: "forged" } });
    expect([answer.status, answer.json().error]).toEqual([403, expect.objectContaining({ code: "ORIGIN_MISMATCH" })]);
  });

  test("no answer allows another origin to read it", async () => {
    const answer = await app.call({ path: "/v1/me", headers: { cookie, origin: "http://evil.example" } });
    expect(Object.keys(answer.headers).filter((name) => name.startsWith("access-control-"))).toEqual([]);
  });

  test("a sign-in never goes on with a session that was there before", async () => {
    const login = (cookies: string) =>
      app.call({
        method: "POST",
        path: "/v1/auth/login",
        headers: { cookie: cookies },
        body: { email: org.email, password: org.password },
      });
    const planted = await login(`kapstone_session=${other.token}`);
    const { session_token } = planted.json<{ session_token: string }>();
    expect([org.token, other.token]).not.toContain(session_token);
    expect(planted.setCookies[0]).toContain(session_token);
  });
});

describe("forged ways in", () => {
  const forwarded = {
    "x-forwarded-for": "203.0.113.9",
    "x-real-ip": "203.0.113.9",
    "x-forwarded-host": "evil.example",
    "x-forwarded-proto": "https",
    forwarded: "for=203.0.113.9;host=evil.example;proto=https",
  };

  test("X-Forwarded-* of anybody changes neither the address in the audit nor a link nor the cookie", async () => {
    const body = { email: org.email, password: org.password };
    const login = await app.call({ method: "POST", path: "/v1/auth/login", headers: forwarded, body });
    expect(login.setCookies[0]).not.toContain("Secure");
    const audit = await app.call({ path: "/v1/auth/audit?action=session.created&limit=1", headers: org.auth });
    expect(audit.json<{ items: { address: string }[] }>().items[0]?.address).toBe("127.0.0.1");
    const invited = await app.call({
      method: "POST",
      path: "/v1/auth/invitations",
      headers: { ...org.auth, ...forwarded },
      body: { email: "new@example.com", role: "member" },
    });
    expect(invited.json<{ accept_url: string }>().accept_url).toMatch(`http://${org.slug}.localhost:8080/join?token=`);
  });

  test("an email of letters that fold to another's is 422, not that other's account", async () => {
    const kim = `kim@${org.slug}.example`;
    await signUp(app, { email: kim });
    for (const email of [kim.replace("k", "\u212a"), kim.replace("i", "\u0131"), kim.replace("@", "\uff20"), `${kim}\u0000`]) {
      for (const path of ["/v1/auth/login", "/v1/auth/password/forgot"]) {
        const body = { email, ...(path.endsWith("login") ? { password: goodPassword } : {}) };
        expect([email, (await app.call({ method: "POST", path, body })).status]).toEqual([email, 422]);
      }
    }
    expect(
      (await app.call({ method: "POST", path: "/v1/auth/login", body: { email: ` ${kim.toUpperCase()} `, password: goodPassword } }))
        .status,
    ).toBe(200);
  });

  test("cursors that only look like ones are 422", async () => {
    const lists = ["api-keys", "service-tokens", "members", "invitations", "sessions", "audit"].map((name) => `/v1/auth/${name}`);
    const paths = [...lists, "/v1/agents", "/v1/workspaces", "/v1/projects", `/v1/orgs/${org.slug}/app-tokens`];
    for (const path of paths) {
      for (const parts of ['["x"]', "[1e400]", "[7]", '["\\u0000"]', "[null]", "[[]]", "{}", "[]"]) {
        const answer = await app.call({ path: `${path}?cursor=${Buffer.from(parts).toString("base64url")}`, headers: org.auth });
        expect([path, parts, answer.status]).toEqual([path, parts, 422]);
      }
    }
  });

  test("bodies made to upset a parser are refused by name", async () => {
    const send = (body: string) =>
      app.call({ method: "POST", path: "/v1/agents", headers: { ...org.auth, "content-type": "application/json" }, body });
    const bodies = [
      '{"name":"x","__proto__":{"a":1}}',
      '{"name":"x","constructor":1}',
      "[".repeat(400_000) + "]".repeat(400_000),
      '{"name":"\\u0000"}',
    ];
    for (const body of bodies) expect((await send(body)).status).toBe(422);
    expect((await send(`{"name":${'{"a":'.repeat(100_000)}1${"}".repeat(100_001)}`)).status).toBe(422);
  });

  test("HEAD of a stream ends with its headers", async () => {
    const agent = await app.call({ method: "POST", path: "/v1/agents", headers: org.auth, body: { name: "Scribe" } });
    const { id } = agent.json<{ id: string }>();
    const minted = await app.call({ method: "POST", path: `/v1/agents/${id}/keys`, headers: org.auth, body: { label: "l" } });
    const headers = [`Host: ${api}`, `x-api-key: ${minted.json<{ key: string }>().key}`];
    const answer = await raw(`HEAD /v1/agents/${id}/stream HTTP/1.1`, headers);
    expect([answer.status, answer.text.includes("text/event-stream"), answer.text.endsWith("\r\n\r\n")]).toEqual([200, true, true]);
  });
});
