import { createHash } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readOutbox } from "../browser/outbox.ts";
import type { Answer } from "../harness/http.ts";
import { signUpOrg, type TestKap, type TestOrg } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";
import { until } from "../harness/wait.ts";

const program = `export default (request, ctx) => Response.json({ headers: Object.fromEntries(request.headers), user: ctx.user ?? null, method: request.method })`;
const accept = "text/html,application/xhtml+xml";

let platform: TestPlatform;
let org: TestOrg;
let kap: TestKap;

beforeAll(async () => {
  platform = await startTestPlatform();
  org = await signUpOrg(platform);
  kap = await org.createKap(program);
});
afterAll(() => platform.close());

const visit = (address: string, cookies: Record<string, string> = {}, headers: Record<string, string> = {}): Promise<Answer> => {
  const url = new URL(address);
  const cookie = Object.entries(cookies)
    .map(([name, value]) => `${name}=${value}`)
    .join("; ");
  return platform.http.call({
    host: url.host,
    path: url.pathname + url.search,
    headers: { accept, ...(cookie ? { cookie } : {}), ...headers },
  });
};
const origin = (of: { slug: string }) => `http://${platform.host(`${of.slug}.kaps`)}`;
const cookieOf = (answer: Answer, name: string) =>
  answer.setCookies.map((line) => new RegExp(`^${name}=([^;]*)`).exec(line)?.[1]).find(Boolean);

/** A signed-out browser at the kap, sent to the organisation's host with its mark. */
async function setOut(of: { slug: string } = kap, path = "/") {
  const away = await visit(`${origin(of)}${path}`);
  expect(away.status).toBe(302);
  return { entrance: away.headers.location as string, browser: cookieOf(away, "kapstone_browser") as string };
}

/** The redirect with a one-time code that a session gets. */
async function codeFor(entrance: string, session: string) {
  const back = await visit(entrance, { kapstone_session: session });
  expect([back.status, back.text]).toEqual([302, ""]);
  return back.headers.location as string;
}

/** The whole way in: the cookie of the kap's own host. */
async function enter(of: { slug: string }, session: string) {
  const { entrance, browser } = await setOut(of);
  const entered = await visit(await codeFor(entrance, session), { kapstone_browser: browser });
  expect(entered.status).toBe(302);
  return cookieOf(entered, "kapstone_kap") as string;
}

/** A session of its own for the owner, so that ending it ends nothing else. */
async function signIn(of: TestOrg = org) {
  const body = { email: `owner@${of.slug}.example`, password: "correct horse battery staple" };
  const answer = await platform.http.call({ host: platform.host(of.slug), method: "POST", path: "/v1/auth/login", body });
  return answer.json<{ session_token: string }>().session_token;
}

async function setAudience(of: TestKap, audience: string, invited: string[] = []) {
  const path = `/v1/orgs/${org.id}/kaps/${of.id}/audience`;
  const { policy } = (await org.call({ path })).json<{ policy: { revision: number } }>();
  const body = { audience, invited, base_revision: policy.revision, confirm_public: audience === "public" };
  expect((await org.call({ method: "PUT", path, body })).status).toBe(200);
}

describe("a signed-out visit", () => {
  test("of a browser is sent to the organisation's host with the path kept; a machine, and any change, is 401", async () => {
    const { entrance } = await setOut(kap, "/a?b=c");
    const url = new URL(entrance);
    expect([url.host, url.pathname, url.searchParams.get("kap"), url.searchParams.get("to")]).toEqual([
      platform.host(org.slug),
      "/enter",
      kap.slug,
      "/a?b=c",
    ]);
    expect((await kap.call({ headers: { authorization: "" } })).status).toBe(401);
    expect((await kap.call({ method: "POST", headers: { authorization: "", accept } })).status).toBe(401);
    expect((await kap.call({ method: "HEAD", headers: { authorization: "", accept } })).status).toBe(302);
  });

  test("without a session leads on to the sign-in page, which only ever leads back to the same host", async () => {
    const { entrance } = await setOut();
    const page = await visit(entrance);
    expect([page.status, page.headers.location]).toEqual([302, expect.stringMatching(/^\/sign-in\?next=%2Fenter/)]);
    for (const next of ["//evil.example", "https://evil.example", "/\\evil.example", "/\t/evil.example"]) {
      const shown = await visit(`http://${platform.host(org.slug)}/sign-in?next=${encodeURIComponent(next)}`);
      expect([shown.status, shown.text.includes("evil.example")], next).toEqual([200, false]);
      const signedIn = await visit(`http://${platform.host(org.slug)}/sign-in?next=${encodeURIComponent(next)}`, {
        kapstone_session: org.session,
      });
      expect(signedIn.headers.location ?? "/", next).not.toContain("evil.example");
    }
  });

  test("another organisation's host knows nothing of the kap", async () => {
    const other = await signUpOrg(platform);
    expect((await visit(`http://${platform.host(other.slug)}/enter?kap=${kap.slug}`)).status).toBe(404);
    expect((await visit(`http://${platform.host("no-such-org")}/enter?kap=${kap.slug}`)).status).toBe(404);
  });
});

