import { mkdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { TOTP } from "otpauth";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { signUpOrg, type TestKap, type TestOrg } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";
import { until } from "../harness/wait.ts";
import { onceLoaded, openBrowser } from "./browser.ts";
import { readOutbox } from "./outbox.ts";

const pictures = process.env.KAPSTONE_TEST_PICTURES ?? join(tmpdir(), "kapstone-pictures");
const password = "correct horse battery staple";
const program = `export default (request, ctx) => new Response(
  '<!doctype html><title>kap</title><pre>' + JSON.stringify({ caller: request.headers.get("x-kap-caller"), cookie: request.headers.get("cookie"), path: new URL(request.url).pathname + new URL(request.url).search, user: ctx.user ?? null }) + '</pre>',
  { headers: { "content-type": "text/html", "set-cookie": "own=1; Path=/" } })`;

let platform: TestPlatform;
let browser: Browser;
let org: TestOrg;
let kap: TestKap;
let orgOrigin: string;

beforeAll(async () => {
  await mkdir(pictures, { recursive: true });
  platform = await startTestPlatform();
  browser = await openBrowser();
  org = await signUpOrg(platform);
  kap = await org.createKap(program);
  orgOrigin = `http://${platform.host(org.slug)}`;
});
afterAll(async () => {
  await browser?.close();
  await platform.close();
});

const originOf = (of: TestKap) => `http://${platform.host(`${of.slug}.kaps`)}`;
const seen = async (page: Page) => JSON.parse((await page.locator("pre").textContent()) ?? "") as Record<string, unknown>;
const picture = (page: Page, name: string) => page.screenshot({ path: join(pictures, `${name}.png`) });

async function newPage(options: Parameters<Browser["newContext"]>[0] = {}): Promise<Page> {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.on("request", (request) => {
    // Nothing outside the platform is ever asked for anything.
    if (!new URL(request.url()).host.endsWith(`localhost:${platform.platform.port}`) && !request.url().startsWith("data:")) {
      throw new Error(`the page asked ${request.url()}`);
    }
  });
  page.on("console", (message) => {
    if (/Content Security Policy/i.test(message.text())) throw new Error(message.text());
  });
  return page;
}

async function signIn(page: Page, email = `owner@${org.slug}.example`) {
  await (await onceLoaded(page.getByLabel("Email"))).fill(email);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
}

async function setAudience(of: TestKap, audience: string, invited: string[] = []) {
  const path = `/v1/orgs/${org.id}/kaps/${of.id}/audience`;
  const { policy } = (await org.call({ path })).json<{ policy: { revision: number } }>();
  const body = { audience, invited, base_revision: policy.revision, ...(audience === "public" ? { confirm_public: true } : {}) };
  expect((await org.call({ method: "PUT", path, body })).status).toBe(200);
}

test("a signed-out member meets the kap, signs in, comes back to the same path, and is known there; signing out ends it", async () => {
  const page = await newPage({ viewport: { width: 1000, height: 760 }, colorScheme: "light" });
  await page.goto(`${originOf(kap)}/deep/page?x=1&y=%C3%BC`);
  expect(new URL(page.url()).origin).toBe(orgOrigin);
  expect(await page.title()).toContain("Sign in");
  await picture(page, "sign-in-light");
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  expect(await page.getByRole("alert").textContent()).toContain("Email");
  await page.getByLabel("Email").fill(`owner@${org.slug}.example`);
  await page.getByLabel("Password", { exact: true }).fill("wrong");
  await page.keyboard.press("Enter");
  await page.getByText("The email or the password is wrong.").waitFor();
  await picture(page, "sign-in-wrong");
  await signIn(page);
  await page.waitForURL(`${originOf(kap)}/**`);
  expect(page.url()).toBe(`${originOf(kap)}/deep/page?x=1&y=%C3%BC`);
  expect(await seen(page)).toMatchObject({
    caller: `member:owner@${org.slug}.example`,
    cookie: null,
    path: "/deep/page?x=1&y=%C3%BC",
    user: { email: `owner@${org.slug}.example`, role: "owner" },
  });
  await page.reload();
  expect(await seen(page)).toMatchObject({ cookie: "own=1" });
  const cookies = await page.context().cookies(originOf(kap));
  expect(cookies.find(({ name }) => name === "kapstone_kap")).toMatchObject({ httpOnly: true, sameSite: "Lax" });
  expect(cookies.find(({ name }) => name === "kapstone_session")).toBeUndefined();

  // A second kap needs no second sign-in.
  const second = await org.createKap(program);
  await page.goto(`${originOf(second)}/`);
  expect(await seen(page)).toMatchObject({ caller: `member:owner@${org.slug}.example` });

  await page.goto(`${orgOrigin}/sign-in`);
  await picture(page, "signed-in");
  await (await onceLoaded(page.getByRole("button", { name: "Sign out" }))).click();
  await page.getByLabel("Email").waitFor();
  await page.goto(`${originOf(kap)}/`);
  expect(await page.title()).toContain("Sign in");
});

test("an invited guest asks for a link, opens it from the mail, and is known by the address until taken off the list", async () => {
  const invited = await org.createKap(program);
  await setAudience(invited, "invited", ["@guests.example"]);
  const page = await newPage({ viewport: { width: 360, height: 740 }, colorScheme: "dark" });
  await page.goto(`${originOf(invited)}/report`);
  await picture(page, "invited-dark-360");
  expect(await page.evaluate("document.documentElement.scrollWidth")).toBeLessThanOrEqual(360);
  await page.getByLabel("Email").fill("Ada@Guests.example");
  await page.getByRole("button", { name: "Send me a link" }).click();
  await page.getByRole("heading", { name: "Look into your mail" }).waitFor();
  const mail = await until(async () =>
    (await readOutbox(platform.platform.api.deps.config.dataDir)).find(({ to }) => to === "ada@guests.example"),
  );
  const link = /http:\/\/\S+\/__kaps\/enter\?\S+/.exec(mail.text)?.[0] as string;
  expect(new URL(link).origin).toBe(originOf(invited));

  // A mail scanner that opens the link does not use it up.
  const scanner = new URL(link);
  await platform.http.call({ host: scanner.host, path: scanner.pathname + scanner.search });

  await page.goto(link);
  await picture(page, "guest-confirm");
  await page.getByRole("button", { name: "Continue" }).click();
  await page.waitForURL(`${originOf(invited)}/report`);
  expect(await seen(page)).toMatchObject({ caller: "guest:ada@guests.example", cookie: null, user: { role: "guest" } });
  await page.reload();
  expect(await seen(page)).toMatchObject({ caller: "guest:ada@guests.example", cookie: "own=1" });

  await page.goto(link);
  await page.getByRole("heading", { name: "This link is over" }).waitFor();
  await picture(page, "link-over");

  await setAudience(invited, "invited", ["@others.example"]);
  await page.goto(`${originOf(invited)}/report`);
  expect(new URL(page.url()).origin).toBe(orgOrigin);
});

test("the page can be used by keyboard alone, and shows where the focus is", async () => {
  const page = await newPage({ viewport: { width: 360, height: 740 } });
  await page.goto(`${originOf(kap)}/`);
  await page.waitForFunction("document.activeElement.id === 'email'");
  await page.keyboard.type(`owner@${org.slug}.example`);
  await page.keyboard.press("Tab");
  await page.keyboard.type(password);
  await page.keyboard.press("Tab");
  expect(await page.evaluate("document.activeElement.textContent")).toBe("Show");
  expect(await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")).toBe("solid");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.waitForURL(`${originOf(kap)}/`);
});

test("a forgotten password: the mailed link leads to a page that sets another, and the old one is over", async () => {
  const other = await signUpOrg(platform);
  const page = await newPage();
  await page.goto(`http://${platform.host(other.slug)}/forgot`);
  await page.getByLabel("Email").fill(`owner@${other.slug}.example`);
  await page.getByRole("button", { name: "Send me a link" }).click();
  await page.getByRole("status").waitFor();
  const mail = await until(async () =>
    (await readOutbox(platform.platform.api.deps.config.dataDir)).find(
      ({ to, subject }) => to === `owner@${other.slug}.example` && /password/.test(subject),
    ),
  );
  await page.goto(/http:\/\/\S+\/reset\?\S+/.exec(mail.text)?.[0] as string);
  await page.getByLabel("New password").fill("short");
  await page.getByRole("button", { name: "Set the password" }).click();
  await page.getByRole("alert").waitFor();
  await picture(page, "reset-refused");
  await page.getByLabel("New password").fill("another long and lovely phrase");
  await page.getByRole("button", { name: "Set the password" }).click();
  await page.getByRole("link", { name: "Sign in" }).click();
  await (await onceLoaded(page.getByLabel("Email"))).fill(`owner@${other.slug}.example`);
  await page.getByLabel("Password", { exact: true }).fill("another long and lovely phrase");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "You are signed in" }).waitFor();
});

