import { randomUUID } from "node:crypto";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { afterAll, describe, expect, test } from "vitest";
import { services } from "../../api/app.ts";
import { agentSubject, heraldSubject } from "../../api/services/agents/agent.ts";
import { authSweepJob } from "../../api/services/auth/sweep.ts";
import { until } from "../harness/wait.ts";
import { type Org, signUp, startServices } from "./auth-app.ts";

const app = await startServices(services);
afterAll(() => app.close());
const org = await signUp(app);
const other = await signUp(app);

const send = (method: "GET" | "POST" | "DELETE", path: string, headers: Record<string, string>, body?: unknown) =>
  app.call({ method, path, headers, ...(body === undefined ? {} : { body }) });

async function newAgent(as: Org = org): Promise<{ id: string; keyId: string; key: string }> {
  const { id } = (await send("POST", "/v1/agents", as.auth, { name: "Scribe" })).json<{ id: string }>();
  const made = await send("POST", `/v1/agents/${id}/keys`, as.auth, { label: "laptop" });
  if (made.status !== 201) throw new Error(made.text);
  const { id: keyId, key } = made.json<{ id: string; key: string }>();
  return { id, keyId, key };
}

/** An open event stream: what has come so far, and whether it has ended. */
interface Stream {
  status: number;
  text: string;
  ended: boolean;
  close(): void;
}

function openStream(agentId: string, key: string, lastEventId?: string): Promise<Stream> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      {
        port: app.port,
        path: `/v1/agents/${agentId}/stream`,
        headers: { host: "api.localhost:8080", "x-api-key": key, ...(lastEventId === undefined ? {} : { "last-event-id": lastEventId }) },
      },
      (response: IncomingMessage) => {
        const stream: Stream = { status: response.statusCode ?? 0, text: "", ended: false, close: () => request.destroy() };
        response.setEncoding("utf8");
        response.on("data", (chunk: string) => {
          stream.text += chunk;
        });
        response.on("end", () => {
          stream.ended = true;
        });
        response.on("error", () => undefined);
        resolve(stream);
      },
    );
    request.on("error", reject);
    request.end();
  });
}
const eventsOf = (stream: Stream) =>
  [...stream.text.matchAll(/id: (\d+)\nevent: (\S+)\ndata: (.*)\n\n/g)].map(([, id, event, data]) => ({
    id,
    event,
    data: JSON.parse(data as string) as { n: number },
  }));
const publish = (subject: string, n: number, kind = "message.received", orgId = org.orgId) =>
  app.deps.db.transaction((trx) => app.deps.events.publish(trx, { org_id: orgId, kind, subject, payload: { n } }));

describe("agents and their keys", () => {
  test("are made, listed, read and deleted; deleting ends the keys", async () => {
    const { id, key } = await newAgent();
    expect((await send("GET", `/v1/agents/${id}`, org.auth)).json()).toMatchObject({ id, name: "Scribe" });
    expect((await send("GET", "/v1/agents", org.auth)).text).toContain(id);
    const me = await send("GET", "/v1/me", { "x-api-key": key });
    expect(me.json()).toMatchObject({ credential: { kind: "agent_key", name: "laptop" }, agent: { id, name: "Scribe" }, member: null });
    const keys = await send("GET", `/v1/agents/${id}/keys`, org.auth);
    expect([keys.text.includes("ak_"), keys.text.includes(key)]).toEqual([true, false]);
    expect((await send("DELETE", `/v1/agents/${id}`, org.auth)).status).toBe(204);
    expect((await send("GET", `/v1/agents/${id}`, org.auth)).status).toBe(404);
    expect((await send("GET", "/v1/me", { "x-api-key": key })).status).toBe(401);
  });

  test("a key is revoked with 200, again 200; unknown, another agent's or another organisation's is 404", async () => {
    const [one, two] = [await newAgent(), await newAgent()];
    const path = `/v1/agents/${one.id}/keys/${one.keyId}`;
    expect((await send("DELETE", `/v1/agents/${two.id}/keys/${one.keyId}`, org.auth)).status).toBe(404);
    expect((await send("DELETE", path, other.auth)).status).toBe(404);
    expect((await send("DELETE", `/v1/agents/${one.id}/keys/${randomUUID()}`, org.auth)).status).toBe(404);
    expect((await send("DELETE", path, org.auth)).status).toBe(200);
    expect((await send("DELETE", path, org.auth)).status).toBe(200);
    expect((await send("GET", "/v1/me", { "x-api-key": one.key })).status).toBe(401);
    expect((await send("GET", `/v1/agents/${one.id}/keys`, other.auth)).status).toBe(404);
  });

  test("422 without a name or label", async () => {
    const { id } = await newAgent();
    expect((await send("POST", "/v1/agents", org.auth, {})).status).toBe(422);
    expect((await send("POST", "/v1/agents", org.auth, { name: "x".repeat(101) })).status).toBe(422);
    expect((await send("POST", `/v1/agents/${id}/keys`, org.auth, { label: "" })).status).toBe(422);
  });
});

