import { afterAll, beforeAll, expect, test } from "vitest";
import { control } from "../../api/gateway/runtime-client.ts";
import { purgeKap } from "../../api/services/kaps/purge.ts";
import { signUpOrg, type TestKap, type TestOrg } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";
import { until } from "../harness/wait.ts";

let platform: TestPlatform;
let org: TestOrg;

beforeAll(async () => {
  platform = await startTestPlatform({ KAPSTONE_WARM_RUNTIMES: "2" });
  org = await signUpOrg(platform);
});
afterAll(() => platform.close());

const base = (kap: TestKap): string => `/v1/orgs/${org.id}/kaps/${kap.id}`;
const telling = (word: string): string => `
import { secrets } from "kap";
export default () => Response.json({ word: ${JSON.stringify(word)}, secret: secrets.get("WORD") ?? null });`;
const says = async (kap: TestKap): Promise<unknown> => (await kap.call({ path: "/" })).json();

test("the first request after a save runs the new version, every time; after a restore the old one", async () => {
  const kap = await org.createKap(telling("1"));
  let current = (await org.call({ path: base(kap) })).json<{ version: { id: string } }>().version.id;
  const first = current;
  expect(await says(kap)).toMatchObject({ word: "1" });
  for (const word of ["2", "3", "4"]) {
    const saved = await org.call({
      method: "PUT",
      path: `${base(kap)}/files`,
      body: { base_version_id: current, main_file: "main.ts", files: [{ path: "main.ts", content: telling(word) }] },
    });
    expect(saved.status, saved.text).toBe(200);
    current = saved.json<{ version: { id: string } }>().version.id;
    expect(await says(kap)).toMatchObject({ word });
  }
  await org.call({ method: "POST", path: `${base(kap)}/versions/${first}/restore`, body: { base_version_id: current } });
  expect(await says(kap)).toMatchObject({ word: "1" });
});

test("a secret set, changed, deleted or brought by a group holds from the next request on, confirmed by the live runtime", async () => {
  const kap = await org.createKap(telling("x"));
  expect(await says(kap)).toMatchObject({ secret: null });
  const put = (value: string) => org.call({ method: "PUT", path: `${base(kap)}/secrets/WORD`, body: { value } });
  for (const value of ["one", "two"]) {
    expect((await put(value)).json()).toEqual({ name: "WORD", set: true, refresh_pending: false });
    expect(await says(kap)).toMatchObject({ secret: value });
  }
  expect((await org.call({ method: "DELETE", path: `${base(kap)}/secrets/WORD` })).json()).toMatchObject({ refresh_pending: false });
  expect(await says(kap)).toMatchObject({ secret: null });
  const { group } = (await org.call({ method: "POST", path: `/v1/orgs/${org.id}/secret-groups`, body: { name: "words" } })).json<{
    group: { id: string };
  }>();
  const ofGroup = `/v1/orgs/${org.id}/secret-groups/${group.id}/secrets/WORD`;
  await org.call({ method: "PUT", path: ofGroup, body: { value: "shared" } });
  expect(await says(kap)).toMatchObject({ secret: null });
  await org.call({ method: "PUT", path: `${base(kap)}/secret-groups/${group.id}` });
  expect(await says(kap)).toMatchObject({ secret: "shared" });
  expect((await org.call({ method: "PUT", path: ofGroup, body: { value: "changed" } })).json()).toMatchObject({ refresh_pending: false });
  expect(await says(kap)).toMatchObject({ secret: "changed" });
  await org.call({ method: "DELETE", path: `${base(kap)}/secret-groups/${group.id}` });
  expect(await says(kap)).toMatchObject({ secret: null });
});

test("a runtime that does not confirm leaves refresh_pending true until it is gone; nothing stale is served", async () => {
  const kap = await org.createKap(telling("x"));
  await says(kap);
  const { db } = platform.platform.api.deps;
  // A second runtime of the kap that answers nobody: its process died a moment ago.
  await db.raw(
    `insert into runtimes (id, kap_id, slot, state, data_address, control_address, token_digest, claim_until)
     values (gen_random_uuid(), ?, 1, 'ready', 'tcp:127.0.0.1:1', 'tcp:127.0.0.1:1', '\\x00', now())`,
    [kap.id],
  );
  const set = await org.call({ method: "PUT", path: `${base(kap)}/secrets/WORD`, body: { value: "v" } });
  expect(set.json()).toMatchObject({ set: true, refresh_pending: true });
  const listed = async (): Promise<boolean> =>
    (await org.call({ path: `${base(kap)}/secrets` })).json<{ refresh_pending: boolean }>().refresh_pending;
  expect(await listed()).toBe(true);
  expect(await says(kap)).toMatchObject({ secret: "v" });
  await db("runtimes").where({ kap_id: kap.id, slot: 1 }).delete();
  expect((await org.call({ method: "PUT", path: `${base(kap)}/secrets/WORD`, body: { value: "w" } })).json()).toMatchObject({
    refresh_pending: false,
  });
  expect(await listed()).toBe(false);
});

