import { createHash, randomBytes, randomUUID } from "node:crypto";
import type { CredentialKind } from "../../api/http/caller.ts";
import type { Answer } from "../harness/http.ts";
import { type Org, type ServiceApp, signUp } from "./auth-app.ts";

/** One credential of the matrix: how it is sent, and what the access table must be read for. */
export interface Holder {
  name: string;
  headers: Record<string, string>;
  /** Null: it does not hold at all (none, revoked, expired). */
  kind: CredentialKind | null;
  scopes: readonly string[];
  permissions: ReadonlySet<string>;
  mayOnlyEnrol: boolean;
  /** Of another organisation than the one whose things the paths name. */
  isForeign: boolean;
  /** Of the test organisation of that one: what the two share (members, roles, keys) is its own, everything else is not. */
  isOfTestOrg: boolean;
  /** Its own session, where it has one. */
  sessionId: string | null;
}

/** Everything that paths can name, of one organisation. */
export type Things = Record<string, string>;

async function made(answer: Promise<Answer>): Promise<Record<string, never>> {
  const settled = await answer;
  if (settled.status >= 300) throw new Error(`${settled.status}: ${settled.text}`);
  return settled.json<Record<string, never>>();
}

/** Makes one of everything in an organisation, over HTTP where there is a route for it. */
export async function makeThings(app: ServiceApp, org: Org): Promise<Things> {
  const send = (path: string, body: object, headers = {}): Promise<Answer> =>
    app.call({ method: "POST", path, headers: { ...org.auth, "x-service-client": "matrix", ...headers }, body });
  const post = async (path: string, body: object): Promise<string> => (await made(send(path, body))).id as unknown as string;
  const kaps = `/v1/orgs/${org.slug}/kaps`;
  const files = [{ path: "main.ts", content: "export default () => new Response('ok')" }];
  const created = (await made(send(kaps, { name: "Matrix", main_file: "main.ts", files }))) as unknown as {
    kap: { id: string };
    version: { id: string };
  };
  const kap = created.kap.id;
  const { db } = app.deps;
  const tokenOf = async (kind: string): Promise<string> => (await db("kap_tokens").where({ kap_id: kap, kind }).first("id")).id;
  await made(send(`${kaps}/${kap}/endpoint-secrets`, { name: "e" }));
  const store = (await made(
    send(`${kaps}/${kap}/store-tokens`, { name: "s", scopes: ["db.read", "db.write", "store.read", "store.write"], expires_in_hours: 1 }),
  )) as unknown as { token: string };
  await made(send(`/v1/orgs/${org.slug}/secret-groups`, { name: "Matrix" }));
  const group: string = (await db("secret_groups").where({ org_id: org.orgId }).first("id")).id;
  const trigger = await db("kap_triggers").where({ kap_id: kap, kind: "request" }).first("id");
  const run = randomUUID();
  await db("runs").insert({ id: run, kap_id: kap, org_id: org.orgId, trigger_id: trigger.id, trigger_kind: "schedule", status: "failed" });
  const runtimeToken = randomBytes(32).toString("base64url");
  await db("runtimes").insert({
    id: randomUUID(),
    kap_id: kap,
    state: "ready",
    token_digest: createHash("sha256").update(runtimeToken).digest(),
    claim_until: new Date(),
  });
  const agent = await post("/v1/agents", { name: "a" });
  const agentKey = (await made(send(`/v1/agents/${agent}/keys`, { label: "a" }))) as unknown as { id: string; key: string };
  const appToken = (await made(send(`/v1/orgs/${org.slug}/app-tokens`, { label: "a" }))) as unknown as { id: string; token: string };
  return {
    org: org.slug,
    kap,
    version: created.version.id,
    trigger: trigger.id,
    run,
    bypass: await tokenOf("bypass"),
    endpoint: await tokenOf("endpoint"),
    storeTokenId: await tokenOf("store"),
    storeToken: store.token,
    runtimeToken,
    group,
    apiKey: await post("/v1/auth/api-keys", { name: "k", scopes: ["read"] }),
    serviceToken: await post("/v1/auth/service-tokens", { name: "k", token_type: "ci", scopes: ["read"] }),
    role: await post("/v1/auth/roles", { name: `r-${randomUUID().slice(0, 8)}`, permissions: [] }),
    invitation: await post("/v1/auth/invitations", { email: `i-${randomUUID()}@example.com`, role: "viewer" }),
    workspace: await post("/v1/workspaces", { name: randomUUID() }),
    project: await post("/v1/projects", { name: randomUUID() }),
    member: org.memberId,
    agent,
    agentKeyId: agentKey.id,
    agentKey: agentKey.key,
    appTokenId: appToken.id,
    appToken: appToken.token,
  };
}

type Given = Partial<Omit<Holder, "name" | "headers">>;

