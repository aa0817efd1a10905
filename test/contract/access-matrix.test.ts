import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { services } from "../../api/app.ts";
import { credentialKinds, scopes } from "../../api/http/caller.ts";
import { permissionNames } from "../../api/http/permissions.ts";
import type { Route } from "../../api/http/route.ts";
import { testBuilder } from "../../api/services/kaps/build/test-builder.ts";
import { type Holder, makeHolders, makeThings, type Things } from "./access-fixtures.ts";
import { type ServiceApp, signUp, startServices } from "./auth-app.ts";

/**
 * Every credential on every route of the table. Each request declares a body of a terabyte: the kit refuses that right after it has decided who may
 * call (decided §2: 404, 403, 415, 413), so 413 or 415 means "admitted", and nothing is ever done.
 */
const table = services.flatMap((service) =>
  service.routes.map((route) => ({ service: service.name, route, name: `${route.method} ${route.path}` })),
);

let app: ServiceApp;
let things: Things;
let holders: Holder[];
const builder = testBuilder();

beforeAll(async () => {
  app = await startServices(services);
  app.deps.builder = builder;
  await builder.ready();
  const org = await signUp(app);
  things = await makeThings(app, org);
  holders = await makeHolders(app, org, things);
}, 120_000);
afterAll(async () => {
  await builder.close();
  await app.close();
});

