import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { signUpOrg, type TestKap, type TestOrg } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";
import { until } from "../harness/wait.ts";
import { supervisorAt } from "./processes.ts";
import { attackSecrets } from "./programs/log.ts";

/** What the tests read of a run record (decided §7.3). */
export interface RunRecord {
  id: string;
  status: string;
  outcome: string | null;
  detail: string | null;
  http_status: number | null;
  cpu_ms: number | null;
}

interface LogLine {
  run_id: string;
  level: string;
  text: string;
}

/** A loopback server that counts who came. */
export interface LocalServer {
  /** How many asked for `/held` and wait for their answer. */
  held(): number;
  /** Answers those, and from then on everybody who asks for `/held`. */
  letGo(): void;
  port: number;
  hits(): number;
  requests: { url: string; headers: IncomingMessage["headers"] }[];
  close(): Promise<void>;
}

/** Where attacks happen: a platform, an organisation with an attacked kap and a neighbour, and two servers of the host. */
export interface Ground {
  test: TestPlatform;
  org: TestOrg;
  /** The kap that is given one hostile program after the other. */
  subject: TestKap;
  /** A kap of the same organisation that answers `beat` and has a table with a row. */
  neighbour: TestKap;
  neighbourSchema: string;
  limits: { cpuMs: number; wallMs: number };
  /** Refused to every kap; a hit is a hole. */
  canary: LocalServer;
  /** Allowed to kaps by the deployment's setting, as a public server would be. */
  outside: LocalServer;
  runs(kap: TestKap, limit?: number): Promise<RunRecord[]>;
  run(kap: TestKap, id: string): Promise<RunRecord>;
  /** The run once it has ended. */
  ended(kap: TestKap, id: string): Promise<RunRecord>;
  lines(kap: TestKap, runId: string): Promise<{ level: string; text: string }[]>;
  /** The process id of the supervisor that serves a kap. */
  supervisorOf(kap: TestKap): Promise<number>;
  close(): Promise<void>;
}

const neighbourProgram = `import { db, secrets } from "kap";
export default async (request) => {
  if (new URL(request.url).pathname === "/table") {
    await db.query("create table neighbour_table (text text)");
    await db.query("insert into neighbour_table values ('neighbour_row')");
    return Response.json((await db.query("select current_schema() as schema")).rows[0]);
  }
  return new Response("beat");
};`;

/** Prepares it; `settings` are environment variables of the platform. */
export async function prepareGround(settings: Record<string, string> = {}): Promise<Ground> {
  const canary = await listen((_request, response) => response.end("the inside of the host"));
  const outside = await listen(answerOutside(() => canary.port));
  const test = await startTestPlatform({ KAPSTONE_RUNTIME_EGRESS_ALLOW: `127.0.0.1:${outside.port}`, ...settings });
  const org = await signUpOrg(test);
  const subject = await org.createKap("export default () => new Response('harmless')");
  for (const [name, value] of Object.entries(attackSecrets)) {
    const set = await org.call({ method: "PUT", path: `/v1/orgs/${org.id}/kaps/${subject.id}/secrets/${name}`, body: { value } });
    if (set.status !== 200) throw new Error(`setting a secret answered ${set.status}: ${set.text}`);
  }
  const neighbour = await org.createKap(neighbourProgram);
  const { schema } = (await neighbour.call({ path: "/table" })).json<{ schema: string }>();
  await subject.call();
  const path = (kap: TestKap): string => `/v1/orgs/${org.id}/kaps/${kap.id}`;
  const supervisors = new Map<string, number>();
  const logs = new Map<string, { after: string; lines: LogLine[] }>();
  const ground: Ground = {
    test,
    org,
    subject,
    neighbour,
    neighbourSchema: schema,
    limits: { cpuMs: test.platform.api.deps.config.requestCpuMs, wallMs: test.platform.api.deps.config.requestWallMs },
    canary,
    outside,
    async runs(kap, limit = 20) {
      return (await org.call({ path: `${path(kap)}/runs?limit=${limit}` })).json<{ runs: RunRecord[] }>().runs;
    },
    async run(kap, id) {
      const found = (await ground.runs(kap, 100)).find((entry) => entry.id === id);
      if (!found) throw new Error(`the run ${id} is not listed`);
      return found;
    },
    ended: (kap, id) =>
      until(async () => {
        const found = await ground.run(kap, id);
        return found.outcome !== null && found;
      }),
    async lines(kap, runId) {
      const log = logs.get(kap.id) ?? { after: "", lines: [] };
      logs.set(kap.id, log);
      for (let hasMore = true; hasMore; ) {
        const page = (await org.call({ path: `${path(kap)}/log?limit=200${log.after}` })).json<{
          lines: LogLine[];
          next_cursor: string;
          has_more: boolean;
        }>();
        log.lines.push(...page.lines);
        log.after = `&after=${encodeURIComponent(page.next_cursor)}`;
        hasMore = page.has_more;
      }
      return log.lines.filter((line) => line.run_id === runId);
    },
    async supervisorOf(kap) {
      const { rows } = await test.database.postgres.hot.query<{ control_address: string }>(
        "select control_address from runtimes where kap_id = $1 and state = 'ready' order by slot limit 1",
        [kap.id],
      );
      const address = rows[0]?.control_address ?? "none";
      const pid = supervisors.get(address) ?? supervisorAt(address);
      supervisors.set(address, pid);
      return pid;
    },
    async close() {
      await test.close();
      await Promise.all([canary.close(), outside.close()]);
    },
  };
  return ground;
}

async function listen(answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<LocalServer> {
  const requests: LocalServer["requests"] = [];
  const waiting: ServerResponse[] = [];
  let isHolding = true;
  const server: Server = createServer((request, response) => {
    requests.push({ url: request.url ?? "", headers: request.headers });
    if (request.url === "/held" && isHolding) waiting.push(response);
    else answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    held: () => waiting.length,
    letGo() {
      isHolding = false;
      for (const response of waiting.splice(0)) response.end("held");
    },
    hits: () => requests.length,
    requests,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** A server on the internet, as hostile as one may be. */
function answerOutside(canaryPort: () => number): (request: IncomingMessage, response: ServerResponse) => void {
  const chunk = Buffer.alloc(64 * 1024, "x");
  return (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? "/", "http://outside");
    request.resume();
    if (pathname === "/redirect")
      response.writeHead(302, { location: searchParams.get("to") ?? `http://127.0.0.1:${canaryPort()}/` }).end();
    else if (pathname === "/bytes") {
      let left = Number(searchParams.get("count"));
      if (searchParams.has("announced")) response.setHeader("content-length", left);
      const write = (): void => {
        while (left > 0 && !response.destroyed) {
          const size = Math.min(left, chunk.length);
          left -= size;
          if (!response.write(chunk.subarray(0, size))) return void response.once("drain", write);
        }
        response.end();
      };
      write();
    } else if (pathname === "/silence") request.socket.on("close", () => response.destroy());
    else if (pathname === "/headers") response.writeHead(200, { "x-large": "x".repeat(200_000) }).end("large");
    else if (pathname === "/swallow") request.on("end", () => response.end("swallowed"));
    else response.end("outside");
  };
}
