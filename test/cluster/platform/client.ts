import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { type HttpClient, readAnswer, writeBody } from "../../harness/http.ts";
import { images } from "../images.ts";
import { kubectl, kubectlApply } from "../namespace.ts";
import type { Ask, HttpReply, LoadAsk, LoadCall, MailAsk } from "./client-agent.ts";

/** A load under way in the client pod. */
export interface Load {
  /** Lets what is under way end and tells of every call. */
  stop(): Promise<LoadCall[]>;
}

/** A client inside the cluster: a pod that no kill and no policy of the release concerns. */
export interface ClusterClient {
  /** To the API's Service; each call on a connection of its own. */
  http: HttpClient;
  /** Like `http.call`, with the time that the pod measured. */
  time(call: Parameters<HttpClient["call"]>[0]): Promise<{ status: number; text: string; ms: number }>;
  startLoad(load: Omit<LoadAsk, "op" | "origin">): Promise<Load>;
  /** Sends a mail; answers the server's replies, one a line. */
  mail(mail: Omit<MailAsk, "op">): Promise<string[]>;
  /** Whether something listens there: `open`, `timeout` or an error's code. */
  touch(host: string, port: number, timeoutMs?: number): Promise<string>;
  close(): Promise<void>;
}

export const clientPod = "test-client";
/** Where the pod itself listens, for those who must not reach it. */
export const clientPort = 8099;
const callMs = 120_000;

/** Makes the client pod of a namespace, once, and opens a way to it. `origin` is where its calls go. */
export async function openClusterClient(namespace: string, origin: string): Promise<ClusterClient> {
  await makePod(namespace);
  const child = spawn("kubectl", ["-n", namespace, "exec", "-i", clientPod, "--", "node", "/client/agent.mts"], {
    stdio: ["pipe", "pipe", "inherit"],
    // Over WebSockets a heartbeat that a loaded machine delays breaks the stream for good, without ending it.
    env: { ...process.env, KUBECTL_REMOTE_COMMAND_WEBSOCKETS: "false" },
  });
  const { ask, isReady } = speak(child);
  await isReady;
  const send = (call: Parameters<HttpClient["call"]>[0]): Promise<HttpReply> => {
    const { body, type } = writeBody(call.body);
    return ask<HttpReply>({
      op: "http",
      origin,
      method: call.method ?? "GET",
      path: call.path,
      headers: { ...type, ...call.headers, host: call.host },
      body: body === null ? null : Buffer.from(body).toString("base64"),
      timeoutMs: call.timeoutMs ?? 60_000,
    });
  };
  return {
    http: {
      async call(request) {
        const { status, headers, body } = await send(request);
        return readAnswer(request, status, headers, Buffer.from(body, "base64"));
      },
      async close() {},
    },
    async time(request) {
      const { status, body, ms } = await send(request);
      return { status, text: Buffer.from(body, "base64").toString(), ms };
    },
    async startLoad(load) {
      const started = ask<unknown>({ op: "load", origin, ...load });
      const id = started.id;
      await started;
      return { stop: () => ask<LoadCall[]>({ op: "stop", load: id }) };
    },
    mail: (mail) => ask({ op: "mail", ...mail }),
    touch: (host, port, timeoutMs = 3_000) => ask({ op: "touch", host, port, timeoutMs }),
    async close() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, "exit");
      child.stdin?.end();
      await ended;
    },
  };
}

interface Asked<T> extends Promise<T> {
  id: number;
}

/** Asks over a process's input and output, any number at a time. */
function speak(child: ChildProcess): { ask<T>(ask: Ask): Asked<T>; isReady: Promise<unknown> } {
  const waiting = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  let last = 0;
  const wait = (id: number): Promise<unknown> =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`the client pod did not answer within ${callMs} ms`)), callMs);
      const settle = (): void => {
        clearTimeout(timer);
        waiting.delete(id);
      };
      waiting.set(id, {
        resolve(value) {
          settle();
          resolve(value);
        },
        reject(error) {
          settle();
          reject(error);
        },
      });
    });
  const isReady = wait(0);
  child.once("exit", (code) => {
    for (const { reject } of [...waiting.values()]) reject(new Error(`the way to the client pod ended with ${code}`));
  });
  createInterface(child.stdout as NodeJS.ReadableStream).on("line", (line) => {
    const { id, value, error } = JSON.parse(line) as { id: number; value?: unknown; error?: string };
    if (error === undefined) waiting.get(id)?.resolve(value);
    else waiting.get(id)?.reject(new Error(error));
  });
  return {
    isReady,
    ask<T>(ask: Ask): Asked<T> {
      const id = ++last;
      const answered = wait(id) as Promise<T>;
      child.stdin?.write(`${JSON.stringify({ id, ask })}\n`);
      return Object.assign(answered, { id });
    },
  };
}

async function makePod(namespace: string): Promise<void> {
  const agent = await readFile(new URL("./client-agent.ts", import.meta.url), "utf8");
  const config = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: clientPod }, data: { "agent.mts": agent } };
  const pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: clientPod },
    spec: {
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      terminationGracePeriodSeconds: 0,
      securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: "RuntimeDefault" } },
      containers: [
        {
          name: "client",
          image: images.of("operator"), // any image with Node
          command: [
            "node",
            "-e",
            `require("node:http").createServer((_, answer) => answer.end()).listen(${clientPort}); process.on("SIGTERM", () => process.exit())`,
          ],
          securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } },
          volumeMounts: [{ name: "agent", mountPath: "/client", readOnly: true }],
        },
      ],
      volumes: [{ name: "agent", configMap: { name: clientPod } }],
    },
  };
  await kubectlApply(JSON.stringify({ apiVersion: "v1", kind: "List", items: [config, pod] }), "-n", namespace);
  await kubectl("-n", namespace, "wait", "--for=condition=Ready", `pod/${clientPod}`, "--timeout=80s");
}