/** What `{id}` means depends on where it stands. */
const idAfter: [RegExp, string][] = [
  [/^\/v1\/(?:orgs\/\{org_id\}\/)?kaps\//, "kap"],
  [/^\/v1\/auth\/api-keys\//, "apiKey"],
  [/^\/v1\/auth\/service-tokens\//, "serviceToken"],
  [/^\/v1\/auth\/members\//, "member"],
  [/^\/v1\/auth\/roles\//, "role"],
  [/^\/v1\/auth\/invitations\//, "invitation"],
  [/^\/v1\/orgs\/\{org_id\}\/app-tokens\//, "appTokenId"],
  [/^\/v1\/workspaces\//, "workspace"],
  [/^\/v1\/projects\//, "project"],
  [/^\/v1\/agents\//, "agent"],
];
const tokenAfter: [RegExp, string][] = [
  [/bypass-tokens/, "bypass"],
  [/endpoint-secrets/, "endpoint"],
  [/store-tokens/, "storeTokenId"],
];
const named: Record<string, string> = {
  org_id: "org",
  kap_id: "kap",
  app_id: "kap",
  version_id: "version",
  deployment_id: "version",
  trigger_id: "trigger",
  run_id: "run",
  group_id: "group",
  key_id: "agentKeyId",
  slug: "org",
};
/** Parameters that name nothing which must exist before rights are decided. */
const freeText: Record<string, string> = { name: "ANY_NAME", table: "anything", key: "1", image: "logo", digest: "0".repeat(64) };

/** The path with things of the organisation; the session of a path is the caller's own. Null when a parameter has no thing: see the last test. */
function pathOf(route: Route, holder: Holder): string | null {
  let isWhole = true;
  const path = route.path.replaceAll(/\{(\w+)\*?\}/g, (_, parameter: string) => {
    if (parameter === "id" && route.path.startsWith("/v1/auth/sessions/"))
      return holder.sessionId ?? "00000000-0000-7000-8000-000000000000";
    const rules = parameter === "id" ? idAfter : parameter === "token_id" ? tokenAfter : [];
    const thing = rules.find(([pattern]) => pattern.test(route.path))?.[1] ?? named[parameter];
    const value = (thing === undefined ? undefined : things[thing]) ?? freeText[parameter];
    if (value === undefined) isWhole = false;
    return value ?? "";
  });
  return isWhole ? path : null;
}

/** The status of a request that can do nothing, over a connection of its own. */
function probe(method: string, path: string, headers: Record<string, string>): Promise<number> {
  return new Promise((resolve, reject) => {
    const socket = connect(app.port, "127.0.0.1");
    let text = "";
    const lines = Object.entries({
      host: "api.localhost:8080",
      "content-type": "application/json",
      "content-length": String(2 ** 40),
      ...headers,
    });
    socket.setTimeout(30_000, () => socket.destroy(new Error(`${method} ${path} got no answer`)));
    socket.on("error", reject);
    socket.on("data", (chunk: Buffer) => {
      text += chunk.toString("latin1");
      const status = /^HTTP\/1\.1 (\d{3})/.exec(text)?.[1];
      if (status === undefined) return;
      resolve(Number(status));
      socket.destroy();
    });
    socket.on("close", () => reject(new Error(`${method} ${path} was closed without an answer`)));
    socket.write(`${method} ${path} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`);
  });
}

/** What the access table says: read anew here, not by the code that enforces it. */
function expected({ access, path }: Route, holder: Holder): 401 | 403 | 404 | "admitted" {
  if (access.open) return "admitted";
  if (holder.kind === null) return 401;
  const isKnownKind = access.kinds.includes(holder.kind);
  if (!isKnownKind && access.otherKinds === 401) return 401;
  const namesThings = path.includes("{") && !path.startsWith("/v1/auth/sessions/");
  const isShared = path.startsWith("/v1/auth/") || path.includes("/app-tokens");
  if (namesThings && (holder.isForeign || (holder.isOfTestOrg && !isShared))) return 404;
  if (path.startsWith("/v1/auth/sessions/") && path.includes("{") && holder.sessionId === null) return 404;
  // A store token or a runtime is of one kap; a runtime reaches its database without this route.
  if (holder.kind === "runtime" && path.includes("/db/")) return 403;
  if (!isKnownKind) return 403;
  if (holder.mayOnlyEnrol) return access.whileEnrolling ? "admitted" : 403;
  const isMember = holder.kind === "session" || holder.kind === "jwt";
  if (isMember) return access.permission === null || holder.permissions.has(access.permission) ? "admitted" : 403;
  return access.scope === null || holder.scopes.includes(access.scope) ? "admitted" : 403;
}

const meaning = (route: Route, status: number): number | "admitted" =>
  status === 413 || status === 415 || (route.access.open && status !== 401 && status !== 403) ? "admitted" : status;

test("every credential is admitted to every route exactly where the access table says, and another organisation's ids are 404", async () => {
  const differences: string[] = [];
  const seen = new Map<string, number>();
  for (const holder of holders) {
    const queue = [...table];
    const work = async (): Promise<void> => {
      for (let entry = queue.pop(); entry; entry = queue.pop()) {
        const path = pathOf(entry.route, holder);
        if (path === null) continue;
        const want = expected(entry.route, holder);
        const got = meaning(entry.route, await probe(entry.route.method, path, holder.headers));
        seen.set(String(got), (seen.get(String(got)) ?? 0) + 1);
        if (got !== want) differences.push(`${holder.name}: ${entry.name} answers ${got}, the table says ${want}`);
      }
    };
    await Promise.all(Array.from({ length: 6 }, work));
  }
  expect(differences).toEqual([]);
  for (const answer of ["admitted", "401", "403", "404"]) expect([answer, (seen.get(answer) ?? 0) > 100]).toEqual([answer, true]);
}, 300_000);

test("nothing was done by the requests of the matrix", async () => {
  const { db } = app.deps;
  expect(await db("credentials").where({ id: things.apiKey }).first("revoked_at")).toEqual({ revoked_at: null });
  expect(await db("kaps").where({ id: things.kap }).first("state")).toEqual({ state: "active" });
  expect(await db("invitations").where({ id: things.invitation }).first("revoked_at")).toEqual({ revoked_at: null });
});

describe("the table", () => {
  test.each(table.map(({ name, route }) => [name, route] as const))(
    "%s declares an access rule the platform knows",
    (_, { access, path }) => {
      if (access.open) {
        expect([access.kinds, access.scope, access.permission]).toEqual([[], null, null]);
        return;
      }
      expect(access.kinds.length).toBeGreaterThan(0);
      for (const kind of access.kinds) expect(credentialKinds).toContain(kind);
      if (access.permission !== null) expect(permissionNames).toContain(access.permission);
      if (access.scope !== null) expect(scopes).toContain(access.scope);
      const admitsKeys = access.kinds.some((kind) => kind === "api_key" || kind === "service_token");
      const isOwnIdentity = path === "/v1/me" || path === "/v1/whoami";
      if (admitsKeys && !isOwnIdentity) expect(access.scope).not.toBeNull(); // a key without a scope may nothing
    },
  );

  test("every parameter of every path has a thing to be tried with", () => {
    const missing = table.filter(({ route }) => !route.access.open && pathOf(route, holders[0] as Holder) === null).map(({ name }) => name);
    expect(missing).toEqual([]);
  });
});