describe("a code", () => {
  test("is good once, and of twenty uses at the same time one wins", async () => {
    const { entrance, browser } = await setOut();
    const back = await codeFor(entrance, org.session);
    const uses = await Promise.all(Array.from({ length: 20 }, () => visit(back, { kapstone_browser: browser })));
    expect(uses.filter(({ status }) => status === 302)).toHaveLength(1);
    expect(new Set(uses.map(({ status }) => status))).toEqual(new Set([302, 410]));
  });

  test("works in the browser that set out and in no other, on its kap's host and on no other, and is spent by trying", async () => {
    for (const spoil of [
      (back: string) => visit(back, { kapstone_browser: "another" }),
      (back: string) => visit(back),
      async (back: string, browser: string) =>
        visit(back.replace(kap.slug, (await org.createKap(program)).slug), { kapstone_browser: browser }),
    ]) {
      const { entrance, browser } = await setOut();
      const back = await codeFor(entrance, org.session);
      expect((await spoil(back, browser)).status).toBe(410);
      expect((await visit(back, { kapstone_browser: browser })).status).toBe(410);
    }
  });

  test("is over after its time, is stored as a digest only, and leads to the kap's own host whatever it is told", async () => {
    const { entrance, browser } = await setOut();
    const back = await codeFor(entrance, org.session);
    const code = new URL(back).searchParams.get("code") as string;
    const digest = createHash("sha256").update(code).digest();
    expect(
      await platform.database.postgres
        .knex("kap_handovers")
        .where({ digest })
        .update({ expires_at: new Date(Date.now() - 1) }),
    ).toBe(1);
    expect((await visit(back, { kapstone_browser: browser })).status).toBe(410);
    const second = await setOut();
    const evil = new URL(await codeFor(second.entrance, org.session));
    evil.searchParams.set("to", "//evil.example/x");
    expect((await visit(evil.href, { kapstone_browser: second.browser })).headers.location).toBe(`${origin(kap)}/`);
  });
});

describe("the cookie of a kap's host", () => {
  test("admits a member, and neither it nor the session cookie reaches the program", async () => {
    const cookie = await enter(kap, org.session);
    const answer = await visit(`${origin(kap)}/`, {
      theirs: "1",
      kapstone_kap: cookie,
      kapstone_session: "x",
      kapstone_browser: "y",
      last: "2",
    });
    expect(answer.json()).toMatchObject({ headers: { cookie: "theirs=1; last=2" }, user: { role: "owner" } });
    expect(answer.json<{ headers: Record<string, string> }>().headers["x-kap-caller"]).toBe(`member:owner@${org.slug}.example`);
  });

  test("is good for its own kap only", async () => {
    const cookie = await enter(kap, org.session);
    const other = await org.createKap(program);
    expect((await visit(`${origin(other)}/`, { kapstone_kap: cookie })).status).toBe(302);
    expect((await visit(`${origin(other)}/`, { kapstone_kap: cookie }, { accept: "*/*" })).status).toBe(401);
  });

  test("ends with the session, and with the membership's", async () => {
    const session = await signIn();
    const cookie = await enter(kap, session);
    expect((await visit(`${origin(kap)}/`, { kapstone_kap: cookie })).status).toBe(200);
    await platform.http.call({
      host: platform.host("api"),
      method: "POST",
      path: "/v1/auth/logout",
      headers: { authorization: `Bearer ${session}` },
    });
    expect((await visit(`${origin(kap)}/`, { kapstone_kap: cookie })).status).toBe(302);
  });

  test("of a member not on the list of an invited kap is worth nothing from the next request on", async () => {
    const subject = await org.createKap(program);
    const cookie = await enter(subject, org.session);
    await setAudience(subject, "invited", ["@elsewhere.example"]);
    expect((await visit(`${origin(subject)}/`, { kapstone_kap: cookie })).status).toBe(302);
    const { entrance } = await setOut(subject);
    expect((await visit(entrance, { kapstone_session: org.session })).status).toBe(403);
    await setAudience(subject, "invited", [`owner@${org.slug}.example`]);
    expect((await visit(`${origin(subject)}/`, { kapstone_kap: cookie })).status).toBe(200);
  });

  test("makes no change for a page of another site; on a public kap such a change is anonymous", async () => {
    const subject = await org.createKap(program);
    const cookie = `kapstone_kap=${await enter(subject, org.session)}`;
    const change = (headers: Record<string, string>) =>
      subject.call({ method: "POST", headers: { authorization: "", cookie, ...headers }, body: "x" });
    expect((await change({ origin: origin(subject) })).status).toBe(200);
    for (const headers of [
      { origin: "http://evil.example" },
      { origin: "null" },
      { origin: origin(kap) },
      { "sec-fetch-site": "same-site" },
    ]) {
      const refused = await change(headers as Record<string, string>);
      expect([refused.status, refused.json<{ error: { code: string } }>().error.code]).toEqual([403, "ORIGIN_MISMATCH"]);
    }
    await setAudience(subject, "public");
    const anonymous = await change({ origin: "http://evil.example" });
    expect(anonymous.json<{ headers: Record<string, string>; user: unknown }>()).toMatchObject({
      headers: { "x-kap-caller": "anonymous" },
      user: null,
    });
  });

  test("is taken away by leaving", async () => {
    const cookie = await enter(kap, org.session);
    const left = await platform.http.call({
      host: platform.host(`${kap.slug}.kaps`),
      method: "POST",
      path: "/__kaps/leave",
      headers: { cookie: `kapstone_kap=${cookie}`, origin: origin(kap), "content-type": "application/x-www-form-urlencoded" },
      body: "to=/",
    });
    expect(left.status).toBe(303);
    expect((await visit(`${origin(kap)}/`, { kapstone_kap: cookie })).status).toBe(302);
  });
});

