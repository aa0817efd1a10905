import { generateKeyPairSync, randomUUID } from "node:crypto";
import { afterAll, expect, test } from "vitest";
import { signAssignment, TestRuntime, until } from "./fixture/test-runtime.ts";

const hello = `exports.default = { fetch: () => new Response("hello") };`;
const runtime = await TestRuntime.start();
afterAll(() => runtime.close());

test("a generic runtime serves no kap and says so", async () => {
  const reply = await runtime.call("/");
  expect(reply.status).toBe(421);
  expect(reply.headers["x-kapstone-outcome"]).toBe("unassigned");
  expect(await runtime.state()).toMatchObject({ state: "generic", revision: null });
});

test("a claim is refused when its signature, header, time or boot do not hold", async () => {
  const assignment = { ...runtime.assignment(hello), revision: 1 };
  const other = generateKeyPairSync("ed25519").privateKey;
  const good = runtime.sign(assignment);
  const [head = "", payload = "", signature = ""] = good.subarray(0, good.indexOf("\n")).toString().split(".");
  const bytes = good.subarray(good.indexOf("\n") + 1);
  const changed = Buffer.concat([Buffer.from(`${head}.${payload}.${signature}\n`), Buffer.from(bytes).fill(0x20, 0, 1)]);
  const forged = Buffer.from(JSON.stringify({ ...assignment, kap_id: randomUUID() })).toString("base64url");
  for (const token of [
    signAssignment(assignment, other),
    Buffer.concat([Buffer.from(`${head}.${forged}.${signature}\n`), bytes]),
    changed,
    good.subarray(0, good.length - 1),
    signAssignment(assignment, runtime.keys.privateKey, { alg: "none", typ: "kap-assignment" }),
    signAssignment(assignment, runtime.keys.privateKey, { alg: "EdDSA", typ: "JWT" }),
    runtime.sign({ ...assignment, exp: Math.floor(Date.now() / 1000) - 1 }),
    runtime.sign({ ...assignment, boot_id: randomUUID() }),
    "nonsense",
  ])
    expect((await runtime.control("POST", "/claim", token)).status).toBe(401);
  expect((await runtime.state()).state).toBe("generic");
});

test("a claimed runtime answers, takes the same kap again, and never another kap", async () => {
  const assignment = runtime.assignment(hello);
  const claimed = await runtime.control("POST", "/claim", runtime.sign(assignment));
  expect(claimed.status).toBe(200);
  expect(JSON.parse(claimed.text)).toEqual({ boot_id: (await runtime.state()).boot_id, ms: expect.any(Number) });
  expect((await runtime.call("/")).text).toBe("hello");
  expect((await runtime.control("POST", "/claim", runtime.sign(assignment))).status).toBe(200);
  expect((await runtime.control("POST", "/claim", runtime.sign({ ...assignment, kap_id: randomUUID() }))).status).toBe(409);
  expect((await runtime.call("/")).text).toBe("hello");
});

test("a call or a release that is meant for another kap's runtime does not touch this one", async () => {
  for (const kap of [randomUUID(), ""]) {
    const reply = await runtime.call("/", { headers: { "x-kapstone-kap": kap } });
    expect(reply.status).toBe(421);
    expect(reply.headers["x-kapstone-outcome"]).toBe("unassigned");
  }
  const released = await runtime.control("POST", "/release", JSON.stringify({ drain_ms: 0, runtime_id: randomUUID() }));
  expect(released.status).toBe(409);
  expect((await runtime.call("/")).text).toBe("hello");
  expect(await runtime.state()).toMatchObject({ state: "assigned" });
});

test("a runtime whose claim nobody wrote down hears so and ends, though it is never called", async () => {
  const orphan = await TestRuntime.start();
  try {
    orphan.api.isDisowning = true;
    await orphan.claim(hello);
    expect(await orphan.exited).toBe(0);
  } finally {
    await orphan.close();
  }
});

test("an idle runtime that the api knows tells it that it lives, and stays", async () => {
  const idle = await TestRuntime.start();
  try {
    await idle.claim(hello);
    await until(() => idle.api.reports > 0, "a report of a runtime that has run nothing");
    expect(await idle.state()).toMatchObject({ state: "assigned" });
  } finally {
    await idle.close();
  }
});