describe("the stream", () => {
  test("carries the agent's own messages and the herald's, each with an id, and nobody else's", async () => {
    const agent = await newAgent();
    const stream = await openStream(agent.id, agent.key);
    expect(stream.status).toBe(200);
    await until(() => stream.text.includes(": connected"));
    await publish(agentSubject(agent.id), 1);
    await publish(agentSubject(randomUUID()), 2);
    await publish(heraldSubject, 3, "artifact.published");
    await publish(heraldSubject, 4, "artifact.published", other.orgId);
    await publish(agentSubject(agent.id), 5);
    await until(() => eventsOf(stream).length === 3);
    expect(eventsOf(stream).map(({ event, data }) => [event, data.n])).toEqual([
      ["message.received", 1],
      ["artifact.published", 3],
      ["message.received", 5],
    ]);
    const ids = eventsOf(stream).map(({ id }) => Number(id));
    expect(ids).toEqual([...ids].sort((a, b) => a - b));
    stream.close();
  });

  test("Last-Event-ID goes on with nothing missed or repeated, also over transactions that commit out of order", async () => {
    const agent = await newAgent();
    const subject = agentSubject(agent.id);
    const slow = await app.deps.db.transaction();
    await app.deps.events.publish(slow, { org_id: org.orgId, kind: "message.received", subject, payload: { n: 0 } });
    const seen: number[] = [];
    let last: string | undefined;
    let stream = await openStream(agent.id, agent.key);
    await until(() => stream.text.includes(": connected"));
    const take = (): void => {
      for (const { id, data } of eventsOf(stream)) {
        seen.push(data.n);
        last = id;
      }
      stream.close();
    };
    await publish(subject, 1);
    await until(() => eventsOf(stream).length === 1);
    take();
    for (let n = 2; n < 12; n++) await publish(subject, n);
    await slow.commit(); // written first, committed last
    stream = await openStream(agent.id, agent.key, last);
    await until(() => eventsOf(stream).length === 11);
    take();
    expect(seen[0]).toBe(1);
    expect([...seen].sort((a, b) => a - b)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
  });

  test.each([["not-a-number"], ["-1"], ["999999999999999"]])("the unreadable id %s gets an event: gap", async (id) => {
    const agent = await newAgent();
    const stream = await openStream(agent.id, agent.key, id);
    await until(() => stream.text.includes("event: gap"));
    stream.close();
  });

  test("an id older than what is kept gets an event: gap, then everything that is kept; an id at the edge misses nothing", async () => {
    const agent = await newAgent();
    const subject = agentSubject(agent.id);
    await publish(subject, 1);
    const gone = await app.deps.events.head();
    await app.deps.db("events").update({ created_at: app.deps.db.raw("now() - interval '25 hours'") });
    await publish(subject, 2);
    await app.deps.events.head();
    await authSweepJob(app.deps)["auth.sweep"]!({}, { id: "1", attempt: 1, signal: new AbortController().signal });
    const late = await openStream(agent.id, agent.key, String(gone - 1));
    await until(() => eventsOf(late).length === 2);
    expect(eventsOf(late).map(({ event, data }) => [event, data.n])).toEqual([
      ["gap", undefined],
      ["message.received", 2],
    ]);
    late.close();
    const edge = await openStream(agent.id, agent.key, String(gone));
    await until(() => eventsOf(edge).length === 1);
    expect(eventsOf(edge)[0]).toMatchObject({ event: "message.received", data: { n: 2 } });
    edge.close();
  });

  test("closes within a second of the key's revocation, and stays closed", async () => {
    const agent = await newAgent();
    const stream = await openStream(agent.id, agent.key);
    await until(() => stream.text.includes(": connected"));
    expect((await send("DELETE", `/v1/agents/${agent.id}/keys/${agent.keyId}`, org.auth)).status).toBe(200);
    const start = performance.now();
    await until(() => stream.ended);
    expect(performance.now() - start).toBeLessThan(5_000); // about half a second; a loaded machine is given more
    expect((await openStream(agent.id, agent.key)).status).toBe(401);
  });

  test("is for the agent's own key: another agent's is 404, every other kind 401", async () => {
    const [one, two] = [await newAgent(), await newAgent()];
    expect((await openStream(one.id, two.key)).status).toBe(404);
    const { secret } = (await send("POST", "/v1/auth/api-keys", org.auth, { name: "k", scopes: ["read"] })).json<{ secret: string }>();
    expect((await openStream(one.id, secret)).status).toBe(401);
    expect((await send("GET", `/v1/agents/${one.id}/stream`, org.auth)).status).toBe(401);
  });
});
