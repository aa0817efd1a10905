import { Agent, type IncomingHttpHeaders, request } from "node:http";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";

// What the client pod runs, alone, without the rest of the sources: does what lines of JSON on its input ask and answers each with a line.

export interface HttpAsk {
  op: "http";
  origin: string;
  method: string;
  path: string;
  headers: Record<string, string | string[]>;
  /** In base64. */
  body: string | null;
  timeoutMs: number;
}
export interface HttpReply {
  status: number;
  headers: IncomingHttpHeaders;
  body: string;
  ms: number;
}
/** One SMTP dialogue: each line is sent after the reply to the one before. */
export interface MailAsk {
  op: "mail";
  host: string;
  port: number;
  from: string;
  to: string;
  data: string;
}
export interface TouchAsk {
  op: "touch";
  host: string;
  port: number;
  timeoutMs: number;
}
/** Calls without a pause but `pauseMs`, by so many at a time, until `stop`. `{key}` in the path is a name of its own in each call. */
export interface LoadAsk {
  op: "load";
  origin: string;
  path: string;
  headers: Record<string, string>;
  callers: number;
  pauseMs: number;
  timeoutMs: number;
  isKeptAlive: boolean;
}
export interface StopAsk {
  op: "stop";
  load: number;
}
export type Ask = HttpAsk | MailAsk | TouchAsk | LoadAsk | StopAsk;

/** How one call of a load went; times by the pod's clock. `text` has the start of an answer that is not 200. */
export interface LoadCall {
  key: string;
  startedAt: number;
  ms: number;
  status: number | null;
  text: string;
}

const agents = { kept: new Agent({ keepAlive: true, maxSockets: 64 }), single: new Agent({ keepAlive: false, maxSockets: 64 }) };
const shownBytes = 300;

function http({ origin, method, path, headers, body, timeoutMs }: Omit<HttpAsk, "op">, agent: Agent): Promise<HttpReply> {
  const startedAt = performance.now();
  return new Promise((resolve, reject) => {
    const sent = request(`${origin}${path}`, { method, headers, agent, signal: AbortSignal.timeout(timeoutMs) }, async (response) => {
      try {
        const chunks: Buffer[] = [];
        for await (const chunk of response) chunks.push(chunk as Buffer);
        const bytes = Buffer.concat(chunks).toString("base64");
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: bytes, ms: performance.now() - startedAt });
      } catch (error) {
        reject(error);
      }
    });
    sent.on("error", reject);
    sent.end(body === null ? undefined : Buffer.from(body, "base64"));
  });
}

function touch({ host, port, timeoutMs }: TouchAsk): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const settle = (how: string): void => {
      socket.destroy();
      resolve(how);
    };
    socket.setTimeout(timeoutMs, () => settle("timeout"));
    socket.once("connect", () => settle("open"));
    socket.once("error", (error: NodeJS.ErrnoException) => settle(error.code ?? error.message));
  });
}

async function mail({ host, port, from, to, data }: MailAsk): Promise<string[]> {
  const socket = connect({ host, port });
  socket.setTimeout(30_000, () => socket.destroy(new Error("the mail server said nothing for 30 s")));
  const replies: string[] = [];
  const lines = ["EHLO client.test", `MAIL FROM:<${from}>`, `RCPT TO:<${to}>`, "DATA", `${data.replace(/\r?\n/g, "\r\n")}\r\n.`, "QUIT"];
  try {
    for await (const line of createInterface(socket)) {
      if (/^\d{3}-/.test(line)) continue;
      replies.push(line);
      const next = lines.shift();
      if (next === undefined || /^[45]/.test(line)) break;
      socket.write(`${next}\r\n`);
    }
  } finally {
    socket.destroy();
  }
  return replies;
}

interface Load {
  calls: LoadCall[];
  isOver: boolean;
  ended: Promise<unknown>;
}
const loads = new Map<number, Load>();

function startLoad(id: number, ask: LoadAsk): void {
  const load: Load = { calls: [], isOver: false, ended: Promise.resolve() };
  const caller = async (number: number): Promise<void> => {
    for (let n = 0; !load.isOver; n++) {
      const key = `${id}-${number}-${n}`;
      const startedAt = Date.now();
      const began = performance.now();
      const path = ask.path.replace("{key}", key);
      const { status, text } = await http(
        { origin: ask.origin, method: "POST", path, headers: ask.headers, body: null, timeoutMs: ask.timeoutMs },
        ask.isKeptAlive ? agents.kept : agents.single,
      ).then(
        (reply) => ({
          status: reply.status,
          text: reply.status === 200 ? "" : Buffer.from(reply.body, "base64").toString().slice(0, shownBytes),
        }),
        (error: NodeJS.ErrnoException) => ({ status: null, text: `${error.code ?? ""} ${error.message}` }),
      );
      load.calls.push({ key, startedAt, ms: performance.now() - began, status, text });
      await delay(ask.pauseMs);
    }
  };
  load.ended = Promise.all(Array.from({ length: ask.callers }, (_, number) => caller(number)));
  loads.set(id, load);
}

async function carryOut(id: number, ask: Ask): Promise<unknown> {
  switch (ask.op) {
    case "http":
      return await http(ask, agents.single);
    case "touch":
      return await touch(ask);
    case "mail":
      return await mail(ask);
    case "load":
      return startLoad(id, ask);
    case "stop": {
      const load = loads.get(ask.load);
      if (!load) throw new Error("there is no such load");
      load.isOver = true;
      await load.ended;
      loads.delete(ask.load);
      return load.calls;
    }
  }
}

const answer = (line: object): boolean => process.stdout.write(`${JSON.stringify(line)}\n`);
answer({ id: 0, value: "ready" });
for await (const line of createInterface(process.stdin)) {
  const { id, ask } = JSON.parse(line) as { id: number; ask: Ask };
  carryOut(id, ask).then(
    (value) => answer({ id, value }),
    (error: unknown) =>
      answer({ id, error: error instanceof Error ? `${(error as NodeJS.ErrnoException).code ?? ""} ${error.message}` : String(error) }),
  );
}
process.exit(0); // whoever asked is gone
