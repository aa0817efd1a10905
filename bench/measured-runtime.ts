import { generateKeyPairSync, randomUUID } from "node:crypto";
import { request as httpRequest } from "node:http";
import { runtimeNodeFlags, runtimeProgram } from "../local/runtime-program.ts";
import { createLogger } from "../platform/log.ts";
import type { PeerApi } from "../runtime/fixture/peer-api.ts";
import { bundleOf, defaultLimits, signAssignment, type UnsignedAssignment } from "../runtime/fixture/test-runtime.ts";
import { cores, end, freePort, startOn } from "./processes.ts";
import type { Peer } from "./runtime-peers.ts";

const log = createLogger("bench", { level: "warn" });

/** A runtime alone: supervisor and child on the measured core, claimed by a signed assignment as the api claims it. */
export interface MeasuredRuntime extends Peer {
  headers: Record<string, string>;
  /** Claims it for a built program, or one of a single module that has not been through the builder. Answers how long that took. */
  claim(program: string | BuiltProgram, changes?: Partial<UnsignedAssignment>): Promise<number>;
  /** A gauge of the supervisor, by its name without prefix. */
  gauge(name: string): Promise<number>;
  /** One GET of the program. */
  get(path: string): Promise<{ status: number; text: string }>;
}

const kapId = randomUUID();

/** Starts a generic runtime and waits until it is warm. `api` takes its reports; `egressAllow` (`host:port`) may be fetched although it is private. */
export async function startRuntime(api: PeerApi, egressAllow = ""): Promise<MeasuredRuntime> {
  const keys = generateKeyPairSync("ed25519");
  const { entry } = await runtimeProgram(log);
  const [data, control] = [await freePort(), await freePort()];
  const { process: child } = await startOn(cores.measured, [process.execPath, ...runtimeNodeFlags, entry], {
    KAPSTONE_RUNTIME_DATA: `tcp:127.0.0.1:${data}`,
    KAPSTONE_RUNTIME_CONTROL: `tcp:127.0.0.1:${control}`,
    KAPSTONE_CLAIM_PUBLIC_KEY: keys.publicKey.export({ format: "der", type: "spki" }).toString("base64"),
    KAPSTONE_LOG_LEVEL: "info",
    KAPSTONE_RUNTIME_EGRESS_ALLOW: egressAllow,
  });
  const headers = {
    host: "bench.kaps.localhost",
    "x-kapstone-kap": kapId,
    "x-kapstone-revision": "1",
    "x-kapstone-scheme": "http",
    "x-kap-caller": "anonymous",
  };
  return {
    name: "runtime",
    origin: `http://127.0.0.1:${data}`,
    pid: child.pid ?? 0,
    headers,
    async claim(program, changes = {}) {
      const token = signAssignment(
        { ...assignment(typeof program === "string" ? programOf(program) : program, api.url), ...changes },
        keys.privateKey,
      );
      const start = performance.now();
      const { status, text } = await send(control, "POST", "/claim", {}, token);
      if (status !== 200) throw new Error(`the claim was answered ${status}: ${text}`);
      return performance.now() - start;
    },
    async gauge(name) {
      const { text } = await send(control, "GET", "/metrics", {});
      return Number(new RegExp(`^kapstone_runtime_${name}\\{[^}]*\\} (\\S+)`, "m").exec(text)?.[1]);
    },
    get: (path) => send(data, "GET", path, headers),
    close: () => end(child),
  };
}

/** A program as the builder gives it. */
interface BuiltProgram {
  bundle: string;
  bundle_map: string | null;
  code_cache: Uint8Array | null;
}

function programOf(source: string): BuiltProgram {
  return { bundle: bundleOf({ "main.ts": source }), bundle_map: null, code_cache: null };
}

function assignment({ bundle, bundle_map, code_cache }: BuiltProgram, apiUrl: string): UnsignedAssignment {
  return {
    iat: Math.floor(Date.now() / 1000),
    exp: Math.floor(Date.now() / 1000) + 600,
    runtime_id: randomUUID(),
    kap_id: kapId,
    org_id: randomUUID(),
    slug: "bench",
    name: "Bench",
    address: "http://bench.kaps.localhost",
    revision: 1,
    version_id: randomUUID(),
    bundle,
    bundle_map,
    code_cache: Buffer.from(code_cache ?? []),
    triggers: [{ id: "request-trigger", kind: "request", file_path: "main.ts" }],
    secrets: {},
    database: { host: "127.0.0.1", port: 1, database: "none", user: "none", password: "none", schema: "none" },
    api: { url: apiUrl, token: "runtime-token" },
    limits: defaultLimits,
  };
}

function send(
  port: number,
  method: string,
  path: string,
  headers: Record<string, string>,
  body?: string | Buffer,
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const request = httpRequest({ host: "127.0.0.1", port, method, path, headers, agent: false }, (response) => {
      const pieces: Buffer[] = [];
      response.on("data", (piece: Buffer) => pieces.push(piece)).on("error", reject);
      response.on("end", () => resolve({ status: response.statusCode ?? 0, text: Buffer.concat(pieces).toString() }));
    });
    request.on("error", reject).end(body);
  });
}