test("an invitation: the mailed link leads to a page on which a new person joins and is signed in; an enforced second factor is set up there", async () => {
  const home = await signUpOrg(platform);
  await home.call({
    method: "POST",
    path: "/v1/auth/invitations",
    host: platform.host("api"),
    body: { email: `new@${home.slug}.example`, role: "member" },
  });
  const mail = await until(async () =>
    (await readOutbox(platform.platform.api.deps.config.dataDir)).find(({ to }) => to === `new@${home.slug}.example`),
  );
  const page = await newPage();
  await page.goto(/http:\/\/\S+\/join\?\S+/.exec(mail.text)?.[0] as string);
  await page.getByLabel("Your name").fill("New Person");
  await page.getByLabel("Password", { exact: true }).fill(password);
  await picture(page, "join");
  await page.getByRole("button", { name: "Join" }).click();
  await page.getByRole("heading", { name: "You are signed in" }).waitFor();
  await (await onceLoaded(page.getByRole("button", { name: "Sign out" }))).click();
  await page.getByLabel("Email").waitFor();

  await home.call({ method: "PATCH", path: "/v1/auth/settings", host: platform.host("api"), body: { mfa: { mode: "enforced" } } });
  await signIn(page, `new@${home.slug}.example`);
  await page.getByRole("heading", { name: "Set up a second factor" }).waitFor();
  expect(await page.evaluate("document.querySelector('.qr img').decode().then(() => true)")).toBe(true);
  await picture(page, "enrol");
  const secret = ((await page.locator(".key code").textContent()) ?? "").replaceAll(" ", "");
  await page.getByLabel("Code", { exact: true }).fill(new TOTP({ secret }).generate());
  await page.getByRole("button", { name: "Confirm" }).click();
  await page.getByRole("heading", { name: "Keep these codes" }).waitFor();
  const codes = await page.locator(".codes li").allTextContents();
  expect(codes).toHaveLength(10);
  await picture(page, "backup-codes");
  await page.getByRole("link", { name: "Go on" }).click();
  await (await onceLoaded(page.getByRole("button", { name: "Sign out" }))).click();

  // From now on the password alone is asked for more, in words.
  await signIn(page, `new@${home.slug}.example`);
  await page.getByText("Enter the code of your authenticator app, or a backup code.").waitFor();
  await picture(page, "code");
  await page.getByLabel(/Code of your/).fill("000000");
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.getByText("This code is wrong").waitFor();
  await page.getByLabel(/Code of your/).fill(codes[0] as string);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "You are signed in" }).waitFor();
});
