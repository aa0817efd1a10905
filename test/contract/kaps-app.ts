import { authService, identityService } from "../../api/services/auth/auth.ts";
import { testBuilder } from "../../api/services/kaps/build/test-builder.ts";
import { kapsService } from "../../api/services/kaps/service.ts";
import { secretsService } from "../../api/services/secrets/service.ts";
import type { Answer } from "../harness/http.ts";
import { type Org, type ServiceApp, signUp, startServices } from "./auth-app.ts";

/** The services of kaps over a real database, builder and object store, without runtimes. */
export async function startKapsApp(env: Record<string, string> = {}): Promise<ServiceApp> {
  const app = await startServices([authService, identityService, kapsService, secretsService], { env });
  const builder = testBuilder({ typeCheckMs: 30_000, compileMs: 60_000 }); // what a busy machine takes for small programs too
  app.deps.builder = builder;
  await builder.ready();
  return {
    ...app,
    async close() {
      await builder.close();
      await app.close();
    },
  };
}

export const program = "export default async () => new Response('hello');";

export interface KapBody {
  id: string;
  slug: string;
  name: string;
  org_id: string;
  address: string;
  mail_address: string;
  audience: string;
  state: string;
  disabled: { by: { name: string }; at: string; reason: string } | null;
  current_version_id: string;
  created_by: { kind: string; id: string; name: string };
  deleted_at: string | null;
  recover_until: string | null;
}

export interface VersionBody {
  id: string;
  kap_id: string;
  sequence: number;
  main_file: string;
  files: { path: string; size: number; sha256: string; content?: string }[];
  bundle_sha256: string;
  restored_from: string | null;
  client: string | null;
}

export interface Created {
  kap: KapBody;
  version: VersionBody;
  address: string;
  bypass_token: string;
  diagnostics: unknown[];
}

/** A member of one organisation with the routes of kaps at hand. */
export interface Author {
  org: Org;
  /** A call below `/v1/orgs/{org}`, with the session and the client header. */
  call(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  create(body?: Record<string, unknown>): Promise<Created>;
  save(kap: string, base: string, files: Record<string, string>, more?: Record<string, unknown>, query?: string): Promise<Answer>;
}

export async function author(app: ServiceApp): Promise<Author> {
  const org = await signUp(app);
  return authorOf(app, org);
}

export function authorOf(app: ServiceApp, org: Org): Author {
  const call: Author["call"] = (method, path, body, headers = {}) =>
    app.call({
      method,
      path: `/v1/orgs/${org.slug}${path}`,
      headers: { ...org.auth, "x-service-client": "contract-test", ...headers },
      ...(body === undefined ? {} : { body }),
    });
  return {
    org,
    call,
    async create(body = {}) {
      const answer = await call("POST", "/kaps", {
        name: "Hello",
        main_file: "main.ts",
        files: [{ path: "main.ts", content: program }],
        ...body,
      });
      if (answer.status !== 201) throw new Error(`create answered ${answer.status}: ${answer.text}`);
      return answer.json<Created>();
    },
    save: (kap, base, files, more = {}, query = "") =>
      call("PUT", `/kaps/${kap}/files${query}`, { base_version_id: base, files: filesOf(files), ...more }),
  };
}

export function filesOf(files: Record<string, string>): { path: string; content: string }[] {
  return Object.entries(files).map(([path, content]) => ({ path, content }));
}

/** The error's code, for expectations that read well. */
export function codeOf(answer: Answer): string {
  return `${answer.status} ${answer.json<{ error: { code: string } }>().error.code}`;
}