/** Every kind of credential, with each right it can have, and each way in which it does not hold. */
export async function makeHolders(app: ServiceApp, org: Org, things: Things): Promise<Holder[]> {
  const holders: Holder[] = [];
  const add = (name: string, headers: Record<string, string>, given: Given): void => {
    holders.push({
      name,
      headers,
      kind: null,
      scopes: [],
      permissions: new Set(),
      mayOnlyEnrol: false,
      isForeign: false,
      isOfTestOrg: false,
      sessionId: null,
      ...given,
    });
  };
  const bearer = (token: string | undefined) => ({ authorization: `Bearer ${token}` });
  const send = (path: string, body: object, headers: Record<string, string>) => made(app.call({ method: "POST", path, headers, body }));
  const { db } = app.deps;
  const sessionIdOf = async (token: string): Promise<string> =>
    (
      await db("credentials")
        .where({ key_prefix: token.slice(0, 11) })
        .first("id")
    ).id;

  const addMember = async (name: string, token: string, isForeign = false): Promise<void> => {
    const me = (await app.call({ path: "/v1/me", headers: bearer(token) })).json<{ member: { permissions: string[] } }>();
    const given: Given = { permissions: new Set(me.member.permissions), isForeign, sessionId: await sessionIdOf(token) };
    add(`session of ${name}`, bearer(token), { ...given, kind: "session" });
    const jwt = (await send("/v1/auth/token", {}, bearer(token))) as unknown as { access_token: string };
    add(`JWT of ${name}`, bearer(jwt.access_token), { ...given, kind: "jwt" });
  };
  const join = async (role: string): Promise<string> => {
    const invited = (await send("/v1/auth/invitations", { email: `m-${randomUUID()}@example.com`, role }, org.auth)) as unknown as {
      accept_url: string;
    };
    const token = new URL(invited.accept_url).searchParams.get("token");
    return (
      (await send("/v1/auth/invitations/accept", { token, name: "M", password: "a hill of quiet oaks" }, {})) as unknown as {
        session_token: string;
      }
    ).session_token;
  };
  await addMember("the owner", org.token);
  for (const role of ["admin", "member", "viewer"]) await addMember(`a ${role}`, await join(role));
  const nothing = `r-${randomUUID().slice(0, 8)}`;
  await send("/v1/auth/roles", { name: nothing, permissions: [] }, org.auth);
  await addMember("a member without permissions", await join(nothing));

  const key = async (body: object): Promise<string> =>
    ((await send("/v1/auth/api-keys", { name: "k", ...body }, org.auth)) as unknown as { secret: string }).secret;
  for (const scope of ["read", "write", "admin"]) {
    for (const kind of ["live", "org"]) {
      add(`${kind} key with ${scope}`, { "x-api-key": await key({ kind, scopes: [scope] }) }, { kind: "api_key", scopes: [scope] });
    }
  }
  const every = ["read", "write", "admin"];
  add("live key with every scope", { "x-api-key": await key({ scopes: every }) }, { kind: "api_key", scopes: every });
  add(
    "test key with every scope",
    { "x-api-key": await key({ kind: "test", scopes: every }) },
    { kind: "api_key", scopes: every, isOfTestOrg: true },
  );
  for (const scopes of [["read"], every]) {
    const token = (await send("/v1/auth/service-tokens", { name: "s", token_type: "ci", scopes }, org.auth)) as unknown as {
      secret: string;
    };
    add(`service token with ${scopes.join(", ")}`, { "x-api-key": token.secret }, { kind: "service_token", scopes });
  }
  add("app token", bearer(things.appToken), { kind: "app_token", scopes: ["read", "write"] });
  add("agent key", { "x-api-key": things.agentKey as string }, { kind: "agent_key", scopes: ["read", "write"] });
  add("store token", bearer(things.storeToken), { kind: "store_token" });
  add("runtime", bearer(things.runtimeToken), { kind: "runtime" });

  const other = await signUp(app);
  await addMember("another organisation's owner", other.token, true);
  const foreign = (await send("/v1/auth/api-keys", { name: "k", scopes: every }, other.auth)) as unknown as { secret: string };
  add("another organisation's key", { "x-api-key": foreign.secret }, { kind: "api_key", scopes: every, isForeign: true });

  const strict = await signUp(app);
  await app.call({ method: "PATCH", path: "/v1/auth/settings", headers: strict.auth, body: { mfa: { mode: "enforced" } } });
  add("session that must enrol a second factor", strict.auth, {
    kind: "session",
    permissions: new Set(), // asked for before permissions are
    mayOnlyEnrol: true,
    isForeign: true,
    sessionId: await sessionIdOf(strict.token),
  });

  const expired = await key({ scopes: every });
  await db("credentials")
    .where({ key_prefix: expired.slice(0, 14) })
    .update({ expires_at: new Date(Date.now() - 1) });
  const revoked = await key({ scopes: every });
  await db("credentials")
    .where({ key_prefix: revoked.slice(0, 14) })
    .update({ revoked_at: new Date() });
  const ended = await signUp(app);
  const endedJwt = (await send("/v1/auth/token", {}, ended.auth)) as unknown as { access_token: string };
  await app.call({ method: "POST", path: "/v1/auth/logout", headers: ended.auth });
  const removed = await join("admin");
  await db("members")
    .whereIn(
      "id",
      db("credentials")
        .where({ key_prefix: removed.slice(0, 11) })
        .select("member_id"),
    )
    .update({ removed_at: new Date() });
  add("no credential", {}, {});
  add("expired key", { "x-api-key": expired }, {});
  add("revoked key", { "x-api-key": revoked }, {});
  add("ended session", ended.auth, {});
  add("JWT of an ended session", bearer(endedJwt.access_token), {});
  add("session of a removed member", bearer(removed), {});
  add("mistyped key", { "x-api-key": `${revoked.slice(0, -1)}~` }, {});
  add("bypass token", bearer("kbt_notacredentialofanyservice"), {});
  return holders;
}
