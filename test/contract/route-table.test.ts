import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { services } from "../../api/app.ts";
import type { EnvelopeName } from "../../api/http/envelopes.ts";
import { signUpOrg, type TestKap, type TestOrg } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";

/** The common rules (decided §2), held over every route of every service: a new route is under them the moment it is in the table. */
const table = services.flatMap((service) => service.routes.map((route) => ({ service, route, name: `${route.method} ${route.path}` })));
const paths = [...new Set(table.map(({ route }) => route.path))];

let platform: TestPlatform;
let org: TestOrg;
let kap: TestKap;

beforeAll(async () => {
  platform = await startTestPlatform();
  org = await signUpOrg(platform);
  kap = await org.createKap("export default () => new Response('ok')");
});
afterAll(() => platform.close());

/** A path of the owner's own things where the table's parameters can be filled in from one organisation and one kap, else null. */
function ownPath(path: string): string | null {
  const filled = path
    .replaceAll(/\{(org_id|org)\}/g, org.id)
    .replaceAll(/(\/kaps\/)\{(?:id|kap_id|kap)\}/g, `$1${kap.id}`)
    .replace("{table}", "anything");
  return filled.includes("{") ? null : filled;
}
const anyPath = (path: string): string => path.replaceAll(/\{(org_id|org)\}/g, org.id).replaceAll(/\{\w+\*?\}/g, randomUUID());

/** Of a body that has variants: the field that tells them apart, with the first one's value. */
function firstVariant(body: unknown): Record<string, unknown> {
  if (!(body instanceof z.ZodDiscriminatedUnion)) return {};
  const { discriminator, options } = body.def as unknown as { discriminator: string; options: [z.ZodObject] };
  return { [discriminator]: [...(options[0].shape[discriminator] as z.ZodLiteral).values][0] };
}

/** The code of a refusal in whatever envelope its service has. */
function codeOf(envelope: EnvelopeName, body: Record<string, unknown>): unknown {
  if (envelope === "flat") return typeof body.message === "string" ? body.error : undefined;
  if (envelope === "artifacts") return body.code;
  const error = body.error as { code?: unknown; message?: unknown } | undefined;
  return typeof error?.message === "string" ? error.code : undefined;
}

test("the table is not empty, no route is declared twice, and every route documents its answers and its access", () => {
  expect(table.length).toBeGreaterThan(60);
  expect(new Set(table.map(({ name }) => name)).size).toBe(table.length);
  for (const { route, name } of table) {
    expect(Object.keys(route.responses).length, name).toBeGreaterThan(0);
    expect(route.summary.length, name).toBeGreaterThan(5);
    expect(route.access, name).toBeDefined();
  }
});

test("a method a path does not have is 405 with Allow, in the service's envelope", async () => {
  for (const path of paths) {
    const has = table.filter(({ route }) => route.path === path);
    const answer = await org.call({ method: "PROPFIND", path: anyPath(path), host: platform.host("api") });
    expect(answer.status, path).toBe(405);
    expect(answer.headers.allow?.split(", "), path).toEqual(expect.arrayContaining(has.map(({ route }) => route.method)));
    expect(codeOf(has[0]!.service.envelope, answer.json()), path).toBe(
      has[0]!.service.envelope === "artifacts" ? 405 : "METHOD_NOT_ALLOWED",
    );
  }
});

test("every answer carries X-Request-Id: the caller's when it is a plain token, else a new one", async () => {
  for (const path of paths) {
    const kept = await platform.http.call({
      host: platform.host("api"),
      method: "PROPFIND",
      path: anyPath(path),
      headers: { "x-request-id": "my-id.1" },
    });
    expect(kept.headers["x-request-id"], path).toBe("my-id.1");
  }
  const replaced = await platform.http.call({
    host: platform.host("api"),
    path: "/v1/nowhere",
    headers: { "x-request-id": "not a token" },
  });
  expect(replaced.headers["x-request-id"]).toMatch(/^[0-9a-f-]{36}$/);
});

test("without a credential every route that is not open is 401 in the service's envelope, whatever the path names", async () => {
  for (const { service, route, name } of table.filter((entry) => !entry.route.access.open)) {
    const answer = await platform.http.call({ host: platform.host("api"), method: route.method, path: anyPath(route.path) });
    expect(answer.status, name).toBe(401);
    if (route.method !== "HEAD")
      expect(codeOf(service.envelope, answer.json()), name).toBe(service.envelope === "artifacts" ? 401 : "UNAUTHORIZED");
  }
});

test("two credentials of different kinds are 400", async () => {
  for (const { route, name } of table.filter((entry) => !entry.route.access.open)) {
    const answer = await org.call({
      host: platform.host("api"),
      method: route.method,
      path: anyPath(route.path),
      headers: { "x-api-key": "sk_live_x" },
    });
    expect(answer.status, name).toBe(400);
  }
});

