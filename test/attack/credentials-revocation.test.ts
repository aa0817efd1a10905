import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { afterAll, beforeAll, expect, test } from "vitest";
import { services } from "../../api/app.ts";
import { deploymentKey, type Org, type ServiceApp, signUp, startServices } from "../contract/auth-app.ts";
import { type Answer, type HttpClient, openHttpClient } from "../harness/http.ts";

/**
 * What is revoked is dead on every replica at the next request: three API processes on one database, one of them killed and started again on the way.
 * 10,000 requests; KAPSTONE_REVOCATION_REQUESTS asks for more.
 */
const total = Number(process.env.KAPSTONE_REVOCATION_REQUESTS ?? 10_000);
const host = "api.localhost:8080";

interface Replica {
  process: ChildProcess;
  client: HttpClient;
}
let app: ServiceApp;
let org: Org;
const replicas: Replica[] = [];

async function startReplica(): Promise<Replica> {
  const child = fork(new URL("../contract/replica.child.ts", import.meta.url), {
    execArgv: ["--no-node-snapshot"],
    env: { ...process.env, REPLICA_DATABASE_URL: app.database.url, REPLICA_KEY: deploymentKey },
    stdio: ["ignore", "pipe", "inherit", "ipc"],
  });
  const [line] = (await once(child.stdout as NonNullable<typeof child.stdout>, "data")) as [Buffer];
  return { process: child, client: openHttpClient(`http://127.0.0.1:${Number(line.toString())}`, { connections: 12 }) };
}

async function killReplica(replica: Replica): Promise<void> {
  const exited = once(replica.process, "exit");
  replica.process.kill("SIGKILL");
  await exited;
  await replica.client.close();
}

beforeAll(async () => {
  app = await startServices(services);
  org = await signUp(app);
  replicas.push(...(await Promise.all([startReplica(), startReplica(), startReplica()])));
}, 120_000);
afterAll(async () => {
  await Promise.all(replicas.map(killReplica));
  await app.close();
});

const at = (index: number): Replica => replicas[index % replicas.length] as Replica;
const send = (
  index: number,
  method: "GET" | "POST" | "PATCH" | "DELETE",
  path: string,
  headers: Record<string, string>,
  body?: unknown,
): Promise<Answer> => at(index).client.call({ host, method, path, headers, ...(body === undefined ? {} : { body }) });
const ok = async (answer: Promise<Answer>): Promise<Record<string, string>> => {
  const settled = await answer;
  if (settled.status >= 300) throw new Error(`${settled.status}: ${settled.text}`);
  return settled.status === 204 ? {} : settled.json<Record<string, string>>();
};
const bearer = (token: string | undefined): Record<string, string> => ({ authorization: `Bearer ${token}` });

/** Something that is accepted everywhere until `revoke` has answered. */
interface Live {
  /** Each is asked for `path`; before the end all are 200. */
  credentials: Record<string, string>[];
  path: string;
  revoke(index: number): Promise<unknown>;
  refusal: 401 | 403;
}

async function joined(index: number, role: string): Promise<{ id: string; auth: Record<string, string>; jwt: Record<string, string> }> {
  const email = `m-${index}-${crypto.randomUUID()}@example.com`;
  const invited = await ok(send(index, "POST", "/v1/auth/invitations", org.auth, { email, role }));
  const token = new URL(invited.accept_url as string).searchParams.get("token");
  const login = await ok(send(index, "POST", "/v1/auth/invitations/accept", {}, { token, name: "M", password: "a hill of quiet oaks" }));
  const me = await ok(send(index, "GET", "/v1/me", bearer(login.session_token)));
  return { id: (me.member as unknown as { id: string }).id, auth: bearer(login.session_token), jwt: bearer(login.access_token) };
}
const newKey = (index: number) => ok(send(index, "POST", "/v1/auth/api-keys", org.auth, { name: "k", scopes: ["read"] }));

