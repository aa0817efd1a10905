import { randomBytes } from "node:crypto";
import type { Answer, Call } from "./http.ts";
import type { TestPlatform } from "./platform.ts";

/** A kap a test made, with its machine token. */
export interface TestKap {
  id: string;
  slug: string;
  token: string;
  versionId: string;
  /** Calls the kap's own host with its token. */
  call(request?: Partial<Omit<Call, "host">>): Promise<Answer>;
  /** Saves another main file and answers the save. */
  save(content: string): Promise<Answer>;
}

/** An organisation with its owner signed in. */
export interface TestOrg {
  id: string;
  slug: string;
  session: string;
  /** Calls the organisation's host as its owner, with the client header that changes need. */
  call(request: Omit<Call, "host"> & { host?: string }): Promise<Answer>;
  createKap(files: string | Record<string, string>, fields?: Record<string, unknown>): Promise<TestKap>;
}

/** Signs up an organisation of a random name. */
export async function signUpOrg(test: Pick<TestPlatform, "http" | "host">): Promise<TestOrg> {
  const slug = `org-${randomBytes(5).toString("hex")}`;
  const answer = await test.http.call({
    host: test.host("api"),
    method: "POST",
    path: "/v1/auth/signup",
    body: { org_slug: slug, email: `owner@${slug}.example`, password: "correct horse battery staple", name: "Owner" },
  });
  if (answer.status !== 201) throw new Error(`signup answered ${answer.status}: ${answer.text}`);
  const { org_id, session_token } = answer.json<{ org_id: string; session_token: string }>();
  const call: TestOrg["call"] = ({ host, headers, ...request }) =>
    test.http.call({
      ...request,
      host: host ?? test.host(slug),
      headers: { authorization: `Bearer ${session_token}`, "x-service-client": "tests", ...headers },
    });
  return {
    id: org_id,
    slug,
    session: session_token,
    call,
    async createKap(files, fields = {}) {
      const set = typeof files === "string" ? { "main.ts": files } : files;
      const created = await call({
        method: "POST",
        path: `/v1/orgs/${org_id}/kaps`,
        body: {
          name: `Kap ${randomBytes(4).toString("hex")}`,
          main_file: Object.keys(set)[0],
          files: Object.entries(set).map(([path, content]) => ({ path, content })),
          ...fields,
        },
      });
      if (created.status !== 201) throw new Error(`creating a kap answered ${created.status}: ${created.text}`);
      const body = created.json<{ kap: { id: string; slug: string }; version: { id: string }; bypass_token: { token: string } | string }>();
      const token = typeof body.bypass_token === "string" ? body.bypass_token : body.bypass_token.token;
      let base = body.version.id;
      return {
        id: body.kap.id,
        slug: body.kap.slug,
        token,
        versionId: body.version.id,
        call: ({ headers, ...request } = {}) =>
          test.http.call({
            path: "/",
            ...request,
            host: test.host(`${body.kap.slug}.kaps`),
            headers: { authorization: `Bearer ${token}`, ...headers },
          }),
        async save(content) {
          const main = Object.keys(set)[0] as string;
          const saved = await call({
            method: "PUT",
            path: `/v1/orgs/${org_id}/kaps/${body.kap.id}/files`,
            body: {
              base_version_id: base,
              files: Object.entries({ ...set, [main]: content }).map(([path, text]) => ({ path, content: text })),
            },
          });
          if (saved.status === 200 || saved.status === 201) base = saved.json<{ version: { id: string } }>().version.id;
          return saved;
        },
      };
    },
  };
}