describe("a mailed link", () => {
  const ask = (of: { slug: string }, email: string, headers: Record<string, string> = {}) =>
    platform.http.call({
      host: platform.host(org.slug),
      method: "POST",
      path: "/enter/link",
      headers: { "content-type": "application/x-www-form-urlencoded", ...headers },
      body: new URLSearchParams({ kap: of.slug, to: "/", email }).toString(),
    });
  const mailTo = (email: string) =>
    readOutbox(platform.platform.api.deps.config.dataDir).then((mails) => mails.find(({ to }) => to === email));

  test("goes to who is listed and to nobody else, with the same answer to both", async () => {
    const subject = await org.createKap(program);
    await setAudience(subject, "invited", ["ada@guests.example", "@firm.example"]);
    const answers = [];
    for (const email of ["stranger@guests.example", "x@sub.firm.example", "ada@guests.example", "bob@firm.example"]) {
      const answer = await ask(subject, email);
      answers.push([answer.status, answer.text.replace(email, "…")]);
    }
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
    await until(async () => (await mailTo("ada@guests.example")) && (await mailTo("bob@firm.example")));
    expect(await mailTo("stranger@guests.example")).toBeUndefined();
    expect(await mailTo("x@sub.firm.example")).toBeUndefined();
    expect((await ask(subject, "not an address")).status).toBe(422);
  });

  test("an account that claims a listed address elsewhere has not proved it: its session does not open the kap", async () => {
    const subject = await org.createKap(program);
    const stranger = await signUpOrg(platform);
    await setAudience(subject, "invited", [`owner@${stranger.slug}.example`]);
    expect((await subject.call({ headers: { authorization: `Bearer ${stranger.session}` } })).status).toBe(404);
  });

  test("is asked for at most five times an hour for one address", async () => {
    const subject = await org.createKap(program);
    await setAudience(subject, "invited", ["@often.example"]);
    const hour = 3_600_000; // as the clock has it: all of these stand in one
    await until(() => Date.now() % hour < hour - 20_000, { timeoutMs: 40_000, what: "an hour with enough of it left" });
    const statuses = [];
    for (let i = 0; i < 6; i++) statuses.push((await ask(subject, "me@often.example")).status);
    expect(statuses).toEqual([200, 200, 200, 200, 200, 429]);
    const shown = await ask(subject, "me@often.example", { accept });
    expect([shown.status, shown.headers["content-type"]]).toEqual([429, "text/html; charset=utf-8"]);
    expect(shown.headers["content-security-policy"]).toContain("default-src 'none'");
    expect(Number(shown.headers["retry-after"])).toBeGreaterThan(0);
    expect(shown.text).toMatch(/<h1>That did not work<\/h1>\s*<p>more than 5 links an hour to this address/);
  }, 60_000);

  test("sent from another site is refused with a page to browsers and JSON to machines", async () => {
    const foreign = { origin: "http://elsewhere.example" };
    const shown = await ask(kap, "me@often.example", { ...foreign, accept });
    expect([shown.status, shown.headers["content-type"]]).toEqual([403, "text/html; charset=utf-8"]);
    expect(shown.text).toContain("this form was sent from another site");
    const told = await ask(kap, "me@often.example", foreign);
    expect([told.status, told.json<{ error: { code: string } }>().error.code]).toEqual([403, "ORIGIN_MISMATCH"]);
  });
});

test("pages let nothing in from outside, and may not be framed", async () => {
  for (const path of ["/sign-in", "/forgot", "/reset?token=x", "/join?token=x", '/sign-in?next=/"><script>alert(1)</script>']) {
    const page = await visit(
      `http://${platform.host(org.slug)}${path.replaceAll("<", "%3C").replaceAll(">", "%3E").replaceAll('"', "%22")}`,
    );
    expect(page.status, path).toBe(200);
    expect(page.headers["content-security-policy"]).toMatch(/default-src 'none'.*script-src 'self'.*frame-ancestors 'none'/);
    expect(page.text).not.toContain("<script>alert");
    for (const [, address] of page.text.matchAll(/ (?:src|href|action)="([^"]*)"/g)) expect(address, path).toMatch(/^(?:\/(?!\/)|data:)/);
  }
});