const ways: Record<string, (index: number) => Promise<Live>> = {
  "a deleted key": async (index) => {
    const { id, secret } = await newKey(index);
    return {
      credentials: [{ "x-api-key": secret as string }],
      path: "/v1/me",
      revoke: (by) => ok(send(by, "DELETE", `/v1/auth/api-keys/${id}`, org.auth)),
      refusal: 401,
    };
  },
  "a rotated key": async (index) => {
    const { id, secret } = await newKey(index);
    return {
      credentials: [{ "x-api-key": secret as string }],
      path: "/v1/agents",
      revoke: (by) => ok(send(by, "POST", `/v1/auth/api-keys/${id}/rotate`, org.auth, { overlap_hours: 0 })),
      refusal: 401,
    };
  },
  "a session that signed out, and its JWT": async (index) => {
    const { auth, jwt } = await joined(index, "member");
    return { credentials: [auth, jwt], path: "/v1/me", revoke: (by) => ok(send(by, "POST", "/v1/auth/logout", auth)), refusal: 401 };
  },
  "a member who was removed": async (index) => {
    const { id, auth, jwt } = await joined(index, "admin");
    return {
      credentials: [auth, jwt],
      path: "/v1/auth/members",
      revoke: (by) => ok(send(by, "DELETE", `/v1/auth/members/${id}`, org.auth)),
      refusal: 401,
    };
  },
  "a role that was changed": async (index) => {
    const { id, auth, jwt } = await joined(index, "admin");
    return {
      credentials: [auth, jwt],
      path: "/v1/auth/audit?limit=1",
      revoke: (by) => ok(send(by, "PATCH", `/v1/auth/members/${id}`, org.auth, { role: "viewer" })),
      refusal: 403,
    };
  },
  "a role that lost the permission": async (index) => {
    const name = `r-${crypto.randomUUID()}`;
    const role = await ok(send(index, "POST", "/v1/auth/roles", org.auth, { name, permissions: ["audit.read"] }));
    const { auth, jwt } = await joined(index, name);
    return {
      credentials: [auth, jwt],
      path: "/v1/auth/audit?limit=1",
      revoke: (by) => ok(send(by, "PATCH", `/v1/auth/roles/${role.id}`, org.auth, { permissions: [] })),
      refusal: 403,
    };
  },
};

const rounds = 5;
const perRound = Math.ceil(total / (Object.keys(ways).length * rounds));

test(`of ${total} requests after the answer of a revocation, spread over three processes, none is accepted`, async () => {
  const wrong: string[] = [];
  let sent = 0;
  for (const [name, make] of Object.entries(ways)) {
    for (let round = 0; round < rounds; round++) {
      const live = await make(round);
      for (let index = 0; index < replicas.length; index++) {
        for (const headers of live.credentials) expect([name, (await send(index, "GET", live.path, headers)).status]).toEqual([name, 200]);
      }
      // In one round of each way a process is killed while the others answer, and a fresh one takes its place.
      const isKilling = round === 2;
      const killed = isKilling ? at(round + 2) : null;
      await live.revoke(round);
      let left = perRound;
      const hammer = async (worker: number): Promise<void> => {
        for (let n = worker; left > 0; n++) {
          left -= 1;
          const replica = at(n);
          try {
            const { status } = await send(n, "GET", live.path, live.credentials[n % live.credentials.length] as Record<string, string>);
            sent += 1;
            if (status !== live.refusal) wrong.push(`${name}: ${status}`);
          } catch (error) {
            if (replica !== killed) throw error; // only the killed process may fail to answer
          }
        }
      };
      const restart = async (): Promise<void> => {
        if (!killed) return;
        await killReplica(killed);
        const index = replicas.indexOf(killed);
        replicas[index] = await startReplica();
        const { status } = await send(index, "GET", live.path, live.credentials[0] as Record<string, string>);
        if (status !== live.refusal) wrong.push(`${name} after a restart: ${status}`);
      };
      await Promise.all([...Array.from({ length: 12 }, (_, worker) => hammer(worker)), restart()]);
    }
  }
  expect(wrong).toEqual([]);
  expect(sent).toBeGreaterThan(total * 0.8);
}, 600_000);