/** Where the kap's runtime is controlled; then whether its process is over: no row serves the kap, and nobody answers there. */
async function runtimeOf(kap: TestKap): Promise<{ isOver(): Promise<boolean> }> {
  const { db } = platform.platform.api.deps;
  const { control_address: address } = await db("runtimes").where({ kap_id: kap.id, state: "ready" }).first("control_address");
  return {
    async isOver() {
      if ((await db("runtimes").where({ kap_id: kap.id, state: "ready" })).length > 0) return false;
      return control(address, "GET", "/healthz", undefined, 1_000).then(
        () => false,
        () => true,
      );
    },
  };
}

test("a disabled kap refuses calls with who, when and why, loses its runtime, and serves again once enabled", async () => {
  const kap = await org.createKap(telling("on"));
  await says(kap);
  const runtime = await runtimeOf(kap);
  await org.call({ method: "POST", path: `${base(kap)}/disable`, body: { reason: "too loud" } });
  const refused = await kap.call({ path: "/" });
  expect(refused.status).toBe(503);
  expect(refused.json()).toMatchObject({ error: { code: "KAP_DISABLED", details: { reason: "too loud", by: { kind: "member" } } } });
  await until(() => runtime.isOver(), { what: "the end of the runtime" });
  await org.call({ method: "POST", path: `${base(kap)}/enable` });
  expect(await says(kap)).toMatchObject({ word: "on" });
});

test("a deleted kap answers 410 at once and loses its runtime; recovered it serves with the same token; purged it is gone", async () => {
  const kap = await org.createKap(telling("still here"));
  await says(kap);
  const { db } = platform.platform.api.deps;
  const runtime = await runtimeOf(kap);
  await org.call({ method: "DELETE", path: base(kap) });
  expect((await kap.call({ path: "/" })).status).toBe(410);
  await until(() => runtime.isOver(), { what: "the end of the runtime" });
  await org.call({ method: "POST", path: `${base(kap)}/recover` });
  expect(await says(kap)).toMatchObject({ word: "still here" });
  await org.call({ method: "DELETE", path: base(kap) });
  await db("kaps")
    .where({ id: kap.id })
    .update({ recover_until: new Date(0) });
  await purgeKap(platform.platform.api.deps, kap.id);
  expect((await kap.call({ path: "/" })).status).toBeGreaterThanOrEqual(401);
  const { rows } = await db.raw("select count(*)::int as n from pg_roles where rolname = ?", [`kap_${kap.id.replaceAll("-", "")}`]);
  expect(rows).toEqual([{ n: 0 }]);
});

test("a revoked token and a narrowed audience hold from the next call on", async () => {
  const kap = await org.createKap(telling("x"));
  expect((await kap.call({ path: "/" })).status).toBe(200);
  const { policy } = (await org.call({ path: `${base(kap)}/audience` })).json<{ policy: { revision: number } }>();
  const put = (audience: string, revision: number) =>
    org.call({
      method: "PUT",
      path: `${base(kap)}/audience`,
      body: { audience, invited: [], base_revision: revision, confirm_public: true },
    });
  expect((await put("public", policy.revision)).status).toBe(200);
  const anyone = () => platform.http.call({ host: platform.host(`${kap.slug}.kaps`), path: "/" });
  expect((await anyone()).status).toBe(200);
  await put("members", policy.revision + 1);
  expect((await anyone()).status).toBe(401);
  const { tokens } = (await org.call({ path: `${base(kap)}/bypass-tokens` })).json<{ tokens: { id: string }[] }>();
  await org.call({ method: "DELETE", path: `${base(kap)}/bypass-tokens/${tokens[0]?.id}` });
  expect((await kap.call({ path: "/" })).status).toBe(401);
});
