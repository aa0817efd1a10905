import { randomBytes, randomUUID } from "node:crypto";
import type { Service } from "../../api/http/route.ts";
import { createTestDatabase, type TestDatabase } from "../harness/database.ts";
import type { Answer } from "../harness/http.ts";
import { type ServedServices, serveServices } from "./service-app.ts";

/** Services over a database of a test file's own. */
export interface ServiceApp extends ServedServices {
  database: TestDatabase;
}

export const deploymentKey = randomBytes(32).toString("base64");

/** Starts services on a free port. `beside` shares another's database: a further replica. */
export async function startServices(
  services: readonly Service[],
  options: { env?: Record<string, string>; beside?: ServiceApp } = {},
): Promise<ServiceApp> {
  const database = options.beside?.database ?? (await createTestDatabase());
  const served = await serveServices(services, { databaseUrl: database.url, deploymentKey, env: options.env });
  return {
    ...served,
    database,
    async close() {
      await served.close();
      if (!options.beside) await database.close();
    },
  };
}

let counter = 0;

/** A new organisation with its owner signed in. */
export interface Org {
  slug: string;
  email: string;
  password: string;
  token: string;
  orgId: string;
  memberId: string;
  /** Headers of the owner's session. */
  auth: Record<string, string>;
}

export const goodPassword = "a long walk over seven hills";

/** Signs up an organisation over HTTP. */
export async function signUp(app: ServiceApp, wanted: { slug?: string; email?: string; password?: string } = {}): Promise<Org> {
  counter += 1;
  const suffix = `${counter}-${randomBytes(3).toString("hex")}`;
  const slug = wanted.slug ?? `org-${suffix}`;
  const email = wanted.email ?? `owner-${suffix}@example.com`;
  const password = wanted.password ?? goodPassword;
  const answer = await app.call({
    method: "POST",
    path: "/v1/auth/signup",
    body: { org_slug: slug, email, password, name: "Olga Owner" },
  });
  if (answer.status !== 201) throw new Error(`signup answered ${answer.status}: ${answer.text}`);
  const body = answer.json<{ session_token: string; org_id: string; member_id: string }>();
  return {
    slug,
    email,
    password,
    token: body.session_token,
    orgId: body.org_id,
    memberId: body.member_id,
    auth: { authorization: `Bearer ${body.session_token}` },
  };
}

/** One request with a JSON body, as these tests mostly send them. */
export const sender =
  (app: ServiceApp) =>
  (method: "GET" | "POST" | "PATCH" | "DELETE", path: string, headers: Record<string, string>, body?: unknown): Promise<Answer> =>
    app.call({ method, path, headers, ...(body === undefined ? {} : { body }) });

export interface Person {
  id: string;
  email: string;
  auth: Record<string, string>;
}

/** Makes people who were invited to an organisation with a role, and have accepted. `as` are the headers of who invites: its owner unless told. */
export const joiner =
  (app: ServiceApp) =>
  async (org: Org, role: string, as: Record<string, string> = org.auth): Promise<Person> => {
    const send = sender(app);
    const email = `m-${randomUUID()}@example.com`;
    const invited = await send("POST", "/v1/auth/invitations", as, { email, role });
    if (invited.status !== 201) throw new Error(invited.text);
    const token = new URL(invited.json<{ accept_url: string }>().accept_url).searchParams.get("token");
    const joined = await send("POST", "/v1/auth/invitations/accept", {}, { token, name: "Mia Member", password: "a hill of quiet oaks" });
    if (joined.status !== 200) throw new Error(joined.text);
    return { id: joined.json<{ member_id: string }>().member_id, email, auth: { authorization: `Bearer ${joined.json().session_token}` } };
  };

export interface Key {
  id: string;
  secret: string;
  key_prefix: string;
}

/** Mints an API key for an organisation's owner; with the right to read unless the body says otherwise. */
export async function mintKey(app: ServiceApp, org: Org, body: object = {}): Promise<Key> {
  const answer = await sender(app)("POST", "/v1/auth/api-keys", org.auth, { name: "k", scopes: ["read"], ...body });
  if (answer.status !== 201) throw new Error(answer.text);
  return answer.json<Key & Record<string, unknown>>();
}