test("an id that names nothing, and an organisation that is not the caller's, are 404", async () => {
  for (const { route, name } of table.filter((entry) => !entry.route.access.open && entry.route.path.includes("{"))) {
    const stranger = route.path.replaceAll(/\{\w+\*?\}/g, randomUUID());
    const answer = await org.call({ host: platform.host("api"), method: route.method, path: stranger });
    // Members are 403 or 401 only where the route is not for members at all.
    const forMembers = route.access.kinds.includes("session");
    expect(forMembers ? [404] : [401, 403, 404], `${name}: ${answer.text}`).toContain(answer.status);
  }
});

describe("bodies", () => {
  const withBody = table.filter(({ route }) => route.body !== undefined);
  const reachable = () =>
    withBody
      .map((entry) => ({ ...entry, path: ownPath(entry.route.path) }))
      .filter((entry): entry is typeof entry & { path: string } => entry.path !== null);
  const send = (entry: { route: (typeof withBody)[0]["route"]; path: string }, headers: Record<string, string>, body: unknown) =>
    org.call({ host: platform.host("api"), method: entry.route.method, path: entry.path, headers, body });

  test("a wrong content type is 415, malformed JSON 400, an array where fields are expected 422", async () => {
    expect(reachable().length).toBeGreaterThan(15);
    for (const entry of reachable()) {
      if (!entry.route.access.open && !entry.route.access.kinds.includes("session")) continue;
      expect((await send(entry, { "content-type": "text/plain" }, "{}")).status, entry.name).toBe(415);
      const malformed = await send(entry, { "content-type": "application/json" }, '{"a":');
      expect(malformed.status, entry.name).toBe(400);
      expect(codeOf(entry.service.envelope, malformed.json()), entry.name).toBe("BAD_REQUEST");
      expect((await send(entry, { "content-type": "application/json" }, "[]")).status, entry.name).toBe(422);
    }
  });

  test("an unknown field is 422 and named in details", async () => {
    for (const entry of reachable()) {
      if (!entry.route.access.open && !entry.route.access.kinds.includes("session")) continue;
      if (entry.route.path.includes("/rows")) continue; // its fields are the columns of a table
      const answer = await send(entry, {}, { ...firstVariant(entry.route.body), surely_not_a_field: 1 });
      expect(answer.status, entry.name).toBe(422);
      expect(answer.text, entry.name).toContain("surely_not_a_field");
    }
  });

  test("a body over the limit is 413, told by its length before it is read, and also when it says no length", async () => {
    for (const entry of reachable()) {
      if (!entry.route.access.open && !entry.route.access.kinds.includes("session")) continue;
      const limit = entry.route.bodyLimit ?? entry.service.bodyLimit ?? 10 * 1024 * 1024;
      if (limit > 2 * 1024 * 1024) continue; // the bound itself is tested where it is larger
      const answer = await send(entry, { "content-type": "application/json" }, Buffer.alloc(limit + 1, 32));
      expect(answer.status, entry.name).toBe(413);
    }
  });
});

test("the OpenAPI document describes every route with its access, and its page asks no outside address for anything", async () => {
  const document = (await platform.http.call({ host: platform.host("api"), path: "/v1/openapi.json" })).json<{
    paths: Record<string, Record<string, unknown>>;
  }>();
  for (const { route, name } of table) {
    const operation = document.paths[route.path.replaceAll("*}", "}")]?.[route.method.toLowerCase()] as
      | { "x-access"?: unknown }
      | undefined;
    expect(operation?.["x-access"], name).toBeDefined();
  }
  const page = await platform.http.call({ host: platform.host("api"), path: "/docs" });
  expect(page.status).toBe(200);
  expect(page.headers["content-security-policy"]).toContain("default-src 'self'");
  for (const match of page.text.matchAll(/(?:src|href)="([^"]+)"/g)) {
    expect(match[1]).toMatch(/^\//);
    expect((await platform.http.call({ host: platform.host("api"), path: match[1]! })).status, match[1]).toBe(200);
  }
});

test("unknown routes are 404 in the envelope of the service whose paths they resemble", async () => {
  for (const [path, envelope] of [
    ["/v1/auth/nowhere", "flat"],
    [`/v1/orgs/${randomUUID()}/kaps/x/y/z/w`, "kaps"],
    ["/nowhere", "nested"],
  ] as const) {
    const answer = await platform.http.call({ host: platform.host("api"), path });
    expect([answer.status, codeOf(envelope, answer.json())], path).toEqual([404, "NOT_FOUND"]);
  }
  expect((await platform.http.call({ host: "evil.example", path: "/v1/me" })).status).toBe(404);
});
