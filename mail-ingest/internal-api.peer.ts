import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer, text } from "node:stream/consumers";
import type { Envelope, RecipientQuestion } from "./api-client.ts";

/** For tests: the API's side of the two mail routes, over real HTTP. What it "stores" it keeps in arrays. */
export interface ApiPeer {
  url: string;
  questions: RecipientQuestion[];
  stored: { envelope: Envelope; content: Buffer }[];
  /** Messages whose body broke off. */
  broken: number;
  /** Messages whose head has come. */
  begun: number;
  /** Answers to recipients by address: a refusal, a status without sense, or null for no answer at all. Others are kaps named by the local part. */
  recipients: Map<string, { code: number; message: string } | number | null>;
  /** Asked before a message's body is read, and again before it is stored: throws an answer to give instead. */
  beforeBody: () => Promise<void>;
  beforeStore: () => Promise<void>;
  close(): Promise<void>;
}

/** Thrown by the peer's hooks: the HTTP answer to give. */
export class PeerAnswer extends Error {
  readonly status: number;
  readonly body: string;
  constructor(status: number, body: object | string) {
    super();
    this.status = status;
    this.body = typeof body === "string" ? body : JSON.stringify(body);
  }
}

export async function openApiPeer(token: string, port = 0): Promise<ApiPeer> {
  const server = createServer((request, response) => {
    answer(peer, token, request).then(
      (body) => response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body)),
      (error: unknown) => {
        if (error instanceof PeerAnswer && error.status > 0) response.writeHead(error.status).end(error.body);
        else if (!(error instanceof PeerAnswer)) response.destroy();
      },
    );
  });
  await once(server.listen(port, "127.0.0.1"), "listening");
  const nothing = async () => undefined;
  const peer: ApiPeer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    questions: [],
    stored: [],
    broken: 0,
    begun: 0,
    recipients: new Map(),
    beforeBody: nothing,
    beforeStore: nothing,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return peer;
}

async function answer(peer: ApiPeer, token: string, request: IncomingMessage): Promise<unknown> {
  if (request.url === "/readyz") return { ready: true };
  if (request.headers.authorization !== `Bearer ${token}`) throw new PeerAnswer(401, { error: { code: "UNAUTHORIZED" } });
  if (request.method === "POST" && request.url === "/internal/mail/recipients") {
    const question = JSON.parse(await text(request)) as RecipientQuestion;
    peer.questions.push(question);
    const told = peer.recipients.get(question.address);
    if (told === null) throw new PeerAnswer(0, "");
    if (typeof told === "number") throw new PeerAnswer(told, "no JSON");
    return told ?? { kap_id: `kap-${question.address.split("@")[0]}` };
  }
  if (request.method !== "POST" || request.url !== "/internal/mail/messages") throw new PeerAnswer(404, {});
  peer.begun += 1;
  try {
    await peer.beforeBody();
    if (request.headers["content-type"] !== "message/rfc822") throw new PeerAnswer(415, {});
    const envelope = JSON.parse(Buffer.from(String(request.headers["x-kapstone-envelope"]), "base64url").toString()) as Envelope;
    const content = await buffer(request);
    await peer.beforeStore();
    peer.stored.push({ envelope, content });
    return { accepted: envelope.recipients.map((recipient) => recipient.kap_id) };
  } catch (error) {
    if (!(error instanceof PeerAnswer)) peer.broken += 1;
    throw error;
  }
}
