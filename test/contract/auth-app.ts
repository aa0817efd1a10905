import { randomBytes } from "node:crypto";
import type { Service } from "../../api/http/route.ts";
import { createTestDatabase, type TestDatabase } from "../harness/database.ts";
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
