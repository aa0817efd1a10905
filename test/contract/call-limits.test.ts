import { createHmac } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { mintSecret } from "../../platform/secrets.ts";
import type { Answer } from "../harness/http.ts";
import { signUpOrg, type TestKap, type TestOrg } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";

/** An address may call this often a minute; more calls than two minutes allow tell the limits apart, whenever the minute turns. */
const perAddress = 25;
const calls = 2 * perAddress + 10;

let platform: TestPlatform;
let org: TestOrg;
let kap: TestKap;

beforeAll(async () => {
  platform = await startTestPlatform({ KAPSTONE_REQUESTS_PER_MINUTE: String(perAddress), KAPSTONE_TRUSTED_PROXIES: "127.0.0.1" });
  org = await signUpOrg(platform);
  kap = await org.createKap("export default () => new Response('ok')");
});
afterAll(() => platform?.close());

const visit = (address: string, from: string, headers: Record<string, string> = {}): Promise<Answer> => {
  const url = new URL(address);
  return platform.http.call({ host: url.host, path: url.pathname + url.search, headers: { "x-forwarded-for": from, ...headers } });
};
const kapAddress = (): string => `http://${platform.host(`${kap.slug}.kaps`)}/`;
const cookieOf = (answer: Answer, name: string): string =>
  answer.setCookies.map((line) => new RegExp(`^${name}=([^;]*)`).exec(line)?.[1]).find(Boolean) as string;
/** The cookie of the kap's own host, as a browser comes by it. */
async function enter(from: string): Promise<string> {
  const away = await visit(kapAddress(), from, { accept: "text/html" });
  const back = await visit(away.headers.location as string, from, { cookie: `kapstone_session=${org.session}`, accept: "text/html" });
  const entered = await visit(back.headers.location as string, from, { cookie: `kapstone_browser=${cookieOf(away, "kapstone_browser")}` });
  return cookieOf(entered, "kapstone_kap");
}
/** How often each status was answered. */
async function answers(one: (n: number) => Promise<Answer>): Promise<Record<number, number>> {
  const seen: Record<number, number> = {};
  for (let n = 0; n < calls; n++) {
    const { status } = await one(n);
    seen[status] = (seen[status] ?? 0) + 1;
  }
  return seen;
}

test("calls with the kap's own cookie count by the cookie, not by the address that others share", async () => {
  const cookie = await enter("192.0.2.1");
  expect(await answers(() => visit(kapAddress(), "192.0.2.1", { cookie: `kapstone_kap=${cookie}` }))).toEqual({ 200: calls });
});

test("so do calls with a member's session, with a token, and with a signature", async () => {
  expect(await answers(() => visit(kapAddress(), "192.0.2.2", { authorization: `Bearer ${org.session}` }))).toEqual({ 200: calls });
  expect(await answers(() => visit(kapAddress(), "192.0.2.2", { authorization: `Bearer ${kap.token}` }))).toEqual({ 200: calls });
  const minted = await org.call({ method: "POST", path: `/v1/orgs/${org.id}/kaps/${kap.id}/endpoint-secrets`, body: { name: "signs" } });
  const secret = minted.json<{ shown_once: string }>().shown_once;
  const signed = (n: number): Promise<Answer> => {
    const t = Math.floor(Date.now() / 1_000);
    const mac = createHmac("sha256", secret)
      .update(["kaps-endpoint-v1", "GET", `/?n=${n}`, t, ""].join("\n"))
      .digest("hex");
    return visit(`${kapAddress()}?n=${n}`, "192.0.2.2", { "x-kaps-signature": `t=${t},v1=${mac}` });
  };
  expect(await answers(signed)).toEqual({ 200: calls });
});

test.each([
  ["no credential", "192.0.2.3", () => ({})],
  ["a cookie that was never given", "192.0.2.4", (n: number) => ({ cookie: `kapstone_kap=${"x".repeat(40)}${n}` })],
  ["sessions that never were, another each time", "192.0.2.5", () => ({ authorization: `Bearer ${mintSecret("kses_").secret}` })],
  ["tokens that never were, another each time", "192.0.2.6", () => ({ authorization: `Bearer ${mintSecret("kbt_").secret}` })],
  ["mistyped tokens", "192.0.2.7", (n: number) => ({ authorization: `Bearer kbt_${n}` })],
  [
    "signatures of nobody",
    "192.0.2.8",
    (n: number) => ({ "x-kaps-signature": `t=${Math.floor(Date.now() / 1_000)},v1=${String(n).padStart(64, "0")}` }),
  ],
  ["stale signatures", "192.0.2.9", (n: number) => ({ "x-kaps-signature": `t=1000,v1=${String(n).padStart(64, "0")}` })],
])("calls with %s count by the address, and past its limit are 429 with Retry-After", async (_, from, headers) => {
  const seen = await answers((n) => visit(kapAddress(), from, headers(n)));
  expect(Object.keys(seen)).toEqual(["401", "429"]);
  expect(seen[401]).toBeGreaterThanOrEqual(perAddress);
  // The same address with a good token is refused too: it is the one that tries credentials.
  const last = await visit(kapAddress(), from, headers(0));
  if (last.status === 429) expect(Number(last.headers["retry-after"])).toBeGreaterThan(0);
});
